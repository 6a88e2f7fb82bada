"""Operators that move data: shapes, slices, joins, pads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgerun.dims import Dim, DimLike, bounds, broadcast, ceildiv, is_static, maximum, minimum, product
from edgerun.dtypes import from_onnx
from edgerun.errors import ShapeError, UnsupportedError
from edgerun.ops.movement import resolve_reshape, slice_range
from edgerun_converters.onnx import runtime_axes
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering

FAR = 1 << 31
"""Slice ends at or beyond this mean "to the end"."""


@lowering("Reshape")
def reshape(b: Builder, n: OnnxNode) -> None:
    """The attribute form when the target is known."""
    x = n.input(0)
    allowzero = bool(n.attr("allowzero", 0))
    target: list[DimLike] | None = list(n.attr("shape")) if n.opset < 5 else b.known(n.input(1))
    if target is not None and (b.type(x).shape is not None or _complete(target, allowzero)):
        n.bind(b.one("reshape", [x], to=resolve_reshape(b.type(x), target, allowzero)))
        return
    n.bind(b.one("reshape", [x, n.input(1)], allowzero=allowzero))


def _complete(target: list[DimLike], allowzero: bool) -> bool:
    """Whether no entry refers to the input's shape."""
    return all(not isinstance(d, int) or d > 0 or (d == 0 and allowzero) for d in target)


@lowering("Flatten")
def flatten(b: Builder, n: OnnxNode) -> None:
    """To a matrix: the axes before `axis`, and the rest."""
    x, axis = n.input(0), n.attr("axis", 1)
    shape = b.shape(x)
    axis = axis + len(shape) if axis < 0 else axis
    n.bind(b.reshape(x, (product(shape[:axis]), product(shape[axis:]))))


@lowering("Squeeze")
def squeeze(b: Builder, n: OnnxNode) -> None:
    """Drop axes of length one: the listed ones, or all."""
    x = n.input(0)
    if _axes_are_computed(b, n):
        n.bind(runtime_axes.squeeze(b, x, n.input(1)))
        return
    shape = b.shape(x)
    axes = _axes(b, n, 13)
    if axes is None:
        if any(isinstance(d, Dim) for d in shape):
            raise UnsupportedError("Squeeze without axes of a symbolic shape", hint="bind it with --shape")
        axes = [i for i, d in enumerate(shape) if d == 1]
    dropped = {b.axis(x, a) for a in axes}
    for a in dropped:
        if isinstance(shape[a], int) and shape[a] != 1:
            raise ShapeError(f"axis {a} of {b.type(x)} cannot be squeezed")
    n.bind(b.one("reshape", [x], to=tuple(d for i, d in enumerate(shape) if i not in dropped)))


@lowering("Unsqueeze")
def unsqueeze(b: Builder, n: OnnxNode) -> None:
    """Insert axes of length one; positions count in the result."""
    x = n.input(0)
    if _axes_are_computed(b, n):
        n.bind(runtime_axes.unsqueeze(b, x, n.input(1)))
        return
    axes = _axes(b, n, 13)
    if axes is None:
        raise UnsupportedError("Unsqueeze needs axes")
    rank = b.rank(x) + len(axes)
    places = {a + rank if a < 0 else a for a in axes}
    if len(places) != len(axes) or not all(0 <= p < rank for p in places):
        raise ShapeError(f"axes {list(axes)} for {b.type(x)}")
    rest = iter(b.shape(x))
    n.bind(b.one("reshape", [x], to=tuple(1 if i in places else next(rest) for i in range(rank))))


def _axes_are_computed(b: Builder, n: OnnxNode) -> bool:
    return n.opset >= 13 and bool(n.input(1)) and b.static(n.input(1)) is None


def _axes(b: Builder, n: OnnxNode, since: int) -> list[int] | None:
    """Axes from the attribute, or from opset `since` on from input 1. Raises UnsupportedError when computed."""
    if n.opset < since:
        found = n.attr("axes", None)
        return None if found is None else list(found)
    if not n.input(1):
        return None
    value = b.static(n.input(1))
    if value is None:
        raise UnsupportedError(f"{n.op_type} with axes that are computed at run time")
    return [int(a) for a in value.reshape(-1)]


