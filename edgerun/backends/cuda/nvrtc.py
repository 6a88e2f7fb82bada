"""CUDA C++ to PTX by NVIDIA's run-time compiler (PyPI `nvidia-cuda-nvrtc-cu12`, or that of an installed toolkit).

PTX is kept in the user's cache under the hash of its source, so a board without the compiler can use the cache of
another machine. The PTX version is lowered so that drivers from CUDA 11.4 on take it: nothing newer is used.
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

ARCHITECTURE = "compute_70"
"""Virtual architecture: every GPU since Volta (Jetson Xavier and newer) compiles it for itself when it is loaded."""
PTX_VERSION = b".version 7.4"


def folder() -> Path:
    """Where PTX is kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "edgerun" / "ptx"


def compiled(source: str) -> bytes:
    """PTX of a translated kernel.

    Raises BackendUnavailable when it is not in the cache and there is no compiler, or with the compiler's message.
    """
    key = hashlib.sha256(f"{ARCHITECTURE} {source}".encode()).hexdigest()[:40]
    path = folder() / f"{key}.ptx"
    if path.exists():
        return path.read_bytes()
    ptx = re.sub(rb"\.version \d+\.\d+", PTX_VERSION, _compile(source), count=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(ptx)
    partial.replace(path)
    return ptx


@cache
def library() -> ctypes.CDLL:
    """The compiler. Raises BackendUnavailable."""
    names = ["libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so"]
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or []) if spec else []:
        names += [str(p) for p in sorted(Path(place).glob("**/libnvrtc.so.1?"))]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise BackendUnavailable(
        "CUDA kernels must be compiled, and NVRTC is not installed", hint="pip install nvidia-cuda-nvrtc-cu12"
    )


def _compile(source: str) -> bytes:
    lib, program, size = library(), ctypes.c_void_p(), ctypes.c_size_t()
    lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    options = [f"--gpu-architecture={ARCHITECTURE}".encode(), b"--std=c++17", b"--fmad=true", b"-default-device"]
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
    return ptx.raw.rstrip(b"\0") + b"\0"
