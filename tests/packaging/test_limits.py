"""A model that does not fit says so at start, instead of being killed; one that fits runs."""

from __future__ import annotations

import functools
import json
import resource
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest

from edgerun.session import load_graph
from edgerun_packaging.footprint import THREAD_STACK_BYTES
from edgerun_packaging.pack import Options, pack
from edgerun_packaging.zig import LAUNCHER
from edgerun_targets import load
from tests.packaging.conftest import HOST, call
from tests.packaging.memory_groups import enter, limited_group
from tests.packaging.namespaces import call_in_prison, call_in_root

RUN = ("run", "--input", "zeros", "--threads", "1")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A matrix product with 12 MB of weights and 8 MB of activations."""
    from onnx import TensorProto, helper, numpy_helper, save

    folder = tmp_path_factory.mktemp("large")
    weights = [numpy_helper.from_array(np.full((1000, 1000), 1e-3 * k, np.float32), f"w{k}") for k in (1, 2, 3)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", [x, f"w{k}"], [y]) for k, (x, y) in enumerate(("xa", "ab", "by"), 1)],
        "large",
        [value("x", TensorProto.FLOAT, [1000, 1000])],
        [value("y", TensorProto.FLOAT, [1000, 1000])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    save(model, folder / "large.onnx")
    pack(load_graph(folder / "large.onnx"), load(HOST), folder / "large", options=Options(threads=1, golden=False))
    return folder / "large"


def _predicted(model: Path) -> int:
    return json.loads(call(model, "info", "--json").stdout)["manifest"]["ram_bytes"]


@pytest.mark.parametrize("percent", [105, 80])
def test_a_memory_cgroup(large: Path, tmp_path: Path, percent: int) -> None:
    """At the predicted figure + 5 % the model runs, at -20 % it refuses; enforced by the kernel where a group can be
    made, else told by files in a root of our own (which a warning says)."""
    limit = _predicted(large) * percent // 100
    with limited_group(limit) as group:
        if group is not None:
            preparation = functools.partial(enter, group)
            done = subprocess.run([large, *RUN], capture_output=True, text=True, preexec_fn=preparation)
        else:
            warnings.warn("no memory cgroup can be made here: the limit is only told, not enforced", stacklevel=1)
            files = {"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": f"{limit}\n"}
            done = call_in_root(tmp_path, large, *RUN, files=files)
    if percent > 100:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 3, (done.returncode, done.stderr)
        assert "the memory cgroup" in done.stderr and "--no-memory-check" in done.stderr


V2 = {"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "max\n"}
V1 = {"/proc/self/cgroup": "3:cpu:/x\n2:memory:/a\n0::/\n"}
MANY = "1000000000\n"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (V2 | {"/sys/fs/cgroup/a/memory.max": "9000000\n"}, "/sys/fs/cgroup/a allows 9.00 MB"),
        (V2 | {"/sys/fs/cgroup/memory.max": "9000000\n"}, "/sys/fs/cgroup allows 9.00 MB"),
        (
            V2 | {"/sys/fs/cgroup/a/memory.max": MANY, "/sys/fs/cgroup/a/memory.current": "999000000\n"},
            "of which others use 999.00 MB",
        ),
        (
            V2
            | {
                "/sys/fs/cgroup/a/memory.max": MANY,
                "/sys/fs/cgroup/a/memory.current": "999000000\n",
                "/sys/fs/cgroup/a/memory.stat": "anon 5\ninactive_file 400000000\nactive_file 400000000\n",
            },
            "",
        ),
        (V1 | {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9000000\n"}, "/sys/fs/cgroup/memory/a allows"),
        (V1 | {"/sys/fs/cgroup/memory/memory.limit_in_bytes": "9000000\n"}, "/sys/fs/cgroup/memory allows"),
        (V1 | {"/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, ""),
        ({"/proc/meminfo": "MemTotal: 90000 kB\nMemAvailable:    9000 kB\nSwapFree: 1000 kB\n"}, "9.22 MB available"),
        ({"/proc/meminfo": "MemAvailable: 9000 kB\nSwapFree: 900000 kB\n"}, ""),
        ({"/proc/self/cgroup": "nonsense\n::\n0::" + "/x" * 3000 + "\n"}, ""),
        ({}, ""),
    ],
)
def test_what_the_kernel_tells(large: Path, tmp_path: Path, files: dict[str, str], message: str) -> None:
    done = call_in_root(tmp_path, large, *RUN, files=files)
    if message:
        assert done.returncode == 3 and message in done.stderr, done.stderr
        assert call_in_root(tmp_path, large, *RUN, "--no-memory-check").returncode == 0
        assert call_in_root(tmp_path, large, "info").returncode == 0
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_limits_of_the_process(large: Path, kind: int) -> None:
    for megabytes, code in ((14, 3), (60, 0)):
        bytes_ = megabytes * 1_000_000
        preparation = functools.partial(resource.setrlimit, kind, (bytes_, bytes_))
        done = subprocess.run([large, *RUN], capture_output=True, text=True, preexec_fn=preparation)
        assert done.returncode == code, done.stderr
        assert not code or "RLIMIT" in done.stderr


def test_more_threads_need_more(large: Path, tmp_path: Path) -> None:
    """The prediction follows the number of threads."""
    files = {"/proc/meminfo": f"MemAvailable: {(_predicted(large) + 60_000) // 1024} kB\n"}
    assert call_in_root(tmp_path, large, *RUN, files=files).returncode == 0
    done = call_in_root(tmp_path, large, "run", "--input", "zeros", "--threads", "32")
    assert done.returncode == 3 and "with 32 thread(s)" in done.stderr


def test_prediction_by_part(large: Path) -> None:
    """Within 5 % in total on this machine, and the weights to the page."""
    words = ("bench", "--threads", "1", "--runs", "3", "--json")
    memory = json.loads(call(large, *words).stdout)["memory"]
    assert abs(memory["ram_error_percent"]) <= 5
    assert memory["ram_error_percent"] == pytest.approx(
        100 * (memory["ram_predicted_bytes"] / memory["rss_peak_bytes"] - 1), abs=0.01
    )
    parts = {p["part"]: p for p in memory["parts"]}
    assert sum(p["predicted_bytes"] for p in parts.values()) == memory["ram_predicted_bytes"]
    assert sum(p["measured_bytes"] for p in parts.values()) == memory["rss_bytes"]
    weights = parts["weights and plan tables"]
    assert weights["measured_bytes"] == pytest.approx(weights["predicted_bytes"], abs=20_000)
    assert "  weights and plan tables" in call(large, *words[:-1]).stdout.decode()


def test_the_launcher_knows_every_predicted_part(large: Path) -> None:
    """Names and the constant that launcher/ram.c shares with edgerun_packaging/footprint.py."""
    source = (LAUNCHER / "ram.c").read_text()
    for part in json.loads(call(large, "info", "--json").stdout)["manifest"]["ram"]:
        assert f'{{"{part["part"]}", ' in source
    assert f"THREAD_STACK_BYTES ({THREAD_STACK_BYTES >> 10} << 10)" in source


def test_in_a_prison(model: Path) -> None:
    """Read-only root, no /proc, no /sys, no network, 16 MB of /tmp without execution."""
    shape = ("--shape", "image=2,1,8,8")
    for words in (
        ("selftest",),
        ("info",),
        ("run", "--input", "random", *shape, "--output-dir", "/tmp/out"),
        ("run", "--input", "random", *shape, "--output", "/tmp/out.npz"),
        ("bench", "--runs", "2", *shape),
    ):
        done = call_in_prison(model, *words)
        assert done.returncode == 0, (words, done.stderr)
    assert "not measured (no /proc)" in done.stdout
    done = call_in_prison(model, "run", "--input", "random", *shape, "--output-dir", "/out")
    assert done.returncode == 5 and "Read-only" in done.stderr
