"""NumPy kernels of pooling, channels last. Windows are boxes, so maxima and sums go one axis at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from edgerun.backends.numpy.activation import accumulator
from edgerun.backends.numpy.registry import kernel
from edgerun.backends.numpy.windows import tap
from edgerun.errors import ShapeError
from edgerun.ops.pool import unpooled_sizes
from edgerun.ops.windows import window_counts

Array = np.ndarray


@kernel("pool")
def pool(
    x: Array,
    *,
    kind: str,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    p: int = 2,
) -> Array:
    """See edgerun.ops.pool.pool."""
    counts: Any = window_counts(x.shape[1:-1], kernel, strides, dilations, pads, ceil_mode)
    n, window = x.ndim - 2, (kernel, strides, dilations, pads, counts)
    if kind == "max":
        return _along_axes(x, lowest(x.dtype), np.maximum, *window)
    values = x.astype(accumulator(x.dtype), copy=False)
    if kind == "lp":
        powers = np.abs(values) if p == 1 else values * values if p == 2 else np.abs(values) ** p
        total = _along_axes(powers, 0, np.add, *window)
        y = total if p == 1 else np.sqrt(total) if p == 2 else total ** values.dtype.type(1 / p)
        return y.astype(x.dtype, copy=False)
    total = _along_axes(values, 0, np.add, *window)
    divisor = np.ones(1, np.int64)
    for i in range(n):
        edge = pads[i] if count_include_pad else 0
        limit = x.shape[1 + i] + (pads[n + i] if count_include_pad else 0)
        cells = np.arange(counts[i])[:, None] * strides[i] - pads[i] + np.arange(kernel[i]) * dilations[i]
        held = ((cells >= -edge) & (cells < limit)).sum(axis=1)
        divisor = divisor[..., None, :] * held[:, None]
    return (total / divisor.astype(values.dtype)).astype(x.dtype, copy=False)


def lowest(dtype: Any) -> Any:
    """What loses against every value: minus infinity, or the smallest integer."""
    dtype = np.dtype(dtype)
    return np.iinfo(dtype).min if dtype.kind in "iu" else dtype.type(-math.inf)


def _along_axes(
    x: Array,
    neutral: Any,
    join: Callable[..., Array],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    counts: tuple[int, ...],
) -> Array:
    """Join the cells of each window of x [N, *S, C], axis by axis; cells outside are `neutral`. May return x itself."""
    for i in range(x.ndim - 2):
        axis = i + 1
        end = (counts[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1
        after = max(end - pads[i] - x.shape[axis], 0)
        if pads[i] or after:
            shape = list(x.shape)
            shape[axis] += pads[i] + after
            padded = np.full(shape, neutral, x.dtype)
            padded[(slice(None),) * axis + (slice(pads[i], pads[i] + x.shape[axis]),)] = x
            x = padded
        result: Array | None = None
        for k in range(kernel[i]):
            cells = x[(slice(None),) * axis + tap((k,), strides[i : i + 1], dilations[i : i + 1], counts[i : i + 1])]
            result = cells if result is None else join(result, cells, out=result if k > 1 else None)
        assert result is not None
        x = result
    return np.ascontiguousarray(x)


@kernel("max_pool_indices")
def max_pool_indices(
    x: Array,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    ceil_mode: bool = False,
    column_major: bool = False,
) -> tuple[Array, Array]:
    """See edgerun.ops.pool.max_pool_indices."""
    sizes, channels = x.shape[1:-1], x.shape[-1]
    counts: Any = window_counts(sizes, kernel, strides, dilations, pads, ceil_mode)
    y = np.full((x.shape[0], *counts, channels), lowest(x.dtype), x.dtype)
    best = np.full(y.shape, -1, np.int64)
    axes = [
        np.arange(c)[:, None] * s - p + np.arange(k) * d
        for c, s, p, k, d in zip(counts, strides, pads, kernel, dilations, strict=False)
    ]
    order: Any = "F" if column_major else "C"
    for position in itertools.product(*map(range, kernel)):
        cells = [a[:, k] for a, k in zip(axes, position, strict=True)]
        clipped = [np.clip(c, 0, s - 1) for c, s in zip(cells, sizes, strict=True)]
        inside = np.ones(counts, bool)
        for i, (c, s) in enumerate(zip(cells, sizes, strict=True)):
            inside &= ((c >= 0) & (c < s)).reshape([-1 if k == i else 1 for k in range(len(sizes))])
        grid: Any = np.ix_(*clipped)
        values = x[(slice(None), *grid)]
        place = np.ravel_multi_index(grid, sizes, order=order)
        wins = (best < 0) | (values > y)
        if x.dtype.kind not in "iu":
            wins |= np.isnan(values) & ~np.isnan(y)
        wins &= inside[..., None]
        np.copyto(y, values, where=wins)
        np.copyto(best, place[..., None], where=wins)
    plane = math.prod(sizes)
    image = np.arange(x.shape[0]).reshape(-1, *[1] * (x.ndim - 1)) * channels
    return y, np.where(best < 0, best, best + (image + np.arange(channels)) * plane)


@kernel("max_unpool")
def max_unpool(
    x: Array,
    indices: Array,
    size: Array | None = None,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    to: tuple[int, ...] | None = None,
) -> Array:
    """See edgerun.ops.pool.max_unpool. Raises ShapeError for an index outside the output."""
    source: Any = unpooled_sizes(x.shape[2:], kernel, strides, pads)
    flat = np.zeros(x.shape[0] * x.shape[1] * math.prod(source), x.dtype)
    if indices.shape != x.shape:
        raise ShapeError(f"indices of shape {indices.shape} do not fit values of shape {x.shape}")
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= flat.size):
        raise ShapeError(f"an index lies outside the {flat.size} elements of the output")
    flat[indices.ravel()] = x.ravel()
    y = flat.reshape(*x.shape[:2], *source)
    target = to if size is None else tuple(int(s) for s in size)
    if target is None or tuple(target[2:]) == source:
        return y
    if any(t < s for t, s in zip(target[2:], source, strict=True)):
        raise ShapeError(f"the output shape {target} is smaller than the {source} that was pooled")
    return np.pad(y, [(0, 0), (0, 0), *((0, t - s) for t, s in zip(target[2:], source, strict=True))])
