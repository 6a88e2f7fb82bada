"""Ops that move data: views where the bytes stay in order, strided copies otherwise (csrc/kernels/copy.c)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgerun.backends.native.lowering import Lowering, Param, Placement, lowers
from edgerun.backends.native.ops import movement_sizes
from edgerun.backends.native.sizes import define, integer, is_zero, total
from edgerun.dims import Dim, DimLike, maximum, minimum, product
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node, Shape

PAD_MODES = ("constant", "reflect", "edge", "wrap")


def strides_of(shape: Shape) -> list[DimLike]:
    """Row-major strides in elements."""
    strides: list[DimLike] = []
    step: DimLike = 1
    for d in reversed(shape):
        strides.insert(0, step)
        step = step * d
    return strides


def broadcast_strides(shape: Shape, to: Shape) -> list[DimLike]:
    """Strides in elements that read `shape` as the larger shape `to`: 0 along axes that repeat."""
    padded = (1,) * (len(to) - len(shape)) + tuple(shape)
    strides: list[DimLike] = []
    for d, size, stride in zip(padded, to, strides_of(padded), strict=True):
        strides.append(stride if d == size else stride * (1 - is_zero(d - 1)))
    return strides


def static_input(node: Node, cx: Lowering, index: int, what: str) -> np.ndarray | None:
    """A constant optional input as an array, None when absent. Raises UnsupportedError when it is computed."""
    if index >= len(node.inputs) or not node.inputs[index]:
        return None
    data = cx.constant(node.inputs[index])
    if data is None:
        raise UnsupportedError(f"{what} is computed at run time, so that sizes depend on the data")
    return data


def copy_nd(
    cx: Lowering,
    source: str,
    output: str,
    sizes: Sequence[DimLike],
    strides: Sequence[DimLike],
    offset: DimLike = 0,
    *,
    placements: Sequence[Placement] = (),
    why: str = "",
) -> None:
    """Emit a strided copy: element (i, j, ...) of `output`, seen as `sizes`, is source[offset + i*strides[0] + ...]."""
    params: list[Param] = [len(sizes), offset]
    for size, stride in zip(sizes, strides, strict=True):
        params += [size, stride]
    if len(sizes) > 16:
        raise UnsupportedError(f"a strided copy of {len(sizes)} dimensions; the native kernel takes 16")
    cx.emit("copy_nd", [source], [output], params, placements=placements, why=why or "strided copy")


def view(cx: Lowering, source: str, output: str) -> None:
    """Emit a change of shape."""
    cx.emit("copy_bytes", [source], [output], view=True, in_place=[(0, 0)], why="the same bytes under another shape")


@lowers("reshape")
def reshape(node: Node, cx: Lowering) -> None:
    if node.attrs.get("to") is None and cx.constant(node.inputs[1]) is None:
        movement_sizes.reshape_shape(node, cx)
    view(cx, node.inputs[0], node.outputs[0])


@lowers("copy")
def copy(node: Node, cx: Lowering) -> None:
    view(cx, node.inputs[0], node.outputs[0])


@lowers("bit_cast")
def bit_cast(node: Node, cx: Lowering) -> None:
    """A view; integers of less than 8 bits are converted, because one byte of theirs may hold more than their bits."""
    x, y = node.inputs[0], node.outputs[0]
    if cx.dtype(x).bits < 8 and cx.dtype(x).is_integer and cx.dtype(y).is_integer:
        from edgerun.backends.native.ops.elementwise import apply

        apply(cx, (("cast", cx.dtype(y), 0),), [x], y)
    else:
        view(cx, x, y)


@lowers("transpose")
def transpose(node: Node, cx: Lowering) -> None:
    x, y = node.inputs[0], node.outputs[0]
    shape, perm = cx.shape(x), node.attrs["perm"]
    moved = [p for p in perm if shape[p] != 1]
    if moved == sorted(moved):
        view(cx, x, y)
        return
    strides = strides_of(shape)
    copy_nd(cx, x, y, [shape[p] for p in perm], [strides[p] for p in perm], why=f"transpose by {tuple(perm)}")


@lowers("expand")
def expand(node: Node, cx: Lowering) -> None:
    x, y = node.inputs[0], node.outputs[0]
    if node.attrs.get("to") is None and cx.constant(node.inputs[1]) is None:
        movement_sizes.expand_shape(node, cx)
    shape, to = cx.shape(x), cx.shape(y)
    if shape == to or product(shape) == product(to):
        view(cx, x, y)
        return
    copy_nd(cx, x, y, to, broadcast_strides(shape, to), why="broadcast copy")


@lowers("tile")
def tile(node: Node, cx: Lowering) -> None:
    x, y = node.inputs[0], node.outputs[0]
    times = node.attrs.get("times")
    if times is None:
        times = movement_sizes.tile_times(node, cx)
    sizes: list[DimLike] = []
    strides: list[DimLike] = []
    for count, size, stride in zip(times, cx.shape(x), strides_of(cx.shape(x)), strict=True):
        if count != 1:
            sizes.append(count)
            strides.append(0)
        sizes.append(size)
        strides.append(stride)
    if all(t == 1 for t in times):
        view(cx, x, y)
    else:
        copy_nd(cx, x, y, sizes, strides, why="repeated copy")


@lowers("slice")
def slice_(node: Node, cx: Lowering) -> None:
    x, y = node.inputs[0], node.outputs[0]
    shape = cx.shape(x)
    ranges = node.attrs.get("ranges")
    steps: list[DimLike] = [1] * len(shape)
    starts: list[DimLike] = [0] * len(shape)
    if ranges is None:
        found = movement_sizes.slice_ranges(node, cx)
        starts, steps = [r[0] for r in found], [r[2] for r in found]
    for axis, start, _, step in ranges or ():
        steps[axis], starts[axis] = step, start
    sizes, strides = list(cx.shape(y)), strides_of(shape)
    offset = total(start * stride for start, stride in zip(starts, strides, strict=True))
    cut = [k for k in range(len(shape)) if sizes[k] != shape[k] or steps[k] != 1]
    if not cut:
        view(cx, x, y)
        return
    placements = []
    if len(cut) == 1 and steps[cut[0]] == 1:
        axis = cut[0]
        if all(d == 1 for d in shape[:axis]):
            placements = [Placement(y, x, offset)]
        elif axis == len(shape) - 1:
            placements = [Placement(y, x, starts[axis], strided=True)]
    scaled = [s * step for s, step in zip(strides, steps, strict=True)]
    copy_nd(cx, x, y, sizes, scaled, offset, placements=placements, why="slice")


@lowers("concat")
def concat(node: Node, cx: Lowering) -> None:
    y, axis = node.outputs[0], node.attrs["axis"]
    shape = cx.shape(y)
    inputs = [i for i in node.inputs if cx.shape(i)[axis] != 0]
    if len(inputs) <= 1:
        view(cx, (inputs or node.inputs)[0], y)
        return
    placements, offset = [], 0
    leading = all(d == 1 for d in shape[:axis])
    if leading or axis == len(shape) - 1:
        inner = product(shape[axis + 1 :])
        for name in inputs:
            placements.append(Placement(name, y, offset, strided=not leading))
            offset = offset + cx.shape(name)[axis] * inner
    strided = range(len(inputs)) if axis == len(shape) - 1 else ()
    cx.emit("concat", inputs, [y], [axis], placements=placements, strided_inputs=strided, why="copied piece by piece")


@lowers("pad")
def pad(node: Node, cx: Lowering) -> None:
    x, y = node.inputs[0], node.outputs[0]
    mode = node.attrs.get("mode", "constant")
    widths: Any = node.attrs.get("widths")
    if widths is None:
        widths = movement_sizes.pad_widths(node, cx)
    if all(before == 0 and after == 0 for before, after in widths):
        view(cx, x, y)
        return
    if mode == "wrap":
        x, widths = _cropped(cx, x, widths)
    if mode not in PAD_MODES:
        raise UnsupportedError(f"there is no native padding mode {mode!r}")
    value = node.inputs[2] if len(node.inputs) > 2 else ""
    if value and mode == "constant":
        data = cx.constant(value)
        if data is not None and not data.any() and not np.signbit(np.asarray(data, np.float64)).any():
            value = ""
    params: list[Param] = [PAD_MODES.index(mode)]
    for before, after in widths:
        params += [before, after]
    cx.emit("pad", [x, value if mode == "constant" else ""], [y], params, why=f"padding, mode {mode}")


def _cropped(cx: Lowering, x: str, widths: Any) -> tuple[str, Any]:
    """x without what negative widths remove, and the widths that are left: wrapping repeats only what is kept."""
    kept = [(minimum(before, 0), minimum(after, 0)) for before, after in widths]
    if all(pair == (0, 0) for pair in kept):
        return x, widths
    strides = strides_of(cx.shape(x))
    sizes = [maximum(d + before + after, 0) for d, (before, after) in zip(cx.shape(x), kept, strict=True)]
    for d, (before, after) in zip(cx.shape(x), kept, strict=True):
        if (lacking := minimum(d + before + after, 0)) != 0:
            cx.emit("expect", [], [], [lacking, 0], why="an axis is not cropped below nothing")
    offset = total(-before * stride for stride, (before, _) in zip(strides, kept, strict=True))
    part = cx.temp(cx.dtype(x), tuple(sizes), hint=f"{x}.cropped")
    copy_nd(cx, x, part, sizes, strides, offset, why="cropped before it is padded")
    return part, [(maximum(before, 0), maximum(after, 0)) for before, after in widths]


@lowers("shape")
def shape_(node: Node, cx: Lowering) -> None:
    """A weight when all sizes are numbers, else the sizes are parameters, patched at every binding."""
    dims = cx.shape(node.inputs[0])[node.attrs.get("start", 0) : node.attrs.get("end")]
    emit_values(cx, list(dims), node.outputs[0])


def emit_values(cx: Lowering, values: Sequence[DimLike], output: str) -> None:
    """Emit the integers `values` (numbers or dims) as the elements of the i64 or i32 tensor `output`."""
    cx.emit("fill_integers", [], [output], list(values), why="sizes known from the shapes of the inputs")


@lowers("range")
def range_(node: Node, cx: Lowering) -> None:
    if any(isinstance(d, Dim) for d in cx.shape(node.outputs[0])):
        define(cx, node.outputs[0], [_range_size(node, cx)])
    dtype = cx.dtype(node.outputs[0])
    if dtype in (DType.F16, DType.BF16):
        from edgerun.backends.native.ops.elementwise import apply, cast

        wide = cx.temp(DType.F32, cx.shape(node.outputs[0]), "range")
        cx.emit("range", [cast(cx, i, DType.F32) for i in node.inputs], [wide], why="arithmetic progression")
        apply(cx, (("cast", dtype, 0),), [wide], node.outputs[0])
        return
    if dtype not in (DType.F32, DType.F64, DType.I16, DType.I32, DType.I64):
        raise UnsupportedError(f"a native range of {dtype.short}")
    cx.emit("range", list(node.inputs), [node.outputs[0]], why="arithmetic progression")


def _range_size(node: Node, cx: Lowering) -> DimLike:
    """The number of elements: ceil((limit - start) / delta) in f64, at least 0."""
    from edgerun.backends.native.ops.elementwise import apply

    f64 = DType.F64
    program: Any = [("cast", f64, k) for k in range(3)]
    program += [("sub", f64, 4, 3), ("div", f64, 6, 5), ("ceil", f64, 7), ("cast", DType.I64, 8)]
    count = cx.temp(DType.I64, (), "range.size")
    apply(cx, tuple(program), list(node.inputs), count)
    return maximum(integer(cx, count, clamp=True), 0)


def is_number(value: object) -> bool:
    """Whether a size is a plain number."""
    return isinstance(value, int) and not math.isnan(value)