@lowering("Transpose")
def transpose(b: Builder, n: OnnxNode) -> None:
    """Reverse the axes without `perm`."""
    x = n.input(0)
    perm = n.attr("perm", None)
    n.bind(b.one("transpose", [x], perm=tuple(perm) if perm is not None else tuple(range(b.rank(x)))[::-1]))


@lowering("Concat")
def concat(b: Builder, n: OnnxNode) -> None:
    """Along `axis`; an input of shape [0] among tensors of higher rank does not count."""
    axis = n.attr("axis", 1) if n.opset < 4 else n.attr("axis")
    ranks = [b.type(i).shape for i in n.inputs]
    known = next((i for i, s in zip(n.inputs, ranks, strict=True) if s is not None), n.inputs[0])
    n.bind(b.one("concat", n.inputs, axis=b.axis(known, axis)))


@lowering("Shape")
def shape(b: Builder, n: OnnxNode) -> None:
    """The dimensions from `start` to `end`."""
    x = n.input(0)
    start, end = n.attr("start", 0), n.attr("end", None)
    known = b.type(x).shape
    if known is not None:  # clamped, as Python slices are
        start, end, _ = slice(start, end).indices(len(known))
    n.bind(b.one("shape", [x], start=start, end=end))


@lowering("Size")
def size(b: Builder, n: OnnxNode) -> None:
    """The number of elements, rank 0."""
    dims = b.one("shape", [n.input(0)])
    n.bind(b.one("reduce", [dims], kind="prod", over=(0,), keepdims=False))


@lowering("Expand")
def expand(b: Builder, n: OnnxNode) -> None:
    """Broadcast in both directions."""
    x = n.input(0)
    target = b.known(n.input(1))
    if target is not None and b.type(x).shape is not None:
        n.bind(b.one("expand", [x], to=broadcast(b.shape(x), tuple(target))))
    else:
        n.bind(b.one("expand", [x, n.input(1)]))


@lowering("ConstantOfShape")
def constant_of_shape(b: Builder, n: OnnxNode) -> None:
    """One value (float32 zero by default) in every place."""
    value = n.attr("value", None)
    fill = b.const(np.zeros((), np.float32) if value is None else np.asarray(value).reshape(()))
    target = b.known(n.input(0))
    if target is not None:
        n.bind(b.one("expand", [fill], to=tuple(target)))
    else:
        n.bind(b.one("expand", [fill, n.input(0)]))


@lowering("Range")
def range_(b: Builder, n: OnnxNode) -> None:
    """start, start + delta, ... below limit."""
    scalars = [b.reshape(i, ()) if b.type(i).shape == (1,) else i for i in n.inputs]
    n.bind(b.one("range", scalars))


@lowering("Tile")
def tile(b: Builder, n: OnnxNode) -> None:
    """Repeat along each axis."""
    x = n.input(0)
    times = b.known(n.input(1))
    if times is not None and b.type(x).shape is not None:
        n.bind(b.one("tile", [x], times=tuple(times)))
    else:
        n.bind(b.one("tile", [x, n.input(1)]))


@lowering("Split")
def split(b: Builder, n: OnnxNode) -> None:
    """Slices along one axis: of the given sizes, or equal (the last one smaller from opset 18 on)."""
    x = n.input(0)
    axis = b.axis(x, n.attr("axis", 0))
    total = b.shape(x)[axis]
    sizes: Sequence[DimLike] | None
    if n.opset < 13:
        sizes = n.attr("split", None)
    else:
        sizes = b.known(n.input(1)) if n.input(1) else None
        if n.input(1) and sizes is None:
            n.bind(*runtime_axes.split(b, x, n.input(1), axis, n.output_count))
            return
    if sizes is None:
        count = n.attr("num_outputs", n.output_count)
        part = ceildiv(total, count)
        if isinstance(total, int) and isinstance(part, int):
            if n.opset < 18 and total % count:
                raise ShapeError(f"{total} elements do not split into {count} equal parts")
            sizes = [max(min(part, total - i * part), 0) for i in range(count)]
        else:
            sizes = [part] * (count - 1) + [total - part * (count - 1)]
    if len(sizes) != n.output_count:
        raise ShapeError(f"{len(sizes)} sizes for {n.output_count} outputs")
    whole = sum(sizes)
    if isinstance(whole, int) and isinstance(total, int) and whole != total:
        raise ShapeError(f"the sizes {list(sizes)} do not add up to {total}")
    start: DimLike = 0
    results = []
    for part in sizes:
        results.append(b.one("slice", [x], ranges=((axis, start, part, 1),)))
        start = start + part
    n.bind(*results)


