"""Ops that move elements without computing: transpose, reshape, expand, concat, slice, pad, tile, shape, range."""

from __future__ import annotations

import math

import numpy as np

from edgerun.dims import Dim, DimLike, broadcast, is_static, product, shape_text
from edgerun.dtypes import DType
from edgerun.errors import ShapeError
from edgerun.graph import Shape
from edgerun.ops.registry import TensorType, fresh_symbol, normalize_axis, op, require, static_value

Ranges = tuple[tuple[int, DimLike, DimLike, int], ...]
PAD_MODES = ("constant", "reflect", "edge", "wrap")


@op("movement", symbolic=True)
def transpose(x: TensorType, *, perm: tuple[int, ...]) -> TensorType:
    """Permute axes: output axis i is input axis perm[i]."""
    if x.shape is None:
        return x.like(tuple(fresh_symbol("transpose") for _ in perm))
    require(sorted(perm) == list(range(len(x.shape))), f"{perm} is no permutation of the axes of {x}")
    return x.like(tuple(x.shape[p] for p in perm))


@op("movement", symbolic=True)
def reshape(
    x: TensorType, shape: TensorType | None = None, *, to: Shape | None = None, allowzero: bool = False
) -> TensorType:
    """The same elements in row-major order under another shape.

    `to` is the complete new shape. The tensor form follows ONNX: one -1 stands for the rest, 0 copies the input's
    dimension unless `allowzero`.
    """
    if to is not None:
        if x.shape is not None:
            a, b = product(x.shape), product(to)
            numbers = isinstance(a, int) and isinstance(b, int)
            require(not numbers or a == b, f"{x} cannot be seen as {shape_text(to)}: {a} elements are not {b}")
        return x.like(to)
    require(shape is not None and shape.dtype is DType.I64, "reshape needs a shape of i64")
    assert shape is not None
    if shape.shape is None or not is_static(shape.shape):
        return TensorType(x.dtype, None)
    rank = int(shape.shape[0])
    known = static_value(shape)
    if known is not None:
        return x.like(resolve_reshape(x, known.tolist(), allowzero))
    return x.like(tuple(fresh_symbol("reshape") for _ in range(rank)))


def resolve_reshape(x: TensorType, target: list[DimLike], allowzero: bool) -> Shape:
    """The complete shape for an ONNX reshape target holding 0 and -1. Raises ShapeError when it does not fit."""
    result: list[DimLike] = []
    rest = None
    for i, d in enumerate(target):
        if isinstance(d, int) and d == 0 and not allowzero:
            require(x.shape is None or i < len(x.shape), f"the 0 at axis {i} has no counterpart in {x}")
            result.append(x.dims[i])
        elif isinstance(d, int) and d == -1:
            require(rest is None, f"the shape {shape_text(target)} has two unknown dimensions")
            rest = i
            result.append(1)
        else:
            require(not isinstance(d, int) or d >= 0, f"the shape {shape_text(target)} has a negative dimension")
            result.append(d)
    if rest is not None:
        result[rest] = _rest_of(x, result)
    return tuple(result)


def _rest_of(x: TensorType, others: list[DimLike]) -> DimLike:
    total, known = product(x.dims), product(others)
    if isinstance(known, int) and known == 0:
        require(isinstance(total, int) and total == 0, f"{x} cannot have a dimension of 0")
        return 0
    # Common factors go first: [N, T, 64] to [N, T, -1, 8] leaves 8 without knowing N and T.
    left = list(x.dims)
    divisors = []
    for d in others:
        if isinstance(d, Dim) and d in left:
            left.remove(d)
        else:
            divisors.append(d)
    total, known = product(left), product(divisors)
    if isinstance(total, int) and isinstance(known, int):
        require(known != 0 and total % known == 0, f"{x} does not divide into {shape_text(others)}")
        return total // known
    return total // known


