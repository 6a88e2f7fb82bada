"""Reductions, running sums, and the index of an extreme."""

from __future__ import annotations

import numpy as np

from edgerun.dims import is_static
from edgerun.dtypes import DType
from edgerun.graph import Shape
from edgerun.ops.registry import TensorType, fresh_symbol, normalize_axis, op, require, static_value

KINDS = ("sum", "mean", "max", "min", "prod", "l1", "l2", "logsum", "logsumexp", "sumsq")


@op("reduce", symbolic=True)
def reduce(
    x: TensorType,
    axes: TensorType | None = None,
    *,
    kind: str,
    over: tuple[int, ...] | None = None,
    keepdims: bool = True,
    noop_with_empty_axes: bool = False,
) -> TensorType:
    """Reduce the axes `over` (none when empty). Over no elements: sums 0, products 1, max -inf, min +inf, mean NaN.

    In the tensor form the axes come from `axes`; an empty list means all axes, or none with `noop_with_empty_axes`.
    logsum is log(sum), sumsq the sum of squares, l2 its root. Types other than f32 and f64 accumulate in a wider one.
    """
    require(kind in KINDS, f"there is no reduction {kind!r}")
    if kind in ("max", "min"):
        require(x.dtype is not DType.STRING, "strings are not reduced")
    else:
        require(x.dtype.is_float or x.dtype.is_integer, f"the {kind} of {x.dtype.short}")
    if x.shape is None:
        return x.like()
    if over is None:
        value = static_value(axes) if axes is not None else np.zeros(0, np.int64)
        if value is None:
            if keepdims:
                return x.like(tuple(fresh_symbol("reduce") for _ in x.shape))
            return TensorType(x.dtype, None)
        over = tuple(int(a) for a in value.reshape(-1)) or (() if noop_with_empty_axes else tuple(range(len(x.shape))))
    return x.like(reduced_shape(x.shape, over, keepdims))


def reduced_shape(shape: Shape, over: tuple[int, ...], keepdims: bool) -> Shape:
    """`shape` without the axes `over`, or with ones in their place. Raises ShapeError for a bad axis."""
    axes = {normalize_axis(a, len(shape)) for a in over}
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


@op("reduce")
def argreduce(x: TensorType, *, kind: str, axis: int, keepdims: bool, last: bool = False) -> TensorType:
    """i64 index of the largest (kind "max") or smallest element along `axis`; of equal ones the first, or the last.

    NaN counts as larger and as smaller than everything, as in NumPy. An empty axis is an error.
    """
    require(kind in ("max", "min"), f"there is no index of the {kind}")
    if x.shape is None:
        return TensorType(DType.I64, None)
    axis = normalize_axis(axis, len(x.shape))
    require(x.shape[axis] != 0, f"axis {axis} of {x} is empty")
    return TensorType(DType.I64, reduced_shape(x.shape, (axis,), keepdims))


def _running(x: TensorType, axis: TensorType | None, over: int | None) -> TensorType:
    require(x.dtype.is_float or x.dtype.is_integer, f"running sums of {x.dtype.short}")
    if axis is not None:
        require(axis.dtype in (DType.I32, DType.I64), "the axis is an i32 or i64")
        require(axis.shape is None or not is_static(axis.shape) or len(axis.shape) <= 1, "the axis is a single number")
    elif x.shape is not None and over is not None:
        normalize_axis(over, len(x.shape))
    return x.like()


@op("reduce")
def cumsum(
    x: TensorType, axis: TensorType | None = None, *, over: int | None = None, exclusive: bool, reverse: bool
) -> TensorType:
    """Running sums along `over` (or the axis held by a tensor); `exclusive` leaves the own element out."""
    return _running(x, axis, over)


@op("reduce")
def cumprod(
    x: TensorType, axis: TensorType | None = None, *, over: int | None = None, exclusive: bool, reverse: bool
) -> TensorType:
    """Running products along `over` (or the axis held by a tensor)."""
    return _running(x, axis, over)
