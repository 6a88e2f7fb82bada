"""NumPy kernels of topk and unique."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.errors import ShapeError

Array = np.ndarray


@kernel("topk")
def topk(
    x: Array,
    k: Array | None = None,
    *,
    count: Any = None,
    axis: int,
    largest: bool = True,
    sorted: bool = True,
) -> tuple[Array, Array]:
    """See edgerun.ops.sort.topk."""
    wanted = int(k.reshape(())) if k is not None else int(count)
    if not 0 <= wanted <= x.shape[axis]:
        raise ShapeError(f"{wanted} of the {x.shape[axis]} elements of axis {axis}")
    keys = x if x.dtype.kind in "fiu" else x.astype(np.float32)
    # A stable ascending order of the reversed axis, reversed again, puts equal elements in order of their indices.
    if largest:
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(keys, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(keys, axis=axis, kind="stable")
    index = np.take(order, np.arange(wanted), axis=axis)
    return np.take_along_axis(x, index, axis), index.astype(np.int64)


@kernel("unique")
def unique(x: Array, *, axis: int | None = None, sorted: bool = True) -> tuple[Array, Array, Array, Array]:
    """See edgerun.ops.sort.unique."""
    plain = x.astype(str) if x.dtype == object else x
    values, first, inverse, counts = np.unique(
        plain, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        first, counts, inverse = first[order], counts[order], rank[inverse]
        values = np.take(values, order, axis=0 if axis is None else axis)
    result = values.astype(object) if x.dtype == object else values
    return result, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)
