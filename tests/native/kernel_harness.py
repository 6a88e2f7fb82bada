"""Runs one core op through its native lowering and kernels, without the runtime: for tests of single kernels.

The kernels are compiled with a serial `er_parallel` that pretends to have three threads, so that work is cut and every
thread index is used, for each ISA level that this CPU has (levels.def). Every call is checked first, as the runtime
does, and buffers are surrounded by guard bytes.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import edgerun.backends.native as native
from edgerun.backends.native.lowering import BIND_SIZES, Lowering, NativeNode
from edgerun.dims import Dim, DimLike, evaluate
from edgerun.dtypes import DType, from_numpy
from edgerun.graph import Graph, Node, Shape
from edgerun.ops.registry import TensorType, infer
from edgerun.plan import SymbolPlace

CSRC = Path(native.__file__).parent / "csrc"
GUARD = 256
SOURCES = (
    "matmul",
    "conv",
    "conv_direct",
    "matmul_plain",
    "conv_transpose",
    "depthwise",
    "winograd",
    "elementwise",
    "copy",
    "reduce",
    "argreduce",
    "softmax",
    "pool",
    "norm",
    "gather",
    "scatter",
    "resize",
    "rnn",
    "topk",
    "scan",
    "quant",
    "qmatmul",
    "qconv",
    "qdepthwise",
    "qsum",
    "qtable",
    "nbits",
    "group",
    "attention",
    "tree",
    "fft",
    "index",
    "grid_sample",
)
LEVELS = {
    "sse2": "x86_64",
    "avx2": "x86_64_v3",
    "avx512": "x86_64_v4",
    "avxvnni": "x86_64_v3+avxvnni",
    "avx512vnni": "x86_64_v4+avx512vnni",
}

_HARNESS = """
#define ER_BASELINE_CHECKS
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "kernel.h"
void er_parallel(er_pool *p, er_task_fn fn, void *ctx, int n) {
  for (int i = n - 1; i >= 0; i--) fn(ctx, i, (i * 7) % er_pool_threads(p));
}
int er_pool_threads(const er_pool *p) { return p ? 3 : 1; }
int er_fail(const er_call *c, const char *format, ...) {
  va_list a; va_start(a, format); vsnprintf(c->error, 160, format, a); va_end(a); return 1;
}
"""


_REMOTE = """
#include <stdlib.h>
/* One call: name, sizes, views with their bytes from standard input; output bytes to standard output. */
static void take(void *to, size_t n) { if (n && fread(to, 1, n, stdin) != n) exit(9); }
static void views(er_view *v, int n, int filled) {
  for (int i = 0; i < n; i++) {
    int64_t head[12];
    take(head, sizeof head);
    v[i].dtype = (int32_t)head[0]; v[i].rank = (int32_t)head[1]; v[i].ld = head[2];
    for (int d = 0; d < 8; d++) v[i].dim[d] = head[3 + d];
    size_t bytes = (size_t)head[11];
    v[i].data = head[0] ? aligned_alloc(64, (bytes + 127) / 64 * 64) : NULL;
    if (filled) take(v[i].data, bytes);
  }
}
int main(void) {
  char name[64], error[160] = "";
  int64_t head[6];
  take(name, sizeof name);
  take(head, sizeof head);
  static er_view in[64], out[8];
  static int32_t param[4096];
  take(param, 4 * (size_t)head[2]);
  views(in, (int)head[0], 1);
  views(out, (int)head[1], 0);
  er_call c = {in, out, (int)head[0], (int)head[1], param, (int)head[2], aligned_alloc(64, (size_t)head[3] + 64),
               (size_t)head[3], aligned_alloc(64, 3 * (size_t)head[4] + 64), (size_t)head[4],
               head[5] ? (er_pool *)name : NULL, error, NULL};
  int status = harness(name, &c);
  if (status) { fputs(error, stderr); return status; }
  for (int i = 0; i < c.n_out; i++) {
    size_t bytes = (size_t)(er_numel(&out[i]) * er_itemsize(out[i].dtype));
    if (out[i].data) fwrite(out[i].data, 1, bytes, stdout);
  }
  return 0;
}
"""
REMOTE = {
    "aarch64": ("aarch64-linux-musl", "generic", "qemu-aarch64"),
    "aarch64-dotprod": ("aarch64-linux-musl", "cortex_a76", "qemu-aarch64"),
    "aarch64-i8mm": ("aarch64-linux-musl", "generic+v8_2a+dotprod+fullfp16+i8mm", "qemu-aarch64"),
    "armv7": ("arm-linux-musleabihf", "cortex_a7", "qemu-arm"),
    "riscv64": ("riscv64-linux-musl", "baseline_rv64", "qemu-riscv64"),
}
"""Levels of other architectures: (zig target, CPU, emulator)."""


class _View(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dim", ctypes.c_int64 * 8),
        ("ld", ctypes.c_int64),
    ]


class _Call(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.POINTER(_View)),
        ("outputs", ctypes.POINTER(_View)),
        ("n_in", ctypes.c_int),
        ("n_out", ctypes.c_int),
        ("param", ctypes.POINTER(ctypes.c_int32)),
        ("n_param", ctypes.c_int),
        ("scratch", ctypes.c_void_p),
        ("scratch_bytes", ctypes.c_size_t),
        ("thread_scratch", ctypes.c_void_p),
        ("thread_scratch_bytes", ctypes.c_size_t),
        ("pool", ctypes.c_void_p),
        ("error", ctypes.c_char_p),
        ("fault", ctypes.c_void_p),
    ]


class _Fault(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("value", ctypes.c_int64), ("size", ctypes.c_int64)]


def levels() -> list[str]:
    """ISA levels of this CPU, weakest first."""
    flags = Path("/proc/cpuinfo").read_text()
    return ["sse2"] + (["avx2"] if " avx2 " in flags else []) + (["avx512"] if " avx512bw " in flags else [])


def dot_levels() -> list[str]:
    """Levels of this CPU with integer dot products."""
    flags = Path("/proc/cpuinfo").read_text()
    return (["avxvnni"] if " avx_vnni " in flags else []) + (["avx512vnni"] if " avx512_vnni " in flags else [])


def kernel_files() -> dict[str, str]:
    """Kernel name -> source file (without .c), from kernels.def."""
    text = (CSRC / "kernels.def").read_text()
    found = re.findall(r"^ER_KERNEL(?:_DOT|_WIDE)?\((\w+), (\w+),", text, re.M)
    return {name: file for name, file in found if file in SOURCES}


@cache
def library(level: str) -> ctypes.CDLL:
    """The kernels compiled for one level of this machine."""
    return ctypes.CDLL(str(compiled(level)))


@cache
def compiled(level: str) -> Path:
    """The library, or executable for an emulator, of one level; cached by the hash of the sources."""
    files = kernel_files()
    code = _HARNESS + "".join(f'#include "kernels/{f}.c"\n' for f in dict.fromkeys(files.values()))
    names = list(files)
    code += "static const struct { const char *name; er_check_fn check; er_run_fn run; } table[] = {"
    code += "".join(f'{{"{n}", check_{n}, run_{n}}},' for n in names) + "};\n"
    code += """