@lowering("Slice")
def slice_(b: Builder, n: OnnxNode) -> None:
    """Bounds from attributes (before opset 10) or inputs; clamped as the specification says, symbolically too."""
    x = n.input(0)
    if n.opset < 10:
        starts: list[DimLike] | None = list(n.attr("starts"))
        ends: list[DimLike] | None = list(n.attr("ends"))
        axes: list[DimLike] | None = list(n.attr("axes", range(len(n.attr("starts")))))
        steps: list[DimLike] | None = [1] * len(n.attr("starts"))
    else:
        starts, ends = b.known(n.input(1)), b.known(n.input(2))
        count = len(starts) if starts is not None else 0
        axes = b.known(n.input(3)) if n.input(3) else list(range(count))
        steps = b.known(n.input(4)) if n.input(4) else [1] * count
    dims = b.type(x).shape
    if dims is None or starts is None or ends is None or axes is None or steps is None:
        n.bind(b.one("slice", [x, *n.inputs[1:]]))
        return
    ranges: list[tuple[int, DimLike, DimLike, int]] = []
    try:
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            place = b.axis(x, int(axis))
            if any(place == other[0] for other in ranges):
                raise ShapeError(f"slice names axis {axis} twice")
            ranges.append((place, *_range(dims[place], start, end, int(step)), int(step)))
    except _Undecided:
        if n.opset < 10:
            raise UnsupportedError("Slice of a symbolic dimension with bounds that its size decides") from None
        n.bind(b.one("slice", [x, *n.inputs[1:]]))
        return
    n.bind(b.one("slice", [x], ranges=tuple(sorted(ranges, key=lambda r: r[0]))))


class _Undecided(Exception):
    """The sign of a symbolic bound is not known."""


def _sign(d: DimLike) -> int:
    """-1 for negative, 1 for zero and above. Raises _Undecided."""
    low, high = bounds(d)
    if low is not None and low >= 0:
        return 1
    if high is not None and high < 0:
        return -1
    raise _Undecided


def _range(length: DimLike, start: DimLike, end: DimLike, step: int) -> tuple[DimLike, DimLike]:
    """(first index, count) of an ONNX slice of an axis."""
    if step == 0:
        raise ShapeError("the step of a slice is zero")
    if isinstance(length, int) and isinstance(start, int) and isinstance(end, int):
        return slice_range(length, start, end, step)
    if step < 0:
        if start == -1 and isinstance(end, int) and end <= -FAR + 1:
            return length - 1, ceildiv(length, -step)
        raise _Undecided
    first_dim = _clamp(length, start)
    last_dim = length if isinstance(end, int) and end >= FAR - 1 else _clamp(length, end)
    count = ceildiv(last_dim - first_dim, step)
    return first_dim, maximum(count, 0)


def _clamp(length: DimLike, index: DimLike) -> DimLike:
    """An index counted from either end, moved into [0, length]."""
    if _sign(index) < 0:
        return maximum(index + length, 0)
    return minimum(index, length)