@op("movement", symbolic=True)
def expand(x: TensorType, shape: TensorType | None = None, *, to: Shape | None = None) -> TensorType:
    """Repeat along axes of length one, and along new leading axes. `to` is the complete result shape.

    The tensor form broadcasts in both directions, as ONNX does.
    """
    if to is not None:
        if x.shape is not None:
            require(broadcast(x.shape, to) == to or not is_static(x.shape), f"{x} does not expand to {shape_text(to)}")
        return x.like(to)
    require(shape is not None, "expand needs a shape")
    assert shape is not None
    if x.shape is None or shape.shape is None or not is_static(shape.shape):
        return TensorType(x.dtype, None)
    known = static_value(shape)
    if known is not None:
        return x.like(broadcast(x.shape, tuple(int(v) for v in known)))
    rank = max(len(x.shape), int(shape.shape[0]))
    return x.like(tuple(fresh_symbol("expand") for _ in range(rank)))


@op("movement", symbolic=True)
def concat(*xs: TensorType, axis: int) -> TensorType:
    """Join tensors of equal dtype along one axis; all other dimensions agree."""
    require(len(xs) > 0, "concat needs an input")
    names = ", ".join(str(x) for x in xs)
    require(all(x.dtype is xs[0].dtype for x in xs), f"concat of different types: {names}")
    known = [x.shape for x in xs if x.shape is not None]
    if len(known) < len(xs):
        return xs[0].like() if xs[0].shape is None else TensorType(xs[0].dtype, None)
    rank = len(known[0])
    require(all(len(s) == rank for s in known), f"concat of different ranks: {names}")
    axis = normalize_axis(axis, rank)
    result = list(known[0])
    for shape in known[1:]:
        for i in range(rank):
            if i == axis:
                result[i] = result[i] + shape[i]
            elif isinstance(result[i], Dim) and isinstance(shape[i], int):
                result[i] = shape[i]
            elif isinstance(result[i], int) and isinstance(shape[i], int):
                require(result[i] == shape[i], f"concat along axis {axis}: axis {i} differs in {names}")
    return xs[0].like(tuple(result))


@op("movement", symbolic=True)
def slice_(
    x: TensorType,
    starts: TensorType | None = None,
    ends: TensorType | None = None,
    axes: TensorType | None = None,
    steps: TensorType | None = None,
    *,
    ranges: Ranges | None = None,
) -> TensorType:
    """Take regular parts: `ranges` holds (axis, start, size, step) with start inside the axis; other axes are whole.

    The tensor form follows ONNX Slice: bounds count from the end when negative and are clamped to the axis (see
    `slice_range`), steps may be negative, an axis is named at most once.
    """
    if x.shape is None:
        return x.like()
    result = list(x.shape)
    if ranges is not None:
        for axis, start, size, step in ranges:
            require(0 <= axis < len(result) and step != 0, f"the range of axis {axis} does not fit {x}")
            _check_range(result[axis], start, size, step, axis)
            result[axis] = size
        return x.like(tuple(result))
    values = [static_value(t) for t in (starts, ends, axes, steps)]
    require(starts is not None and ends is not None, "slice needs starts and ends")
    assert starts is not None
    chosen = values[2]
    if chosen is None:
        if axes is not None or starts.shape is None or not is_static(starts.shape):
            return x.like(tuple(fresh_symbol("slice") for _ in result))
        chosen = np.arange(int(starts.shape[0]))
    places = [normalize_axis(int(a), len(result)) for a in chosen]
    require(len(set(places)) == len(places), f"slice names an axis twice: {chosen.tolist()}")
    for i, axis in enumerate(places):
        size = result[axis]
        stride = 1 if steps is None else None if values[3] is None else int(values[3][i])
        if values[0] is not None and values[1] is not None and stride is not None and isinstance(size, int):
            result[axis] = slice_range(size, int(values[0][i]), int(values[1][i]), stride)[1]
        else:
            result[axis] = fresh_symbol("slice")
    return x.like(tuple(result))


def slice_range(length: int, start: int, end: int, step: int) -> tuple[int, int]:
    """(first index, count) of an ONNX slice of an axis. Raises ShapeError for a step of zero.

    A start before the axis is clamped to its first element for steps of either sign. (Python gives an empty slice when
    the step is negative.)
    """
    require(step != 0, "the step of a slice is zero")
    if length == 0:
        return 0, 0
    first = start + length if start < 0 else start
    last = end + length if end < 0 else end
    if step > 0:
        first, last = min(max(first, 0), length), min(max(last, 0), length)
    else:
        first, last = min(max(first, 0), length - 1), min(max(last, -1), length - 1)
    return first, len(range(first, last, step))


