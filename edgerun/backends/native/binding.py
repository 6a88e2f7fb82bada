"""The C runtime through ctypes: one class that holds a loaded plan."""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import os
import platform
import sys
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from edgerun import machine
from edgerun.dtypes import DType, from_code
from edgerun.errors import BackendUnavailable, EdgerunError, PlanError, ShapeError, UnsupportedError, UsageError

_OK, _BAD_PLAN, _NO_MEMORY, _BAD_ARGUMENT, _UNSUPPORTED, _FAILED = range(6)
MAX_THREADS = 64


class _IoInfo(ctypes.Structure):
    _fields_ = (
        ("name", c_char_p),
        ("dtype", c_int32),
        ("rank", c_int32),
        ("dim", c_int64 * 8),
        ("bytes", c_uint64),
    )


_MODEL, _ERROR = c_void_p, POINTER(c_char_p)
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "er_load": (c_int, (c_void_p, c_size_t, c_int, POINTER(_MODEL), _ERROR)),
    "er_free": (None, (_MODEL,)),
    "er_input_count": (c_int, (_MODEL,)),
    "er_output_count": (c_int, (_MODEL,)),
    "er_input_info": (c_int, (_MODEL, c_int, POINTER(_IoInfo))),
    "er_output_info": (c_int, (_MODEL, c_int, POINTER(_IoInfo))),
    "er_set_input_shape": (c_int, (_MODEL, c_int, POINTER(c_int64), c_int)),
    "er_bind": (c_int, (_MODEL, _ERROR)),
    "er_input_data": (c_void_p, (_MODEL, c_int)),
    "er_output_data": (c_void_p, (_MODEL, c_int)),
    "er_run": (c_int, (_MODEL, _ERROR)),
    "er_set_threads": (c_int, (_MODEL, c_int)),
    "er_threads": (c_int, (_MODEL,)),
    "er_isa": (c_char_p, (_MODEL,)),
    "er_set_isa": (c_int, (_MODEL, c_char_p)),
    "er_node_count": (c_int, (_MODEL,)),
    "er_node_name": (c_char_p, (_MODEL, c_int)),
    "er_node_kernel": (c_char_p, (_MODEL, c_int)),
    "er_node_seconds": (c_double, (_MODEL, c_int)),
    "er_node_ran": (c_int, (_MODEL, c_int)),
    "er_node_output_info": (c_int, (_MODEL, c_int, c_int, POINTER(_IoInfo))),
    "er_profile": (None, (_MODEL, c_int)),
    "er_watch": (c_int, (_MODEL, c_int, c_int, c_void_p, c_size_t)),
    "er_arena_bytes": (c_uint64, (_MODEL,)),
    "er_plan_weight_bytes": (c_uint64, (_MODEL,)),
    "er_fnv1a_words": (c_uint64, (c_void_p, c_size_t)),
    "er_level_name": (c_char_p, (c_int,)),
    "er_level_usable": (c_int, (c_int,)),
    "er_kernel_name": (c_char_p, (c_int,)),
    "er_version": (c_char_p, ()),
}


# -- the library


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The shared library: the one beside this package, else one compiled now into the user's cache.

    Where the compiler is installed the library is compiled anew whenever a source has changed. EDGERUN_LIBRARY names
    another file. Raises BackendUnavailable with the remedy.
    """
    path = _find_library()
    try:
        lib = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as e:
        raise BackendUnavailable(
            f"cannot load {path}: {e}", hint="build it again: python -m edgerun_packaging.zig"
        ) from e
    return lib


def host_arch() -> str:
    """This machine's architecture, by our name. Raises BackendUnavailable where the runtime does not run."""
    arch = machine.host_arch()
    if arch not in ("x86_64", "aarch64", "armv7", "riscv64") or sys.platform != "linux":
        raise BackendUnavailable(
            f"the native backend does not run on {platform.machine()} {sys.platform}", hint="use --backend numpy"
        )
    return arch


