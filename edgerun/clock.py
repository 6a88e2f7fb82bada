"""Clock, temperature and throttling while something is measured, from /sys.

A packed file reads the same files in the same way (packaging/edgerun_packaging/launcher/clock.c). Sources of
"throttled": the Raspberry Pi firmware's word (bits 0-3 now, 16-19 since boot) and voltage alarm, cooling devices that
lower the clock of a CPU, and the counters of x86 CPUs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

REASONS = (
    "under-voltage", "clock capped", "throttled", "soft temperature limit", "cooling lowers the clock",
    "thermal throttling",
)  # fmt: skip
_COOLING, _COUNTER = 4, 5
_PI_WORDS = (
    "bus/platform/devices/soc:firmware/get_throttled",
    "bus/platform/devices/soc@107c000000:firmware/get_throttled",
    "devices/platform/soc/soc:firmware/get_throttled",
)
_INTERVAL = 0.2
"""Seconds between samples: reading /sys takes a fraction of a millisecond."""


class ClockWatch:
    """What /sys says from construction to the last `sample`. `root` stands for /sys."""

    def __init__(self, root: Path = Path("/sys")) -> None:
        self._root = root
        self._mhz: list[float] = []
        self._celsius: list[float] = []
        self._known = False
        self._reasons: set[int] = set()
        self._word_before = self._pi_word() or 0
        self._counters_before = sum(self._counters())
        self._next = 0.0
        self.sample()

    def sample_sometimes(self) -> None:
        """Sample when the last one is old enough. To be called between runs."""
        if time.perf_counter() >= self._next:
            self.sample()

    def sample(self) -> None:
        """Look at everything once."""
        cpu = self._root / "devices/system/cpu"
        clocks = [int(text) / 1e3 for text in _texts(cpu, "cpu[0-9]*/cpufreq/scaling_cur_freq")]
        self._mhz += [max(clocks)] if clocks else []
        self._celsius += [int(text) / 1e3 for text in _texts(self._root / "class/thermal", "thermal_zone*/temp")]
        word = self._pi_word()
        if word is not None:
            self._known = True
            bits = word & 15 | (word & ~self._word_before) >> 16 & 15
            self._reasons |= {i for i in range(4) if bits >> i & 1}
        counters = self._counters()
        self._known |= bool(counters)
        if sum(counters) > self._counters_before:
            self._reasons.add(_COUNTER)
        self._look_at_devices()
        self._next = time.perf_counter() + _INTERVAL

    def result(self, *, allow_throttled: bool = False) -> dict[str, Any]:
        """The fields of a row of `bench`; None where /sys does not say."""
        return {
            "mhz_min": min(self._mhz) if self._mhz else None,
            "mhz_max": max(self._mhz) if self._mhz else None,
            "celsius_max": max(self._celsius) if self._celsius else None,
            "throttled": bool(self._reasons) if self._known else None,
            "throttle_reasons": [REASONS[i] for i in sorted(self._reasons)],
            "rejected": bool(self._reasons) and not allow_throttled,
        }

    def _pi_word(self) -> int | None:
        text = next((t for path in _PI_WORDS for t in _texts(self._root, path)), None)
        return None if text is None else int(text, 16)

    def _counters(self) -> list[int]:
        return [
            int(t) for t in _texts(self._root / "devices/system/cpu", "cpu[0-9]*/thermal_throttle/*_throttle_count")
        ]

    def _look_at_devices(self) -> None:
        for kind in (self._root / "class/thermal").glob("cooling_device*/type"):
            if any(word in text for text in _texts(kind.parent, "type") for word in ("cpufreq", "Processor")):
                self._known = True
                self._reasons |= {_COOLING for state in _texts(kind.parent, "cur_state") if int(state) > 0}
        for name in (self._root / "class/hwmon").glob("hwmon*/name"):
            if _texts(name.parent, "name") == ["rpi_volt"]:
                self._known = True
                self._reasons |= {0 for alarm in _texts(name.parent, "in0_lcrit_alarm") if int(alarm) > 0}


def _texts(folder: Path, pattern: str) -> list[str]:
    """First lines of the files that can be read."""
    found = []
    for path in sorted(folder.glob(pattern)):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        found += [text] if text else []
    return found