@lowering("Pad")
def pad(b: Builder, n: OnnxNode) -> None:
    """Pads from the attribute or input, for all axes or the listed ones."""
    x = n.input(0)
    mode = n.attr("mode", "constant")
    if n.opset < 11:
        amounts: list[DimLike] | None = list(n.attr("pads"))
        value = b.const(np.array(n.attr("value", 0.0)), b.dtype(x)) if n.attr("value", 0.0) else ""
        axes: list[DimLike] | None = None
    else:
        amounts, value = b.known(n.input(1)), n.input(2)
        axes = b.known(n.input(3)) if n.input(3) else None
    if value and b.type(value).shape == (1,):
        value = b.reshape(value, ())
    if value and b.dtype(value) is not b.dtype(x):
        value = b.cast(value, b.dtype(x))
    if amounts is None or b.type(x).shape is None or (n.input(3) and axes is None):
        n.bind(b.one("pad", [x, n.input(1), value, n.input(3)], mode=mode))
        return
    rank = b.rank(x)
    chosen = list(range(rank)) if axes is None else [b.axis(x, int(a)) for a in axes]
    if len(amounts) != 2 * len(chosen):
        raise ShapeError(f"{len(amounts)} pads for {len(chosen)} axes")
    table = {a: (amounts[i], amounts[i + len(chosen)]) for i, a in enumerate(chosen)}
    widths = tuple(table.get(a, (0, 0)) for a in range(rank))
    n.bind(b.one("pad", [x, "", value], widths=widths, mode=mode))


@lowering("DepthToSpace")
def depth_to_space(b: Builder, n: OnnxNode) -> None:
    """Blocks of channels become blocks of pixels; DCR or CRD order of the channel digits."""
    x, size = n.input(0), n.attr("blocksize")
    batch, channels, height, width = b.shape(x)
    depth = channels // (size * size)
    if n.attr("mode", "DCR") == "DCR":
        y = b.transpose(b.reshape(x, (batch, size, size, depth, height, width)), (0, 3, 4, 1, 5, 2))
    else:
        y = b.transpose(b.reshape(x, (batch, depth, size, size, height, width)), (0, 1, 4, 2, 5, 3))
    n.bind(b.one("reshape", [y], to=(batch, depth, height * size, width * size)))


@lowering("SpaceToDepth")
def space_to_depth(b: Builder, n: OnnxNode) -> None:
    """Blocks of pixels become blocks of channels."""
    x, size = n.input(0), n.attr("blocksize")
    batch, channels, height, width = b.shape(x)
    y = b.reshape(x, (batch, channels, height // size, size, width // size, size))
    columns_first = n.attr("mode", "DCR") == "CRD"
    y = b.transpose(y, (0, 1, 3, 5, 2, 4) if columns_first else (0, 3, 5, 1, 2, 4))
    n.bind(b.one("reshape", [y], to=(batch, channels * size * size, height // size, width // size)))


@lowering("CenterCropPad")
def center_crop_pad(b: Builder, n: OnnxNode) -> None:
    """Crop or zero-pad around the middle to the wanted sizes of the listed axes."""
    x = n.input(0)
    wanted = b.known(n.input(1))
    dims = b.shape(x)
    axes = [b.axis(x, a) for a in n.attr("axes", range(len(dims)))]
    if wanted is None or not is_static(wanted) or not is_static([dims[a] for a in axes]):
        raise UnsupportedError("CenterCropPad with sizes that are not known", hint="bind the shape with --shape")
    widths: list[tuple[DimLike, DimLike]] = [(0, 0)] * len(dims)
    for axis, target in zip(axes, wanted, strict=True):
        extra = int(target) - int(dims[axis])
        if extra >= 0:
            widths[axis] = (extra // 2, extra - extra // 2)
        else:
            before = -extra // 2
            widths[axis] = (-before, extra + before)
    n.bind(b.one("pad", [x], widths=tuple(widths)))


@lowering("EyeLike")
def eye_like(b: Builder, n: OnnxNode) -> None:
    """Ones on diagonal k of a matrix of the input's shape."""
    x = n.input(0)
    dtype = from_onnx(n.attr("dtype")) if "dtype" in n.attributes else b.dtype(x)
    rows, columns = b.shape(x)

    def count(size: DimLike, across: bool) -> str:
        limit = b.const(np.array(size, np.int64)) if isinstance(size, int) else _dim(b, x, 1 if across else 0)
        line = b.one("range", [b.const(np.array(0, np.int64)), limit, b.const(np.array(1, np.int64))])
        return line if across else b.one("reshape", [line], to=(size, 1))

    shifted = b.scalar("add", count(rows, False), b.const(np.array(n.attr("k", 0), np.int64)))
    n.bind(b.cast(b.scalar("eq", shifted, count(columns, True)), dtype))


def _dim(b: Builder, x: str, axis: int) -> str:
    return b.reshape(b.one("shape", [x], start=axis, end=axis + 1), ())