def _find_library() -> Path:
    if os.environ.get("EDGERUN_LIBRARY"):
        return Path(os.environ["EDGERUN_LIBRARY"])
    arch = host_arch()
    packaged = Path(__file__).parent / "lib" / f"libedgerun-{arch}.so"
    if importlib.util.find_spec("edgerun_packaging") and importlib.util.find_spec("ziglang"):
        from edgerun_packaging.zig import current_library

        return current_library(packaged)
    if packaged.exists():
        return packaged
    raise BackendUnavailable(
        f"the native library for {arch} is not built, and the compiler is not installed",
        hint="pip install 'edgerun[host]', or use --backend numpy",
    )


def checksum_words(data: memoryview) -> int | None:
    """FNV-1a over 8-byte words, or None where the library is missing."""
    try:
        lib = library()
    except BackendUnavailable:
        return None
    array = np.frombuffer(data, np.uint8)
    return int(lib.er_fnv1a_words(array.ctypes.data, array.size))


def levels() -> list[str]:
    """Names of the ISA levels that this machine can run, weakest first."""
    lib, found = library(), []
    index = 0
    while (name := lib.er_level_name(index)) is not None:
        if lib.er_level_usable(index):
            found.append(name.decode())
        index += 1
    return found


# -- models


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output. A dim of -1 is free until the model is bound."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node of the plan: the source node's name and the kernel that runs it."""

    name: str
    kernel: str


def _raise(status: int, error: bytes | None) -> None:
    text = (error or b"unknown reason").decode(errors="replace")
    if status == _BAD_PLAN:
        raise PlanError(f"the plan is not valid: {text}")
    if status == _BAD_ARGUMENT:
        raise UsageError(text)
    if status == _UNSUPPORTED:
        raise UnsupportedError(text)
    if status == _FAILED:
        raise ShapeError(text)
    raise EdgerunError(text)


class _AlignedBytes:
    """A plan at a 64-byte aligned address, kept alive; copied only when it is not aligned already."""

    def __init__(self, plan: bytes | bytearray | memoryview | mmap.mmap) -> None:
        array = np.frombuffer(plan, np.uint8)
        if array.ctypes.data % 64:
            pages = mmap.mmap(-1, max(array.size, 1))
            copy = np.frombuffer(pages, np.uint8)[: array.size]
            copy[:] = array
            array = copy
        self.array = array


