"""`edgerun doctor`: what this installation can do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import shutil
import sys
from typing import Any

import click

from edgerun.cli.options import common
from edgerun.report import Column, Report, Table

_PACKAGES = {
    "numpy": "the NumPy backend",
    "onnx": "importing ONNX (pip install 'edgerun[host]')",
    "safetensors": "importing checkpoints (pip install 'edgerun[host]')",
    "ml_dtypes": "bfloat16 and 8-bit floats (pip install 'edgerun[host]')",
    "ziglang": "building stubs and the native library (pip install 'edgerun[host]')",
    "wgpu": "GPUs by Vulkan, Metal and D3D12 (pip install 'edgerun[wgpu]')",
    "onnxruntime": "`verify --against onnxruntime` (pip install 'edgerun[bench]')",
    "PyInstaller": "engine python (pip install 'edgerun[python-engine]')",
    "PIL": "images as inputs (pip install pillow)",
}
_QEMU = {"aarch64": "qemu-aarch64", "armv7": "qemu-arm", "riscv64": "qemu-riscv64"}


@click.command("doctor")
@common
def command() -> tuple[Report, int]:
    """Say what this installation can do, and what is missing.

    \b
    $ edgerun doctor
    """
    rows = [_row("python", True, platform.python_version(), sys.executable)]
    rows += [_package(name, purpose) for name, purpose in _PACKAGES.items()]
    rows.append(_native())
    rows += _stubs()
    rows += _adapters()
    rows.append(_cuda())
    for arch, tool in _QEMU.items():
        found = shutil.which(tool) or shutil.which(f"{tool}-static")
        rows.append(_row(tool, bool(found), found or "", f"running {arch} files here (apt install qemu-user)"))
    essential = all(r["ok"] for r in rows if r["item"] in ("numpy", "native runtime"))
    columns = [
        Column("item", left=True),
        Column("ok", show=lambda v: "yes" if v else "NO", left=True),
        Column("found", left=True),
        Column("purpose", left=True),
    ]
    return Report(rows, [Table(rows, columns)]), 0 if essential else 3


def _row(item: str, ok: bool, found: str, purpose: str) -> dict[str, Any]:
    return {"item": item, "ok": ok, "found": found, "purpose": purpose}


def _package(name: str, purpose: str) -> dict[str, Any]:
    if importlib.util.find_spec(name) is None:
        return _row(name, False, "", purpose)
    try:
        version = importlib.metadata.version({"PIL": "pillow"}.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        version = "?"
    return _row(name, True, version, purpose)


def _native() -> dict[str, Any]:
    from edgerun.errors import EdgerunError

    try:
        from edgerun.backends.native.binding import library

        return _row("native runtime", True, str(library()._name), "the native backend on this machine")
    except (EdgerunError, ImportError, OSError) as e:
        return _row("native runtime", False, str(e), "the native backend on this machine")


def _adapters() -> list[dict[str, Any]]:
    """Every GPU that wgpu reports, and why it is or is not used."""
    from edgerun.backends.wgpu import adapters
    from edgerun.errors import BackendUnavailable

    try:
        found = adapters.listed()
    except BackendUnavailable as e:
        return [_row("GPU (wgpu)", False, str(e), "--backend wgpu")]
    if not found:
        return [_row("GPU (wgpu)", False, f"the system reports no adapter ({adapters.REMEDY})", "--backend wgpu")]
    return [
        _row(f"GPU {k}", not a.refusal, f"{a.name}, {a.kind}, {a.api}", a.refusal or "--backend wgpu can use it")
        for k, a in enumerate(found)
    ]


def _cuda() -> dict[str, Any]:
    """The first CUDA device, and what is missing to use it."""
    from edgerun.backends.cuda import driver, nvrtc
    from edgerun.errors import BackendUnavailable

    try:
        name = driver.probe()
    except BackendUnavailable as e:
        return _row("GPU (CUDA)", False, e.message, f"--backend cuda ({driver.REMEDY})")
    try:
        nvrtc.library()
    except BackendUnavailable:
        return _row("GPU (CUDA)", True, name, f"--backend cuda, for kernels in {nvrtc.folder()} ({nvrtc.REMEDY})")
    return _row("GPU (CUDA)", True, name, "--backend cuda can use it")


def _stubs() -> list[dict[str, Any]]:
    if importlib.util.find_spec("edgerun_packaging") is None:
        return [_row("stubs", False, "", "packing (pip install 'edgerun[host]')")]
    from edgerun_packaging.stubs import available

    return [
        _row(f"stub {arch}", bool(path), str(path or ""), f"packing for {arch}") for arch, path in available().items()
    ]
