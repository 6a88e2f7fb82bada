"""NumPy kernels of the reductions."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.casts import convert
from edgerun.backends.numpy.elementwise import FUNCTIONS
from edgerun.backends.numpy.registry import kernel
from edgerun.dims import Dim, product
from edgerun.dtypes import from_numpy
from edgerun.errors import ShapeError
from edgerun.ops.registry import normalize_axis

Array = np.ndarray


@kernel("reduce")
def reduce(
    x: Array,
    axes: Array | None = None,
    *,
    kind: str,
    over: tuple[int, ...] | None = None,
    keepdims: bool = True,
    noop_with_empty_axes: bool = False,
) -> Array:
    """See edgerun.ops.reduce.reduce. Object arrays of dimensions may be summed and multiplied."""
    if over is None:
        over = () if axes is None else tuple(int(a) for a in axes.reshape(-1).tolist())
        if not over and not noop_with_empty_axes:
            over = tuple(range(x.ndim))
    over = tuple(sorted({normalize_axis(a, x.ndim) for a in over})) if x.ndim else ()
    if x.dtype == object:
        return _reduce_dims(x, kind, over, keepdims)
    if not over and kind in ("sum", "mean", "max", "min", "prod"):
        return x.copy()
    return _reduce(x, kind, over, keepdims)


def _working(x: Array) -> Any:
    """The type to accumulate in."""
    dtype = from_numpy(x.dtype)
    if dtype.is_float:
        return x.dtype if x.dtype in (np.float32, np.float64) else np.float32
    return x.dtype if x.dtype.itemsize >= 4 else np.int64


def _reduce(x: Array, kind: str, over: tuple[int, ...], keepdims: bool) -> Array:
    options: dict[str, Any] = {"axis": over, "keepdims": keepdims}
    if kind in ("max", "min"):
        return _extreme(x, kind, options)
    if kind == "mean" and from_numpy(x.dtype).is_integer:
        return _integer_mean(x, over, keepdims)
    wide = x.astype(_working(x), copy=False)
    if kind in ("logsum", "logsumexp", "l2") and wide.dtype.kind != "f":
        wide = wide.astype(np.float64)
    # Floats add in double: a reference must not round more than the kernels that are compared with it.
    adding = options | ({"dtype": np.float64} if wide.dtype.kind == "f" else {})
    if kind == "sum":
        result = wide.sum(**adding)
    elif kind == "mean":
        count = int(np.prod([x.shape[a] for a in over]))
        result = wide.sum(**adding) / np.asarray(count, wide.dtype)
    elif kind == "prod":
        result = wide.prod(**options)
    elif kind == "l1":
        result = np.abs(wide).sum(**adding)
    elif kind == "sumsq":
        result = (wide * wide).sum(**adding)
    elif kind == "l2":
        result = np.sqrt((wide * wide).sum(**adding))
    elif kind == "logsum":
        result = np.log(wide.sum(**adding))
    else:
        largest = wide.max(axis=over, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(largest), largest, 0)
        result = np.log(np.exp(wide - shift).sum(**adding)) + (shift if keepdims else np.squeeze(shift, over))
    return _narrow(np.asarray(result), x)


def _integer_mean(x: Array, over: tuple[int, ...], keepdims: bool) -> Array:
    """The sum in 64 bits over the count, truncated toward zero; 0 of nothing."""
    total = x.astype(np.uint64 if x.dtype == np.uint64 else np.int64).sum(axis=over, keepdims=keepdims)
    count = max(int(np.prod([x.shape[a] for a in over])), 1)
    return np.asarray(FUNCTIONS["div"](np.asarray(total), np.asarray(count, total.dtype))).astype(x.dtype)


def _narrow(result: Array, x: Array) -> Array:
    """In the type of x: floats round; to integers, integers wrap and floats truncate and saturate, NaN gives 0."""
    dtype = from_numpy(x.dtype)
    return convert(result, dtype) if dtype.is_integer else result.astype(x.dtype, copy=False)


def _extreme(x: Array, kind: str, options: dict[str, Any]) -> Array:
    wide: Any = x if x.dtype.kind in "fiub" else x.astype(np.float32)
    initial: Any
    function: Any = np.maximum if kind == "max" else np.minimum
    if wide.dtype.kind == "f":
        initial = -np.inf if kind == "max" else np.inf
    elif wide.dtype.kind == "b":
        initial = kind != "max"
    else:
        limits = np.iinfo(wide.dtype)
        initial = limits.min if kind == "max" else limits.max
    if wide.dtype.kind == "b":
        function = np.logical_or if kind == "max" else np.logical_and
    return _narrow(np.asarray(function.reduce(wide, initial=initial, **options)), x)


def _reduce_dims(x: Array, kind: str, over: tuple[int, ...], keepdims: bool) -> Array:
    if kind not in ("sum", "prod") or len(over) != x.ndim or not all(isinstance(v, int | Dim) for v in x.ravel()):
        raise ShapeError(f"the {kind} of symbolic dimensions")
    values = x.ravel().tolist()
    total = product(values) if kind == "prod" else sum(values)
    result = np.empty((1,) * x.ndim if keepdims else (), object)
    result[...] = total
    return result


@kernel("argreduce")
def argreduce(x: Array, *, kind: str, axis: int, keepdims: bool, last: bool = False) -> Array:
    """See edgerun.ops.reduce.argreduce."""
    find = np.argmax if kind == "max" else np.argmin
    wide = x if x.dtype.kind in "fiub" else x.astype(np.float32)
    if last:
        index = x.shape[axis] - 1 - find(np.flip(wide, axis), axis=axis)
    else:
        index = find(wide, axis=axis)
    result = np.asarray(index, np.int64)
    return np.expand_dims(result, axis) if keepdims else result


def _running(x: Array, axis: Array | None, over: int | None, exclusive: bool, reverse: bool, product_: bool) -> Array:
    place = int(axis.reshape(())) if axis is not None else over
    assert place is not None
    wide = x.astype(_working(x), copy=False)
    wide = np.flip(wide, place) if reverse else wide
    result = (np.cumprod if product_ else np.cumsum)(wide, axis=place, dtype=wide.dtype)
    if exclusive:
        shifted = np.full_like(result, 1 if product_ else 0)
        to, source = [slice(None)] * x.ndim, [slice(None)] * x.ndim
        to[place], source[place] = slice(1, None), slice(None, -1)
        shifted[tuple(to)] = result[tuple(source)]
        result = shifted
    result = np.flip(result, place) if reverse else result
    return result.astype(x.dtype)


@kernel("cumsum")
def cumsum(x: Array, axis: Array | None = None, *, over: int | None = None, exclusive: bool, reverse: bool) -> Array:
    """See edgerun.ops.reduce.cumsum."""
    return _running(x, axis, over, exclusive, reverse, False)


@kernel("cumprod")
def cumprod(x: Array, axis: Array | None = None, *, over: int | None = None, exclusive: bool, reverse: bool) -> Array:
    """See edgerun.ops.reduce.cumprod."""
    return _running(x, axis, over, exclusive, reverse, True)
