"""Ops that move data: views where the bytes stay in order, strided copies otherwise (csrc/kernels/copy.c)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgerun.backends.native.lowering import Lowering, Param, Placement, lowers
from edgerun.dims import Dim, DimLike, product
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node, Shape
from edgerun.ops.movement import slice_range

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
    """Strides in elements that read `shape` as the larger shape `to`: 0 along axes that repeat.

    Raises UnsupportedError where only the sizes at run time tell whether an axis repeats.
    """
    padded = (1,) * (len(to) - len(shape)) + tuple(shape)
    strides: list[DimLike] = []
    for d, size, stride in zip(padded, to, strides_of(padded), strict=True):
        if d != size and d != 1:
            raise UnsupportedError(f"cannot tell whether dimension {d} is 1 or {size} before the sizes are bound")
        strides.append(stride if d == size else 0)
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
    if node.attrs.get("to") is None:
        static_input(node, cx, 1, "the new shape")
    view(cx, node.inputs[0], node.outputs[0])


@lowers("copy")
def copy(node: Node, cx: Lowering) -> None:
    view(cx, node.inputs[0], node.outputs[0])


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
    if node.attrs.get("to") is None:
        static_input(node, cx, 1, "the target shape")
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
        repeats = static_input(node, cx, 1, "the number of repeats")
        assert repeats is not None
        times = repeats.tolist()
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
    if ranges is None:
        ranges = _static_ranges(node, cx, shape)
    sizes, strides, offset = list(cx.shape(y)), strides_of(shape), 0
    steps = [1] * len(shape)
    starts: list[DimLike] = [0] * len(shape)
    for axis, start, _, step in ranges:
        steps[axis], starts[axis] = step, start
        offset = offset + start * strides[axis]
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


def _static_ranges(node: Node, cx: Lowering, shape: Shape) -> list[tuple[int, int, int, int]]:
    """The tensor form with constant operands, on static shapes."""
    starts, ends = (static_input(node, cx, k, what) for k, what in ((1, "the start"), (2, "the end")))
    axes, steps = (static_input(node, cx, k, what) for k, what in ((3, "the axis"), (4, "the step")))
    assert starts is not None and ends is not None
    numbers = axes.tolist() if axes is not None else range(len(starts))
    result = []
    for k, axis in enumerate(numbers):
        axis = axis + len(shape) if axis < 0 else axis
        size = shape[axis]
        if not isinstance(size, int):
            raise UnsupportedError(f"slice bounds on the symbolic dimension {size} were not resolved by the importer")
        step = int(steps[k]) if steps is not None else 1
        result.append((axis, *slice_range(size, int(starts[k]), int(ends[k]), step), step))
    return result


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
    rank, mode = len(cx.shape(x)), node.attrs.get("mode", "constant")
    widths: Any = node.attrs.get("widths")
    if widths is None:
        widths = _static_widths(node, cx, rank)
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
    if any(isinstance(w, Dim) for pair in widths for w in pair):
        raise UnsupportedError("wrapping by widths that are not known is not done by the native backend")
    if all(before >= 0 and after >= 0 for before, after in widths):
        return x, widths
    strides = strides_of(cx.shape(x))
    sizes = [d + min(b, 0) + min(a, 0) for d, (b, a) in zip(cx.shape(x), widths, strict=True)]
    offset: DimLike = 0
    for stride, (before, _) in zip(strides, widths, strict=True):
        offset = offset + stride * max(-before, 0)
    part = cx.temp(cx.dtype(x), tuple(sizes), hint=f"{x}.cropped")
    copy_nd(cx, x, part, sizes, strides, offset, why="cropped before it is padded")
    return part, [(max(b, 0), max(a, 0)) for b, a in widths]


def _static_widths(node: Node, cx: Lowering, rank: int) -> list[tuple[int, int]]:
    pads, axes = static_input(node, cx, 1, "the padding"), static_input(node, cx, 3, "the padded axes")
    assert pads is not None
    numbers = [a + rank if a < 0 else a for a in axes.tolist()] if axes is not None else list(range(rank))
    half = len(pads) // 2
    widths = [(0, 0)] * rank
    for k, axis in enumerate(numbers):
        widths[axis] = (int(pads[k]), int(pads[half + k]))
    return widths


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
    dtype = cx.dtype(node.outputs[0])
    if dtype not in (DType.F32, DType.F64, DType.I16, DType.I32, DType.I64):
        raise UnsupportedError(f"a native range of {dtype.short}")
    cx.emit("range", list(node.inputs), [node.outputs[0]], why="arithmetic progression")


def is_number(value: object) -> bool:
    """Whether a size is a plain number."""
    return isinstance(value, int) and not math.isnan(value)