int harness(const char *name, er_call *c) {
  for (unsigned i = 0; i < sizeof table / sizeof *table; i++) if (!strcmp(table[i].name, name)) {
    er_pool *pool = c->pool; c->pool = NULL;
    if (table[i].check(c)) return 1;
    c->pool = pool; table[i].run(c); return 0;
  }
  return 2;
}
/* Only the check. */
int harness_check(const char *name, er_call *c) {
  for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i].name, name)) return table[i].check(c);
  return 2;
}
"""
    if level in REMOTE:
        code += _REMOTE
    digest = hashlib.sha256((code + level).encode())
    for path in sorted([*(CSRC / "kernels").glob("*"), CSRC / "kernel.h", CSRC / "plan_format.h", CSRC / "simd.h"]):
        digest.update(path.read_bytes())
    folder = Path(tempfile.gettempdir()) / "edgerun-kernel-harness"
    folder.mkdir(exist_ok=True)
    remote = REMOTE.get(level)
    target = folder / f"{level}-{digest.hexdigest()[:16]}{'' if remote else '.so'}"
    if not target.exists():
        source = folder / f"{target.stem}.c"
        source.write_text(code)
        triple, cpu = remote[:2] if remote else ("x86_64-linux-gnu", LEVELS[level])
        part = folder / f"{target.name}.{os.getpid()}"  # test processes may compile the same at the same time
        kind = ["-static"] if remote else ["-shared", "-fPIC"]
        subprocess.run(
            [
                sys.executable,
                "-m",
                "ziglang",
                "cc",
                "-target",
                triple,
                f"-mcpu={cpu}",
                "-std=gnu11",
                "-O1" if remote else "-O3",
                "-fno-math-errno",
                "-Wall",
                "-Wextra",
                "-Wno-unused-function",
                "-Wno-pass-failed",
                "-Werror",
                "-fno-sanitize=all",
                *kind,
                f"-I{CSRC}",
                str(source),
                "-o",
                str(part),
                "-lm",
            ],
            check=True,
        )
        part.rename(target)
    return target


class _Buffer:
    """Memory with guard bytes on both sides."""

    def __init__(self, size: int) -> None:
        self.bytes = np.full(size + 2 * GUARD + 64, 0xA5, np.uint8)
        self.start = (-self.bytes.ctypes.data - GUARD) % 64 + GUARD
        self.size = size

    def array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        return self.bytes[self.start : self.start + self.size].view(dtype).reshape(shape)

    def check(self, what: str) -> None:
        outside = np.concatenate([self.bytes[: self.start], self.bytes[self.start + self.size :]])
        assert (outside == 0xA5).all(), f"{what} was written outside its bounds"


def run_op(
    op: str,
    inputs: Sequence[Any],
    attrs: dict[str, Any] | None = None,
    *,
    constant: Sequence[int] = (),
    types: Sequence[TensorType] | None = None,
    symbolic: bool = False,
    level: str = "",
    threads: bool = True,
    options: dict[str, object] | None = None,
    apart: int = 0,
    in_place: bool = False,
) -> list[np.ndarray]:
    """Outputs of core op `op`; `constant` numbers the inputs that are weights; `types` replaces shape inference.

    With `symbolic`, every dim of the inputs is its own symbol while lowering. What the lowering allows the planner is
    put to use: rows of strided views lie `apart` elements further apart; with `in_place`, outputs replace inputs.
    Raises AssertionError with the kernel's sentence when a check fails or bytes outside the outputs are written.
    """
    attrs = attrs or {}
    graph, values = Graph(), {}
    names: list[str] = []
    given: list[Any] = []
    for k, array in enumerate(inputs):
        if array is None:
            names.append("")
            given.append(None)
            continue
        name = f"in{k}"
        dtype = from_numpy(array.dtype)
        weight = array if k in constant else None
        shape: Shape = tuple(array.shape)
        if symbolic and weight is None:
            from edgerun.dims import symbol

            shape = tuple(symbol(f"{name}_{d}") for d in range(array.ndim))
            values.update({f"{name}_{d}": n for d, n in enumerate(array.shape)})
            graph.symbols.update({f"{name}_{d}": (0, max(n, 1)) for d, n in enumerate(array.shape)})
        graph.add_tensor(name, dtype, shape, weight)
        if weight is None:
            graph.inputs.append(name)
        names.append(name)
        given.append(TensorType(dtype, shape, weight))
    results = types or infer(op, given, attrs)
    outputs = []
    for k, t in enumerate(results):
        assert t.shape is not None
        graph.add_tensor(f"out{k}", t.dtype, t.shape)
        outputs.append(f"out{k}")
    graph.nodes.append(Node(op, names, outputs, attrs, op))
    graph.outputs = outputs
    arrays = {f"in{k}": a for k, a in enumerate(inputs) if a is not None}
    return run_graph(
        graph, arrays, values, level=level, threads=threads, options=options, apart=apart, in_place=in_place
    )


def run_graph(
    graph: Graph,
    arrays: dict[str, np.ndarray],
    values: dict[str, int] | None = None,
    *,
    level: str = "",
    threads: bool = True,
    options: dict[str, object] | None = None,
    apart: int = 0,
    in_place: bool = False,
) -> list[np.ndarray]:
    """Lower a graph and run its kernel calls one by one; the graph's outputs. `apart`, `in_place`: see `run_op`."""
    cx = Lowering(graph, level.split("-")[0] if level in REMOTE else "x86_64", options)
    cx.run()
    buffers: dict[str, _Buffer] = {}
    known, values = dict(arrays), dict(values or {})
    for node in cx.nodes:
        if node.kernel == BIND_SIZES:
            _bind_sizes(node, known, values)
        elif node.kernel != "expect":
            _run_node(cx, node, known, buffers, values, level or levels()[-1], threads, apart, in_place)
    return [known[o] for o in graph.outputs]


