"""Run plans for other architectures under qemu-user."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from edgerun.backends.native.binding import host_arch
from edgerun.plan import PlanReader
from edgerun_packaging.zig import build_executable

SOURCE = Path(__file__).parent / "csrc" / "run_plan.c"
CPUS = {
    "neon": "cortex-a72",
    "neon-dotprod": "max",
    "neon-i8mm": "max",
    "neon:armv7": "cortex-a8",
    "neon-vfpv4": "cortex-a15",
    "rv64gc": "rv64",
}
"""The CPU that qemu imitates for each ISA level; one that lacks stronger levels where qemu has it."""


@cache
def runner(arch: str) -> Path:
    """The executable that runs plans of an architecture."""
    path = Path(tempfile.mkdtemp(prefix="edgerun-run-")) / f"run-{arch}"
    build_executable(arch, [SOURCE], path)
    return path


def emulator(arch: str, isa: str = "") -> list[str]:
    """The command prefix. Skips the test where qemu is missing; in CI that is a failure."""
    if arch == host_arch():
        return []
    name = "qemu-" + {"armv7": "arm"}.get(arch, arch)
    found = shutil.which(name) or shutil.which(f"{name}-static")
    if found is None:
        message = f"{name} is not installed (apt install qemu-user)"
        if os.environ.get("EDGERUN_CI"):
            pytest.fail(message)
        pytest.skip(message)
    cpu = CPUS.get(f"{isa}:{arch}") or CPUS.get(isa)
    return [found, *(["-cpu", cpu] if cpu else [])]


def run_plan(
    plan: bytes, inputs: Mapping[str, np.ndarray], *, isa: str = "", threads: int = 1
) -> dict[str, np.ndarray]:
    """Run a plan on its own architecture: arrays by input name to arrays by output name.

    `isa` names the level; empty is the best that the emulated CPU has. Raises AssertionError with the program's
    message when it fails.
    """
    reader = PlanReader(plan)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "plan").write_bytes(plan)
        with (folder / "in").open("wb") as file:
            for _, port in reader.inputs:
                array = np.asarray(inputs[port], order="C")
                file.write(struct.pack(f"<{array.ndim + 1}q", array.ndim, *array.shape) + array.tobytes())
        command = [*emulator(reader.arch, isa), str(runner(reader.arch))]
        files = [str(folder / f) for f in ("plan", "in", "out")]
        done = subprocess.run([*command, *files, str(threads), *([isa] if isa else [])], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert not isa or done.stdout.strip() == isa
        return _read(reader, (folder / "out").read_bytes())


def _read(reader: PlanReader, data: bytes) -> dict[str, np.ndarray]:
    results, at = {}, 0
    for number, name in reader.outputs:
        (rank,) = struct.unpack_from("<q", data, at)
        shape = struct.unpack_from(f"<{rank}q", data, at + 8)
        at += 8 * (rank + 1)
        dtype = reader.tensors[number].dtype.numpy
        count = int(np.prod(shape, dtype=np.int64))
        results[name] = np.frombuffer(data, dtype, count, at).reshape(shape)
        at += count * dtype.itemsize
    assert at == len(data)
    return results
