"""Mutated plans never make the runtime crash, hang or touch memory that is not its own."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgerun.backends.native.backend import build_plan
from edgerun.backends.native.binding import host_arch
from edgerun.session import load_graph
from tests.native import sanitize

SECONDS = 8
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def _fuzz(program: Path, plans: list[Path], seed: int, rounds_at_least: int) -> None:
    command = [str(program), str(seed), str(SECONDS), *map(str, plans)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 60)
    last = done.stderr.replace("\n", "\r").split("\r")[-1]
    assert done.returncode == 0, f"seed {seed}, round {last}: {done.stdout}{done.stderr[-3000:]}"
    counts = re.search(r"(\d+) rounds, (\d+) accepted", done.stdout)
    assert counts and int(counts.group(1)) > rounds_at_least and int(counts.group(2)) > rounds_at_least // 20


def test_with_all_kernels_and_guard_pages(tmp_path: Path) -> None:
    sanitize.fuzzer(tmp_path / "fuzz")
    plans = sanitize.copy_plans(tmp_path)
    model = tmp_path / "digits.plan"
    model.write_bytes(build_plan(load_graph(DIGITS, dims={"batch": (1, 4)}), host_arch()))
    _fuzz(tmp_path / "fuzz", [*plans, model], seed=1, rounds_at_least=1000)


def test_under_the_address_sanitizer(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: the address sanitizer comes with it")
    sanitize.gcc_fuzzer(tmp_path / "fuzz")
    _fuzz(tmp_path / "fuzz", sanitize.copy_plans(tmp_path), seed=2, rounds_at_least=500)
