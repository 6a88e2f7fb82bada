"""Ops that move data whose sizes the data decide: their operands become dims (see `native.sizes`)."""

from __future__ import annotations

from collections.abc import Sequence

from edgerun.backends.native.lowering import Lowering
from edgerun.backends.native.sizes import (
    WIDE,
    axes_of,
    constant_or_none,
    define,
    integers,
    is_negative,
    is_zero,
    selected,
    total,
    within,
)
from edgerun.dims import DimLike, ceildiv, floordiv, maximum, minimum, product
from edgerun.errors import UnsupportedError
from edgerun.graph import Node
from edgerun.ops.movement import slice_range
from edgerun.ops.registry import normalize_axis

Range = tuple[DimLike, DimLike, DimLike]
"""First index, count and step of a slice of one axis."""


def slice_ranges(node: Node, cx: Lowering) -> list[Range]:
    """The range of every axis; also says what the shape of the result is."""
    names = [*node.inputs, "", ""][1:5]
    shape = cx.shape(node.inputs[0])
    starts, ends = integers(cx, names[0], clamp=True), integers(cx, names[1], clamp=True)
    steps = integers(cx, names[3], clamp=True) if names[3] else [1] * len(starts)
    axes = _axes(cx, node, 3, len(shape), len(starts))
    ranges: list[Range] = []
    for axis, d in enumerate(shape):
        flags = selected(axes, axis)
        chosen = total(flags)
        if chosen == 0:
            ranges.append((0, d, 1))
            continue
        start = total(f * s for f, s in zip(flags, starts, strict=True))
        end = total(f * e for f, e in zip(flags, ends, strict=True)) + (1 - chosen) * d
        step = total(f * s for f, s in zip(flags, steps, strict=True)) + (1 - chosen)
        ranges.append((*_first_and_count(d, start, end, step), step))
    define(cx, node.outputs[0], [count for _, count, _ in ranges])
    return ranges


def _axes(cx: Lowering, node: Node, index: int, rank: int, count: int) -> list[DimLike]:
    """The optional input of axes, counted from the front."""
    if index >= len(node.inputs) or not node.inputs[index]:
        return list(range(count))
    known = constant_or_none(cx, node.inputs, index)
    if known is not None:
        return [normalize_axis(int(a), rank) for a in known.reshape(-1)]
    return axes_of(cx, node.inputs[index], rank)


def _first_and_count(d: DimLike, start: DimLike, end: DimLike, step: DimLike) -> tuple[DimLike, DimLike]:
    """`slice_range` over dims."""
    if isinstance(d, int) and isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        return slice_range(d, start, end, step)
    first, last = start + d * is_negative(start), end + d * is_negative(end)
    up = within(first, 0, d), within(last, 0, d)
    down = within(first, 0, d - 1), within(last, -1, d - 1)
    if isinstance(step, int) and step > 0:
        return up[0], maximum(ceildiv(up[1] - up[0], step), 0)
    if isinstance(step, int):
        return down[0], maximum(ceildiv(down[0] - down[1], -step), 0)
    back = is_negative(step)
    first, last = (u + back * (v - u) for u, v in zip(up, down, strict=True))
    return first, minimum(maximum(ceildiv(last - first, step), 0), d)


def pad_widths(node: Node, cx: Lowering) -> list[tuple[DimLike, DimLike]]:
    """(before, after) of every axis; also says what the shape of the result is."""
    shape = cx.shape(node.inputs[0])
    pads = integers(cx, node.inputs[1])
    half = len(pads) // 2
    axes = _axes(cx, node, 3, len(shape), half)
    widths = []
    for axis in range(len(shape)):
        flags = selected(axes, axis)
        before = total(f * p for f, p in zip(flags, pads[:half], strict=True))
        after = total(f * p for f, p in zip(flags, pads[half:], strict=True))
        widths.append((before, after))
    define(cx, node.outputs[0], [maximum(d + b + a, 0) for d, (b, a) in zip(shape, widths, strict=True)])
    return widths


def tile_times(node: Node, cx: Lowering) -> list[DimLike]:
    """How often each axis is repeated; also says what the shape of the result is."""
    times = integers(cx, node.inputs[1], 0)
    define(cx, node.outputs[0], [d * t for d, t in zip(cx.shape(node.inputs[0]), times, strict=True)])
    return times


def expand_shape(node: Node, cx: Lowering) -> None:
    """Say what the shape of the result is."""
    shape, to = cx.shape(node.inputs[0]), integers(cx, node.inputs[1], 0)
    rank = max(len(shape), len(to))
    result: list[DimLike] = []
    for d, n in zip(_padded(shape, rank), _padded(to, rank), strict=True):
        if d == 1 or n == 1:
            result.append(n if d == 1 else d)
        elif isinstance(d, int):
            cx.emit("expect", [], [], [(n - 1) * (n - d), 0], why="the target has this size or one")
            result.append(d)
        else:
            result.append(maximum(d, n))
    define(cx, node.outputs[0], result)


def _padded(shape: Sequence[DimLike], rank: int) -> list[DimLike]:
    return [*[1] * (rank - len(shape)), *shape]


def reshape_shape(node: Node, cx: Lowering) -> None:
    """Say what the shape of the result is: 0 copies a dim unless `allowzero`, one -1 stands for the rest."""
    x, y = node.inputs[0], node.outputs[0]
    shape = cx.shape(x)
    count, most = product(shape), cx.upper_size(x)
    if most >= WIDE:
        raise UnsupportedError(f"a reshape of {most} elements to a shape computed at run time")
    high = max(most, 1) if most else WIDE - 1  # nothing has any shape with a 0
    target = integers(cx, node.inputs[1], -1, high)
    rests = [is_negative(v) for v in target]
    cx.emit("expect", [], [], [maximum(total(rests), 1), 1], why="at most one -1")
    sizes: list[DimLike] = []
    for k, (v, rest) in enumerate(zip(target, rests, strict=True)):
        size = v + 2 * rest  # 1 in the place of -1
        if not node.attrs.get("allowzero", False):
            same = is_zero(v)
            if k < len(shape):
                size = size + same * shape[k]
            elif same != 0:
                cx.emit("expect", [], [], [same, 0], why="a 0 has an axis to copy")
        sizes.append(size)
    left = floordiv(count, maximum(product(sizes), 1))
    sizes = [minimum(s + rest * (left - 1), high) for s, rest in zip(sizes, rests, strict=True)]
    cx.emit("expect", [], [], [product(sizes), count], why="a reshape keeps the number of elements")
    define(cx, y, sizes, most=most)
