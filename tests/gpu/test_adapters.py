"""Machines without a GPU, with a pretended one, and with a broken driver: message and exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgerun.backends.wgpu import adapters
from edgerun.errors import BackendUnavailable

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def edgerun(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-m", "edgerun", *arguments]
    env = {**os.environ, "PYTHONPATH": paths, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env)


RUN = ("run", str(DIGITS), "--input", "random", "--shape", "image=1,1,8,8", "--backend", "wgpu")


def test_only_software() -> None:
    if any(not a.refusal for a in adapters.listed()):
        pytest.skip("this machine has a GPU")
    done = edgerun(*RUN)
    assert done.returncode == 3
    assert "this is a program on the CPU" in done.stderr
    assert done.stderr.count("\n") == 1
    assert edgerun(*RUN, "--allow-software-adapter").returncode == 0


@pytest.mark.parametrize("content", [None, "{", '{"file_format_version": "1.0.0", "ICD": {"library_path": "/no.so"}}'])
def test_no_driver_and_broken_driver(content: str | None, tmp_path: Path) -> None:
    driver = tmp_path / "icd.json"
    if content is not None:
        driver.write_text(content)
    done = edgerun(*RUN, "--allow-software-adapter", VK_DRIVER_FILES=str(driver), VK_ICD_FILENAMES=str(driver))
    assert done.returncode == 3
    assert "there is no GPU that wgpu can use: the system reports no adapter" in done.stderr


def test_options_of_another_backend() -> None:
    done = edgerun("run", str(DIGITS), "--input", "random", "--split")
    assert done.returncode == 2


def test_hanging_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "PROBE_SECONDS", 0.01)
    with pytest.raises(BackendUnavailable, match="a driver hangs"):
        adapters.listed()


def test_crashing_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho driver: no such device >&2\nkill -SEGV $$\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(BackendUnavailable, match="no such device"):
        adapters.listed()


def test_judgement() -> None:
    gpu = adapters.judge("A", "DiscreteGPU", "Vulkan", "", allow_software=False)
    software = adapters.judge("B", "CPU", "Vulkan", "", allow_software=False)
    assert not gpu.refusal
    assert "on the CPU" in software.refusal
    assert not adapters.judge("B", "CPU", "Vulkan", "", allow_software=True).refusal
    assert "OpenGL" in adapters.judge("C", "IntegratedGPU", "OpenGL", "", allow_software=True).refusal


def test_doctor_lists_adapters() -> None:
    done = edgerun("doctor")
    assert "GPU 0" in done.stdout
