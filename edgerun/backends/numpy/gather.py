"""NumPy kernels of indexing. Indices out of range are errors; negative ones count from the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.casts import convert
from edgerun.backends.numpy.registry import kernel
from edgerun.dtypes import DType
from edgerun.errors import ShapeError
from edgerun.ops.registry import normalize_axis

Array = np.ndarray


def _in_range(indices: Array, length: int) -> Array:
    if indices.size and (indices.min() < -length or indices.max() >= length):
        raise ShapeError(f"an index is outside an axis of {length}")
    return np.where(indices < 0, indices + length, indices)


@kernel("gather")
def gather(x: Array, indices: Array, *, axis: int) -> Array:
    """See edgerun.ops.gather.gather."""
    axis = normalize_axis(axis, x.ndim)
    places = _in_range(indices.astype(np.int64), x.shape[axis])
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    # Flat indices: NumPy would return a scalar, not an array, for a rank-0 index.
    return np.take(x, places.reshape(-1), axis=axis).reshape(shape)


@kernel("gather_elements")
def gather_elements(x: Array, indices: Array, *, axis: int) -> Array:
    """See edgerun.ops.gather.gather_elements."""
    return x[_element_index(indices, x.shape, axis)]


def _element_index(indices: Array, shape: tuple[int, ...], axis: int) -> tuple[Array, ...]:
    """Full index of every element that an *_elements op names."""
    if len(indices.shape) != len(shape):
        raise ShapeError(f"indices of shape {indices.shape} name elements of shape {shape}: the ranks differ")
    index = list(np.meshgrid(*(np.arange(n) for n in indices.shape), indexing="ij", sparse=True))
    index[axis] = _in_range(indices.astype(np.int64), shape[axis])
    return tuple(index)


@kernel("gather_nd")
def gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """See edgerun.ops.gather.gather_nd."""
    batch = x.shape[:batch_dims]
    index: list[Any] = []
    for i, n in enumerate(batch):
        index.append(np.arange(n).reshape([-1 if j == i else 1 for j in range(indices.ndim - 1)]))
    index += _tuples(indices, x.shape[batch_dims:])
    if not index:
        return np.broadcast_to(x, (*indices.shape[:-1], *x.shape)).copy()
    return np.asarray(x[tuple(index)], x.dtype)  # one index tuple of full depth gives a scalar


def _tuples(indices: Array, shape: tuple[int, ...]) -> list[Array]:
    """The columns of index tuples, checked against the axes they index."""
    return [_in_range(indices[..., i].astype(np.int64), shape[i]) for i in range(indices.shape[-1])]


_COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(x: Array, index: tuple[Any, ...], updates: Array, reduction: str) -> Array:
    result = x.copy()
    if reduction == "none":
        result[index] = updates
        return result
    wide = result if result.dtype.kind in "fiub" else result.astype(np.float32)
    _COMBINE[reduction].at(wide, index, updates.astype(wide.dtype, copy=False))
    return wide.astype(x.dtype, copy=False)


@kernel("scatter_elements")
def scatter_elements(x: Array, indices: Array, updates: Array, *, axis: int, reduction: str = "none") -> Array:
    """See edgerun.ops.gather.scatter_elements."""
    if updates.shape != indices.shape:  # NumPy would broadcast
        raise ShapeError(f"updates of shape {updates.shape} for indices of shape {indices.shape}")
    return _scatter(x, _element_index(indices, x.shape, axis), updates, reduction)


@kernel("scatter_nd")
def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """See edgerun.ops.gather.scatter_nd."""
    index = tuple(_tuples(indices, x.shape))
    if not index:
        raise ShapeError("scatter_nd with index tuples of length 0")
    expected = (*indices.shape[:-1], *x.shape[indices.shape[-1] :])
    if updates.shape != expected:  # NumPy would broadcast
        raise ShapeError(f"updates of shape {updates.shape}, expected {expected}")
    return _scatter(x, index, updates, reduction)


@kernel("one_hot")
def one_hot(indices: Array, depth: Array, values: Array, *, axis: int) -> Array:
    """See edgerun.ops.gather.one_hot."""
    size = int(depth.reshape(-1)[0])
    places = np.expand_dims(convert(indices, DType.I64), axis % (indices.ndim + 1))
    places = np.where(places < 0, places + size, places)
    line = np.arange(size).reshape([-1 if i == axis % (indices.ndim + 1) else 1 for i in range(indices.ndim + 1)])
    return np.where(places == line, values[1], values[0]).astype(values.dtype)


@kernel("compress")
def compress(x: Array, condition: Array, *, axis: int | None = None) -> Array:
    """See edgerun.ops.gather.compress."""
    flat = x.reshape(-1) if axis is None else x
    place = 0 if axis is None else axis
    chosen = np.flatnonzero(condition[: flat.shape[place]])
    return np.take(flat, chosen, axis=place)


@kernel("nonzero")
def nonzero(x: Array) -> Array:
    """See edgerun.ops.gather.nonzero."""
    plain = np.atleast_1d(x if x.dtype.kind in "fiub" else x.astype(np.float32))
    return np.array(np.nonzero(plain), np.int64).reshape(max(x.ndim, 1), -1)


@kernel("trilu")
def trilu(x: Array, k: Array | None = None, *, upper: bool) -> Array:
    """See edgerun.ops.gather.trilu."""
    shift = 0 if k is None else int(k.reshape(()))
    rows, columns = x.shape[-2:]
    distance = np.arange(columns) - np.arange(rows)[:, None]
    empty = np.array("", object) if x.dtype == object else np.zeros((), x.dtype)
    return np.where(distance >= shift if upper else distance <= shift, x, empty)


@kernel("reverse_sequence")
def reverse_sequence(x: Array, lengths: Array, *, batch_axis: int, time_axis: int) -> Array:
    """See edgerun.ops.gather.reverse_sequence."""
    steps = x.shape[time_axis]
    if lengths.size and (lengths.min() < 0 or lengths.max() > steps):
        raise ShapeError(f"a sequence length is outside 0..{steps}")
    time = np.arange(steps)[None, :]
    index = np.where(time < lengths[:, None], lengths[:, None] - 1 - time, time)
    index = index if batch_axis == 0 else index.T
    return np.take_along_axis(x, index.reshape(*index.shape, *[1] * (x.ndim - 2)), axis=time_axis)


@kernel("tensor_scatter")
def tensor_scatter(
    past: Array, update: Array, offsets: Array | None = None, *, axis: int, mode: str = "linear"
) -> Array:
    """See edgerun.ops.gather.tensor_scatter."""
    place = axis % past.ndim
    result = past.copy()
    length, count = past.shape[place], update.shape[place]
    for batch in range(past.shape[0]):
        start = 0 if offsets is None else int(offsets[batch])
        steps = start + np.arange(count)
        if mode == "circular":
            steps = steps % max(length, 1)
        elif count and (start < 0 or start + count > length):
            raise ShapeError(f"{count} entries from {start} on do not fit an axis of {length}")
        index: list[Any] = [slice(None)] * (past.ndim - 1)
        index[place - 1] = steps
        result[batch][tuple(index)] = update[batch]
    return result
