"""Predicted size and RAM of a file of engine python, by named part.

The RAM model is the peak resident set of the process that computes (the bootloader's waiting parent needs another
1 MB). Its constants were fitted to VmHWM of packed files on Linux 6 (x86-64, 4 KiB pages), CPython 3.11, NumPy 2.4.
"""

from __future__ import annotations

from pathlib import Path

from edgerun_packaging.budgets import Footprint, Part, Remedy
from edgerun_packaging.freeze.contents import NATIVE_LIBRARY, Contents

INTERPRETER_BYTES = 13_500_000
"""CPython with its standard library's modules loaded: heap and touched pages."""
NUMPY_BYTES = 13_000_000
"""NumPy, ctypes and our modules: heap and touched pages."""
FULL_BLAS_BYTES = 6_000_000
"""OpenBLAS on one thread: code, tables and its buffers."""
NATIVE_BYTES = 1_500_000
"""The native library and the tables of the plan as Python objects."""
WGPU_BYTES = 60_000_000
"""The wgpu library with its headers parsed, and a Vulkan driver; drivers differ much."""
IO_COPIES = 6
"""An input as Python handles it: the array, its copy for the model, and what drawing random values takes."""
THREAD_STACK_BYTES = 16 * 1024


def predict(
    contents: Contents,
    front: int,
    padding: int,
    archive: int,
    modules: int,
    *,
    payload: int,
    weights: int,
    work: int,
    io: int,
    threads: int,
    scratch: int,
) -> Footprint:
    """All in bytes. `work`: arena, or activations on NumPy; `io`: inputs and outputs; `payload` with its weights."""
    native = any(name.startswith(NATIVE_LIBRARY) for name in contents.files)
    groups = {"Python": 0, "NumPy": 0, "native kernels": 0, "wgpu": 0, "other libraries": 0}
    for name, path in contents.files.items():
        groups[_group(name)] += path.stat().st_size
    wgpu = groups["wgpu"]
    total = sum(groups.values()) or 1
    packed = archive - modules
    size = [
        Part("front and bootloader", front),
        Part("padding", padding),
        Part("modules (compressed)", modules),
        *(Part(f"{name} (compressed)", packed * size // total) for name, size in groups.items() if size),
        Part("graph, manifest, golden vectors", payload - weights),
        Part("weights", weights),
    ]
    size.append(Part("rounding", front + padding + archive + payload - sum(p.bytes for p in size)))
    ram = [
        Part("CPython", INTERPRETER_BYTES),
        Part("NumPy and modules", NUMPY_BYTES),
        Part("native kernels" if native else "BLAS", NATIVE_BYTES if native else FULL_BLAS_BYTES),
        *([Part("wgpu and the driver", WGPU_BYTES)] if wgpu else []),
        Part("graph", payload - weights),
        Part("weights", weights),
        Part("arena" if native else "activations", work),
        Part("inputs and outputs", IO_COPIES * io),
        Part("thread scratch and stacks", threads * scratch + (threads - 1) * THREAD_STACK_BYTES),
    ]
    return Footprint([p for p in size if p.bytes], ram)


def remedies(predicted: Footprint) -> list[Remedy]:
    """What would help, with estimates of the gain: nothing is frozen again to find out."""
    file = {p.part: p.bytes for p in predicted.size}
    use = {p.part: p.bytes for p in predicted.ram}
    weights, native = file.get("weights", 0), "native kernels" in use
    found = []
    if native:
        smaller = predicted.size_bytes - weights - 1_200_000  # the native stub, about
        without = sum(use[p] for p in ("CPython", "NumPy and modules"))
        found.append(
            Remedy("engine native (--engine native), when no Python is needed", smaller, without, planned=False)
        )
    saved = weights * 3 // 4
    found.append(Remedy("float weights quantised to int8 before packing", saved, saved, planned=False))
    work = use.get("arena", use.get("activations", 0)) // 2
    action = "half the input, or half the bound of a free dimension (--shape, --dim)"
    found.append(Remedy(action, 0, work, planned=False))
    return found


def _group(name: str) -> str:
    if name.startswith(NATIVE_LIBRARY):
        return "native kernels"
    if name.startswith("wgpu"):
        return "wgpu"
    if name.startswith("numpy") or "openblas" in name or "gfortran" in name:
        return "NumPy"
    return "Python" if "python" in Path(name).parts[0] else "other libraries"
