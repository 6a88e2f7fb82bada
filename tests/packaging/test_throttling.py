"""Clock, temperature and throttling as /sys tells them: the packed file and the Python tool read the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgerun.clock import REASONS, ClockWatch
from tests.packaging.namespaces import call_in_root

FIELDS = ("mhz_min", "mhz_max", "celsius_max", "throttled", "throttle_reasons", "rejected")
CPU = "/sys/devices/system/cpu"
PI = "/sys/bus/platform/devices/soc:firmware/get_throttled"
PI5 = "/sys/bus/platform/devices/soc@107c000000:firmware/get_throttled"
CASES: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {"mhz_min": None, "mhz_max": None, "celsius_max": None, "throttled": None}),
    (
        {
            f"{CPU}/cpu0/cpufreq/scaling_cur_freq": "600000\n",
            f"{CPU}/cpu3/cpufreq/scaling_cur_freq": "1500000\n",
            "/sys/class/thermal/thermal_zone0/temp": "48312\n",
            "/sys/class/thermal/thermal_zone2/temp": "51000\n",
        },
        {"mhz_min": 1500, "mhz_max": 1500, "celsius_max": 51, "throttled": None},
    ),
    ({PI: "0\n"}, {"throttled": False}),
    ({PI5: "50000\n"}, {"throttled": False}),  # since boot, not now
    ({PI: "50005\n"}, {"throttled": True, "throttle_reasons": [REASONS[0], REASONS[2]]}),
    ({PI5: "8\n"}, {"throttled": True, "throttle_reasons": [REASONS[3]]}),
    (
        {"/sys/class/hwmon/hwmon1/name": "rpi_volt\n", "/sys/class/hwmon/hwmon1/in0_lcrit_alarm": "1\n"},
        {"throttled": True, "throttle_reasons": [REASONS[0]]},
    ),
    (
        {
            "/sys/class/thermal/cooling_device0/type": "cpufreq-cpu0\n",
            "/sys/class/thermal/cooling_device0/cur_state": "2\n",
        },
        {"throttled": True, "throttle_reasons": [REASONS[4]]},
    ),
    (
        {"/sys/class/thermal/cooling_device0/type": "pwm-fan\n", "/sys/class/thermal/cooling_device0/cur_state": "2\n"},
        {"throttled": None},
    ),
    ({f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "7\n"}, {"throttled": False}),  # long ago
]


@pytest.mark.parametrize(("files", "expected"), CASES)
def test_both_read_the_same(model: Path, tmp_path: Path, files: dict[str, str], expected: dict[str, Any]) -> None:
    words = ("bench", "--threads", "1", "--runs", "2", "--shape", "image=1,1,8,8")
    done = call_in_root(tmp_path, model, *words, "--json", files=files)
    rejected = bool(expected["throttled"])
    assert done.returncode == int(rejected), done.stderr
    packed = {name: json.loads(done.stdout)["rows"][0][name] for name in FIELDS}
    python = ClockWatch(tmp_path / "sys").result()
    assert packed == python
    assert packed == packed | expected | {"rejected": rejected}
    assert ("rejected: the CPU was throttled" in done.stderr) == rejected
    table = call_in_root(tmp_path, model, *words).stdout
    assert ("REJECTED: " + ", ".join(packed["throttle_reasons"]) in table) == rejected
    accepted = call_in_root(tmp_path, model, *words, "--allow-throttled", "--json")
    assert accepted.returncode == 0 and not json.loads(accepted.stdout)["rows"][0]["rejected"]


def test_what_changes_during_the_measurement_counts(tmp_path: Path) -> None:
    counter = tmp_path / "devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
    clock = tmp_path / "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"
    word = tmp_path / "bus/platform/devices/soc:firmware/get_throttled"
    for path, text in ((counter, "7"), (clock, "1800000"), (word, "20000")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    watch = ClockWatch(tmp_path)
    counter.write_text("9")
    clock.write_text("1000000")
    word.write_text("60000")
    watch.sample()
    result = watch.result()
    assert (result["mhz_min"], result["mhz_max"]) == (1000, 1800)
    assert result["throttle_reasons"] == ["throttled", "thermal throttling"] and result["rejected"]


def test_a_file_that_cannot_be_read_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "class/thermal/thermal_zone0/temp").mkdir(parents=True)
    assert ClockWatch(tmp_path).result()["celsius_max"] is None
