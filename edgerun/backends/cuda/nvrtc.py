"""CUDA C++ to PTX by NVIDIA's run-time compiler (PyPI `nvidia-cuda-nvrtc-cu12`, or that of an installed toolkit).

PTX is kept in the user's cache under the hash of its source, so a board without the compiler can use the cache of
another machine. With NVRTC 12 the PTX version is lowered so that drivers from CUDA 11.4 on take it: nothing newer is
used. NVRTC 13 knows no GPU before Turing, and its PTX needs a driver as new as itself.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
from functools import cache
from pathlib import Path

from edgerun.errors import BackendUnavailable

ARCHITECTURES = {12: "compute_70", 13: "compute_75"}
"""NVRTC's version -> virtual architecture, which a GPU's driver compiles for itself: Volta (Jetson Xavier), Turing."""
REMEDY = "pip install 'edgerun[cuda]'"
PTX_VERSION = b".version 7.4"


def folder() -> Path:
    """Where PTX is kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "edgerun" / "ptx"


def compiled(source: str) -> bytes:
    """PTX of a translated kernel.

    Raises BackendUnavailable when it is not in the cache and there is no compiler, or with the compiler's message.
    """
    key = hashlib.sha256(source.encode()).hexdigest()[:40]
    path = folder() / f"{key}.ptx"
    if path.exists():
        return path.read_bytes()
    ptx = _compile(source)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(ptx)
    partial.replace(path)
    return ptx


@cache
def library() -> ctypes.CDLL:
    """The compiler. Raises BackendUnavailable."""
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or []) if spec else []
    installed = sorted((p for place in places for p in Path(place).glob("**/libnvrtc.so.1?")), key=lambda p: p.suffix)
    names = [*map(str, installed), "libnvrtc.so.12", "libnvrtc.so.13"]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise BackendUnavailable("CUDA kernels must be compiled, and NVRTC is not installed", hint=REMEDY)


def _compile(source: str) -> bytes:
    lib, program, size = library(), ctypes.c_void_p(), ctypes.c_size_t()
    major, minor = ctypes.c_int(), ctypes.c_int()
    lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    architecture = ARCHITECTURES[min(major.value, max(ARCHITECTURES))]
    lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", b"--fmad=true", b"-default-device"]
    status = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    if status:
        lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        lib.nvrtcGetProgramLog(program, log)
        raise BackendUnavailable(f"NVRTC refuses a kernel: {log.value.decode()[:2000]}")
    lib.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetPTX(program, ptx)
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    text = ptx.raw.rstrip(b"\0") + b"\0"
    return re.sub(rb"\.version \d+\.\d+", PTX_VERSION, text, count=1) if major.value == 12 else text