def _check_range(length: DimLike, start: DimLike, size: DimLike, step: int, axis: int) -> None:
    if isinstance(length, int) and isinstance(start, int) and isinstance(size, int) and size > 0:
        last = start + (size - 1) * step
        require(0 <= start < length and 0 <= last < length, f"the range of axis {axis} leaves the tensor")


@op("movement")
def pad(
    x: TensorType,
    pads: TensorType | None = None,
    value: TensorType | None = None,
    axes: TensorType | None = None,
    *,
    widths: tuple[tuple[DimLike, DimLike], ...] | None = None,
    mode: str = "constant",
) -> TensorType:
    """Add (or, where negative, remove) elements before and after each axis; removal comes first.

    `widths` holds (before, after) per axis. mode: constant (`value`, default 0), reflect, edge, wrap.
    """
    require(mode in PAD_MODES, f"there is no pad mode {mode!r}")
    require(value is None or value.dtype is x.dtype, "the pad value has another type than the tensor")
    if x.shape is None:
        return x.like()
    if widths is None:
        return x.like(tuple(fresh_symbol("pad") for _ in x.shape))
    require(len(widths) == len(x.shape), f"{len(widths)} pads for {x}")
    result = []
    for d, (before, after) in zip(x.shape, widths, strict=True):
        if isinstance(d, int) and isinstance(before, int) and isinstance(after, int):
            check_pad(d, before, after, mode)
        result.append(d + before + after)
    return x.like(tuple(result))


def check_pad(length: int, before: int, after: int, mode: str) -> None:
    """Raise ShapeError when an axis cannot be cropped or padded so."""
    kept = length + min(before, 0) + min(after, 0)
    require(kept >= 0, f"padding {length} elements by {before} and {after} leaves less than nothing")
    if mode != "constant" and max(before, after) > 0:
        require(kept > 0, f"mode {mode} has nothing to repeat: no element is left of {length}")
        fits = mode != "reflect" or max(before, after) < kept
        require(fits, f"reflection by {max(before, after)} of {kept} elements")


@op("movement")
def tile(x: TensorType, repeats: TensorType | None = None, *, times: tuple[DimLike, ...] | None = None) -> TensorType:
    """Repeat the whole tensor `times[i]` times along axis i."""
    if x.shape is None:
        return x.like()
    if times is None:
        return x.like(tuple(fresh_symbol("tile") for _ in x.shape))
    require(len(times) == len(x.shape), f"{len(times)} repeats for {x}")
    require(all(not isinstance(t, int) or t >= 0 for t in times), f"a negative count of repeats: {times}")
    return x.like(tuple(d * t for d, t in zip(x.shape, times, strict=True)))


@op("movement")
def shape(x: TensorType, *, start: int = 0, end: int | None = None) -> TensorType:
    """The dimensions start..end of x as i64 [n]."""
    if x.shape is None:
        return TensorType(DType.I64, None if start or end is not None else (fresh_symbol("rank"),))
    dims = x.shape[slice(start, end)]
    value = np.empty(len(dims), object)
    value[:] = dims
    return TensorType(DType.I64, (len(dims),), value.astype(np.int64) if is_static(dims) else value)


@op("movement")
def range_(start: TensorType, limit: TensorType, delta: TensorType) -> TensorType:
    """start, start + delta, ... up to but without limit; rank-0 inputs of one type."""
    require(start.dtype is limit.dtype is delta.dtype, "start, limit and delta of range differ in type")
    values = [t.value for t in (start, limit, delta)]
    if any(v is None for v in values):
        return TensorType(start.dtype, (fresh_symbol("range"),))
    first, last, step = (v.reshape(-1).tolist()[0] for v in values if v is not None)
    if isinstance(step, Dim) or step == 0:
        raise ShapeError("the step of a range must be a number other than zero")
    if isinstance(first, Dim) or isinstance(last, Dim):
        distance = last - first
        if step == 1:
            from edgerun.dims import maximum

            return TensorType(start.dtype, (maximum(distance, 0),))
        return TensorType(start.dtype, (fresh_symbol("range"),))
    return TensorType(start.dtype, (max(math.ceil((last - first) / step), 0),))