def _bind_sizes(node: NativeNode, known: dict[str, np.ndarray], values: dict[str, int]) -> None:
    """What the runtime does for this kernel."""
    _, offset, *places = node.params
    for place, value in zip(places, known[node.inputs[0]].reshape(-1).tolist(), strict=True):
        assert isinstance(place, SymbolPlace) and isinstance(offset, int)
        values[place.name] = int(value) + offset


def _run_node(
    cx: Lowering,
    node: NativeNode,
    known: dict[str, np.ndarray],
    buffers: dict[str, _Buffer],
    values: dict[str, int],
    level: str,
    threads: bool,
    apart: int,
    in_place: bool,
) -> None:
    def number(d: DimLike) -> int:
        return evaluate(d, values)

    ins, outs = (_View * max(len(node.inputs), 1))(), (_View * max(len(node.outputs), 1))()
    keep: list[object] = []
    spread: dict[int, _Buffer] = {}
    for k, name in enumerate(node.inputs):
        if not name:
            continue
        if name not in known:
            data = cx.tensor(name).data
            assert data is not None, f"{name} is read before it is computed"
            known[name] = data
        source = known[name]
        if name not in buffers:
            buffer = _Buffer(source.nbytes)
            if source.nbytes:
                buffer.array(source.dtype, source.shape)[...] = source
            buffers[name] = buffer
        shape = tuple(number(d) for d in cx.shape(name))
        _fill(ins[k], buffers[name], cx.dtype(name), shape)
        if apart and shape and k in node.strided_inputs:
            keep.append(_spread(ins[k], shape, apart, source))
    for k, name in enumerate(node.outputs):
        if not name:
            continue
        shape = tuple(number(d) for d in cx.shape(name))
        dtype = cx.dtype(name)
        buffers[name] = _Buffer(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
        _fill(outs[k], buffers[name], dtype, shape)
        known[name] = buffers[name].array(dtype.numpy, shape)
        if apart and shape and k in node.strided_outputs:
            spread[k] = _spread(outs[k], shape, apart, known[name])
    for k, i in dict(reversed(node.in_place)).items() if in_place else ():
        if not apart or (k in node.strided_outputs) == (i in node.strided_inputs):
            _share(ins[i], outs[k], known[node.inputs[i]])
    words = [_word(p, number) for p in node.params]
    param = (ctypes.c_int32 * max(len(words), 1))(*words)
    scratch, per_thread = _Buffer(number(node.scratch)), number(node.thread_scratch)
    per_thread = -(-per_thread // 64) * 64
    thread_scratch = _Buffer(3 * per_thread)
    error, fault = ctypes.create_string_buffer(160), _Fault()
    call = _Call(
        ins,
        outs,
        len(node.inputs),
        len(node.outputs),
        param,
        len(words),
        scratch.bytes.ctypes.data + scratch.start,
        scratch.size,
        thread_scratch.bytes.ctypes.data + thread_scratch.start,
        per_thread,
        1 if threads else None,
        ctypes.cast(error, ctypes.c_char_p),
        ctypes.addressof(fault),
    )
    keep.append(error)
    if level in REMOTE:
        _run_remote(cx, node, known, call, level)
        return
    status = library(level).harness(node.kernel.encode(), ctypes.byref(call))
    assert status != 2, f"kernel {node.kernel} is not compiled into the harness"
    assert status == 0, f"{node.kernel}: {error.value.decode()}"
    assert not fault.kind, f"{node.kernel}: value {fault.value} does not fit {fault.size}"
    for name in [*node.inputs, *node.outputs]:
        if name:
            buffers[name].check(name)
    for k, buffer in spread.items():
        _collect(buffer, outs[k].ld, known[node.outputs[k]], node.outputs[k])
    scratch.check("scratch")
    thread_scratch.check("thread scratch")


def _rows(buffer: _Buffer, ld: int, like: np.ndarray) -> np.ndarray:
    """The rows [count, ld] of a strided tensor with the shape of `like`; columns past its own are gaps."""
    return buffer.array(like.dtype, (like.size // max(like.shape[-1], 1), ld))


def _spread(view: _View, shape: tuple[int, ...], apart: int, source: np.ndarray) -> _Buffer:
    """Move a view to a buffer of its own with `apart` elements between rows, filled from `source`."""
    view.ld = shape[-1] + apart
    buffer = _Buffer(source.size // max(shape[-1], 1) * view.ld * source.itemsize)
    _rows(buffer, view.ld, source)[:, : shape[-1]] = source.reshape(-1, shape[-1])
    view.data = buffer.bytes.ctypes.data + buffer.start
    return buffer


def _share(inside: _View, out: _View, source: np.ndarray) -> None:
    """Let an input share the memory of an output, holding `source`."""
    if source.size == 0:
        return
    width = source.shape[-1]
    rows = source.size // max(width, 1)
    room = (ctypes.c_uint8 * (rows * out.ld * source.itemsize)).from_address(out.data)
    np.frombuffer(room, source.dtype).reshape(rows, out.ld)[:, :width] = source.reshape(rows, width)
    inside.data, inside.ld = out.data, out.ld


def _collect(buffer: _Buffer, ld: int, dense: np.ndarray, what: str) -> None:
    """Copy a strided output to its dense array. Raises AssertionError when a gap was written."""
    rows, width = _rows(buffer, ld, dense), dense.shape[-1]
    buffer.check(what)
    assert (rows[:, width:].view(np.uint8) == 0xA5).all(), f"{what} was written between its rows"
    dense[...] = rows[:, :width].reshape(dense.shape)


def _run_remote(cx: Lowering, node: NativeNode, known: dict[str, np.ndarray], call: _Call, level: str) -> None:
    """The same call in an emulator; fills the outputs in `known`."""
    message = [node.kernel.encode().ljust(64, b"\0")]
    message.append(
        np.array(
            [call.n_in, call.n_out, call.n_param, call.scratch_bytes, call.thread_scratch_bytes, int(bool(call.pool))],
            np.int64,
        ).tobytes()
    )
    message.append(np.array(call.param[: call.n_param], np.int32).tobytes())
    for names, views, filled in ((node.inputs, call.inputs, True), (node.outputs, call.outputs, False)):
        for k, name in enumerate(names):
            v = views[k]
            size = known[name].nbytes if name else 0
            message.append(np.array([v.dtype, v.rank, v.ld, *v.dim, size], np.int64).tobytes())
            if filled and name:
                message.append(np.ascontiguousarray(known[name]).tobytes())
    done = subprocess.run([REMOTE[level][2], str(compiled(level))], input=b"".join(message), capture_output=True)
    assert done.returncode == 0, f"{node.kernel} on {level}: {done.returncode} {done.stderr.decode()}"
    at = 0
    for name in node.outputs:
        if name:
            array = known[name]
            array[...] = np.frombuffer(done.stdout, array.dtype, array.size, at).reshape(array.shape)
            at += array.nbytes


def _fill(view: _View, buffer: _Buffer, dtype: DType, shape: tuple[int, ...]) -> None:
    view.data = buffer.bytes.ctypes.data + buffer.start
    view.dtype, view.rank = dtype.code, len(shape)
    view.dim[: len(shape)] = shape
    view.ld = shape[-1] if shape else 1


def _word(p: Any, number: Any) -> int:
    if isinstance(p, float):
        return int(np.float32(p).view(np.int32))
    value = number(p) if isinstance(p, Dim) else int(p)
    assert -(1 << 31) <= value < 1 << 31, f"parameter {value} does not fit a word"
    return value