class NativeModel:
    """A plan loaded by the C runtime. Not thread safe.

    `threads` 0 means one for each big core. Raises PlanError for an invalid plan, UnsupportedError for another
    architecture's, UsageError for bad arguments, BackendUnavailable without the library.
    """

    def __init__(self, plan: bytes | bytearray | memoryview | mmap.mmap, threads: int = 1) -> None:
        self._lib = library()
        self._model = c_void_p()
        self._input_arrays: list[np.ndarray] = []
        self._output_arrays: list[np.ndarray] = []
        self._plan = _AlignedBytes(plan)
        error = c_char_p()
        if not 0 <= threads <= MAX_THREADS:
            raise UsageError(f"{threads} threads; between 1 and {MAX_THREADS} are possible")
        array = self._plan.array
        status = self._lib.er_load(array.ctypes.data, array.size, threads, byref(self._model), byref(error))
        if status:
            _raise(status, error.value)
        self.inputs = [self._port(self._lib.er_input_info, i) for i in range(self._lib.er_input_count(self._model))]
        self.outputs = [self._port(self._lib.er_output_info, i) for i in range(self._lib.er_output_count(self._model))]
        self._sizes_follow_data = any(n.kernel == "bind_sizes" for n in self.nodes)
        self._bound_shapes: list[tuple[int, ...]] | None = None
        if all(d >= 0 for p in self.inputs for d in p.shape):
            self._map_buffers()

    def close(self) -> None:
        """Free the arena and the threads. Later calls raise UsageError."""
        if self._model:
            self._lib.er_free(self._model)
            self._model = c_void_p()
            self._input_arrays, self._output_arrays = [], []

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self.close()

    # -- shapes
    def _port(self, query: Any, index: int) -> Port:
        info = _IoInfo()
        query(self._model, index, byref(info))
        return Port((info.name or b"").decode(errors="replace"), from_code(info.dtype), tuple(info.dim[: info.rank]))

    def _map_buffers(self) -> None:
        """NumPy arrays over the input and output memory, for the shapes bound now."""
        lib, model = self._lib, self._model
        ins = [self._port(lib.er_input_info, i) for i in range(len(self.inputs))]
        self._input_arrays = [_array_at(lib.er_input_data(model, i), p) for i, p in enumerate(ins)]
        self._output_arrays = [] if self._sizes_follow_data else self._current_outputs()
        self._bound_shapes = [p.shape for p in ins]

    def _current_outputs(self) -> list[np.ndarray]:
        """NumPy arrays over the output memory, for the sizes that outputs have now."""
        lib = self._lib
        outs = [self._port(lib.er_output_info, i) for i in range(len(self.outputs))]
        return [_array_at(lib.er_output_data(self._model, i), p) for i, p in enumerate(outs)]

    def bind(self, shapes: list[tuple[int, ...]]) -> None:
        """Set the shapes of all inputs. Raises UsageError when they do not fit, PlanError when a kernel refuses."""
        self._check_open()
        self._bound_shapes = None
        for i, shape in enumerate(shapes):
            port = self.inputs[i]
            if len(shape) != len(port.shape) or self._lib.er_set_input_shape(
                self._model, i, (c_int64 * max(len(shape), 1))(*shape), len(shape)
            ):
                wanted = "[" + ", ".join("?" if d < 0 else str(d) for d in port.shape) + "]"
                raise UsageError(f"input {port.name}: {port.dtype.short}{wanted} got an array of shape {shape}")
        error = c_char_p()
        status = self._lib.er_bind(self._model, byref(error))
        if status:
            _raise(status, error.value)
        self._map_buffers()

    # -- running
    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Run once: arrays by input name to arrays (copies) by output name.

        Raises UsageError for missing, unknown, mistyped or misshaped inputs, ShapeError when their values lead into a
        branch that cannot run.
        """
        self._check_open()
        arrays = self._take_inputs(inputs)
        shapes = [a.shape for a in arrays]
        if shapes != self._bound_shapes:
            self.bind(shapes)
        for buffer, array in zip(self._input_arrays, arrays, strict=True):
            np.copyto(buffer, array)
        self._run()
        outputs = self._current_outputs() if self._sizes_follow_data else self._output_arrays
        return {p.name: a.copy() for p, a in zip(self.outputs, outputs, strict=True)}

    def _take_inputs(self, inputs: Mapping[str, Any]) -> list[np.ndarray]:
        arrays = []
        for port in self.inputs:
            if port.name not in inputs:
                raise UsageError(f"input {port.name!r} is missing")
            array = np.asarray(inputs[port.name])
            if array.dtype != port.dtype.numpy:
                raise UsageError(f"input {port.name!r} takes {port.dtype.short}, not {array.dtype}")
            arrays.append(array)
        if len(inputs) != len(arrays):
            names = [p.name for p in self.inputs]
            extra = next(k for k in inputs if k not in names)
            raise UsageError(f"there is no input {extra!r}", hint="the model's inputs are: " + ", ".join(names))
        return arrays

    def _run(self) -> None:
        error = c_char_p()
        status = self._lib.er_run(self._model, byref(error))
        if status:
            _raise(status, error.value)

    def _check_open(self) -> None:
        if not self._model:
            raise UsageError("the model is closed")

    # -- settings
    @property
    def threads(self) -> int:
        """How many threads work, the caller included."""
        self._check_open()
        return self._lib.er_threads(self._model)

    @threads.setter
    def threads(self, count: int) -> None:
        self._check_open()
        if self._lib.er_set_threads(self._model, count):
            raise UsageError(f"cannot run with {count} threads", hint=f"between 1 and {MAX_THREADS} are possible")

    @property
    def isa(self) -> str:
        """The ISA level in use."""
        self._check_open()
        return self._lib.er_isa(self._model).decode()

    @isa.setter
    def isa(self, name: str) -> None:
        self._check_open()
        if self._lib.er_set_isa(self._model, name.encode()):
            raise UsageError(f"this CPU has no level {name!r}", hint="it has: " + ", ".join(levels()))

    @property
    def arena_bytes(self) -> int:
        """Activations and scratch, without the scratch of each thread."""
        self._check_open()
        return self._lib.er_arena_bytes(self._model)

    @property
    def weight_bytes(self) -> int:
        self._check_open()
        return self._lib.er_plan_weight_bytes(self._model)

    # -- layers
    @property
    def nodes(self) -> list[NodeInfo]:
        """The kernel calls, in execution order."""
        self._check_open()
        lib, model = self._lib, self._model
        return [
            NodeInfo(lib.er_node_name(model, i).decode(errors="replace"), lib.er_node_kernel(model, i).decode())
            for i in range(lib.er_node_count(model))
        ]

    def node_output(self, index: int, k: int = 0) -> Port | None:
        """Name, type and current shape of output `k` of a node; None when there is no such output."""
        self._check_open()
        info = _IoInfo()
        if self._lib.er_node_output_info(self._model, index, k, byref(info)):
            return None
        return Port((info.name or b"").decode(errors="replace"), from_code(info.dtype), tuple(info.dim[: info.rank]))

    def profile(self, inputs: Mapping[str, Any], runs: int = 20) -> list[dict[str, Any]]:
        """Mean time of every node over `runs` runs: rows of index, node, kernel, us (microseconds), percent.

        Nodes of a branch that is not taken have 0.
        """
        self.run(inputs)
        nodes = self.nodes
        seconds = np.zeros(len(nodes))
        self._lib.er_profile(self._model, 1)
        try:
            for _ in range(runs):
                self.run(inputs)
                seconds += [self._lib.er_node_seconds(self._model, i) for i in range(len(nodes))]
        finally:
            self._lib.er_profile(self._model, 0)
        us = seconds / runs * 1e6
        total = float(us.sum()) or 1.0
        return [
            {"index": i, "node": n.name, "kernel": n.kernel, "us": float(t), "percent": 100 * float(t) / total}
            for i, (n, t) in enumerate(zip(nodes, us, strict=True))
        ]

    def watch(self, inputs: Mapping[str, Any], index: int, k: int = 0) -> np.ndarray:
        """Output `k` of node `index`, copied right after that node ran. Runs the model once.

        Raises UsageError when there is no such output, or when the node lies in a branch that is not taken.
        """
        found = self._watch(inputs, index, k)
        if found is None:
            raise UsageError(f"node {index} did not run: it lies in a branch that is not taken with these inputs")
        return found

    def _watch(self, inputs: Mapping[str, Any], index: int, k: int) -> np.ndarray | None:
        """See watch; None when the node did not run."""
        self._check_open()
        shapes = [a.shape for a in self._take_inputs(inputs)]
        if shapes != self._bound_shapes:
            self.bind(shapes)
        port = self.node_output(index, k)
        if port is None:
            raise UsageError(f"node {index} has no output {k}")
        if self._sizes_follow_data:  # one run tells the size
            self.run(inputs)
            port = self.node_output(index, k)
            if port is None or any(d < 0 for d in port.shape):
                return None
        result = np.empty(port.shape, port.dtype.numpy)
        room = np.empty(max(result.nbytes, 1), np.uint8)
        self._lib.er_watch(self._model, index, k, room.ctypes.data, room.size)
        try:
            self.run(inputs)
        finally:
            self._lib.er_watch(self._model, 0, 0, None, 0)
        if not self._lib.er_node_ran(self._model, index):
            return None
        return room[: result.nbytes].view(result.dtype).reshape(port.shape)

    def intermediates(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Every tensor that a node computes, by name; not those of branches that are not taken.

        Runs the model once for each.
        """
        found: dict[str, np.ndarray] = {}
        for index in range(len(self.nodes)):
            k = 0
            while self.node_output(index, k) is not None:
                value, port = self._watch(inputs, index, k), self.node_output(index, k)
                if value is not None and port is not None:
                    found[port.name] = value
                k += 1
        return found


def _array_at(address: int | None, port: Port) -> np.ndarray:
    """An array over memory of the runtime."""
    shape, dtype = port.shape, port.dtype.numpy
    count = int(np.prod(shape, dtype=np.int64))
    if not count or not address:
        return np.empty(shape, dtype)
    memory = memoryview((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address))
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
