"""The thread pool: every item once, under a thread sanitizer, with sleeping workers, limits, fork and restarts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native import sanitize


def _run(program: Path, *arguments: str) -> None:
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout == "ok\n", done.stdout + done.stderr[-3000:]


@pytest.mark.parametrize("threads", ["2", "3", "8"])
def test_no_data_race(threads: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    program = tmp_path_factory.mktemp("pool") / "pool"
    sanitize.thread_sanitized_pool(program)
    _run(program, threads, "4000")


def test_as_shipped(tmp_path: Path) -> None:
    sanitize.plain_pool(tmp_path / "pool")
    for threads in ("2", "5"):
        _run(tmp_path / "pool", threads, "30000")
