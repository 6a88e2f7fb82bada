"""NumPy kernels of grid sampling, affine grids and col2im, channels first."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from edgerun.backends.numpy.activation import accumulator
from edgerun.backends.numpy.registry import kernel
from edgerun.backends.numpy.windows import tap
from edgerun.errors import ShapeError

Array = np.ndarray
CUBIC = -0.75


@kernel("grid_sample")
def grid_sample(
    x: Array, grid: Array, *, mode: str = "linear", padding: str = "zeros", align_corners: bool = False
) -> Array:
    """See edgerun.ops.spatial.grid_sample. Raises ShapeError when batches differ."""
    if grid.shape[0] != x.shape[0]:
        raise ShapeError(f"a grid of shape {grid.shape} for maps of shape {x.shape}")
    n, sizes = x.ndim - 2, x.shape[2:]
    working = accumulator(grid.dtype)
    places = grid.reshape(x.shape[0], -1, n)[..., ::-1].astype(working, copy=False)
    values = x.reshape(*x.shape[:2], -1)
    y = np.zeros((*x.shape[:2], places.shape[1]), x.dtype if mode == "nearest" else accumulator(x.dtype))
    values = values.astype(y.dtype, copy=False)
    for image in range(x.shape[0] if y.size else 0):
        axes = [_axis_taps(places[image, :, k], sizes[k], mode, padding, align_corners) for k in range(n)]
        for combination in itertools.product(*(range(a[0].shape[0]) for a in axes)):
            index = np.ravel_multi_index([a[0][t] for a, t in zip(axes, combination, strict=True)], sizes)
            cells = values[image][:, index]
            inside = np.all([a[2][t] for a, t in zip(axes, combination, strict=True)], axis=0)
            if mode != "nearest":
                weight = math.prod(a[1][t] for a, t in zip(axes, combination, strict=True))
                cells = cells * np.asarray(weight).astype(y.dtype)
            # Selected, not multiplied by zero: an infinity outside must not leak in.
            y[image] += np.where(inside, cells, y.dtype.type(0))
    return y.reshape(*x.shape[:2], *grid.shape[1:-1]).astype(x.dtype, copy=False)


def _axis_taps(place: Array, length: int, mode: str, padding: str, align_corners: bool) -> tuple[Array, Array, Array]:
    """(cells, weights, inside), each [taps, places], of normalised coordinates along one axis."""
    if length < 1:
        raise ShapeError("a feature map without cells cannot be sampled")
    one = place.dtype.type
    if align_corners:
        position, low, high = (place + one(1)) / one(2) * one(length - 1), 0.0, length - 1.0
    else:
        position, low, high = ((place + one(1)) * one(length) - one(1)) / one(2), -0.5, length - 0.5
    if mode == "nearest":
        position = np.rint(position)
    if padding != "zeros" and mode != "cubic":
        # Cubic weights belong to the place as given: there only the cells are moved, below.
        beyond = (position < low) | (position > high)
        moved = np.clip(position, 0, length - 1) if padding == "border" else _reflected(position, low, high)
        position = np.where(beyond, moved, position).astype(place.dtype)
    base = np.floor(position)
    fraction = position - base
    if mode == "nearest":
        steps, weights = [0], np.ones((1, place.size), place.dtype)
    elif mode == "linear":
        steps, weights = [0, 1], np.stack([1 - fraction, fraction])
    else:
        steps, weights = [-1, 0, 1, 2], _cubic_weights(fraction)
    # Far-off and NaN places stay outside without overflowing the index.
    cells = np.clip(np.nan_to_num(base, nan=-9.0), -9, length + 9)[None] + np.reshape(steps, (-1, 1))
    inside = (cells >= 0) & (cells < length)
    if padding == "reflection":
        cells, inside = np.rint(_reflected(cells, low, high)), np.ones_like(inside)
    elif padding == "border":
        inside = np.ones_like(inside)
    return np.clip(cells, 0, length - 1).astype(np.int64), weights, inside


def _reflected(x: Array, low: float, high: float) -> Array:
    """x folded back into [low, high] as often as needed."""
    span = high - low
    if span <= 0:
        return np.full_like(x, low)
    t = np.mod(x - low, 2 * span)
    return low + np.where(t > span, 2 * span - t, t)


def _cubic_weights(t: Array) -> Array:
    """Weights [4, places] of the cells at -1, 0, 1, 2 around a place t past cell 0 (Keys, 1981)."""
    a = t.dtype.type(CUBIC)
    outer, inner = 1 + t, 1 - t

    def far(d: Array) -> Array:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    def near(d: Array) -> Array:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    return np.stack([far(outer), near(t), near(inner), far(1 + inner)])


@kernel("affine_grid")
def affine_grid(
    theta: Array, size: Array | None = None, *, to: tuple[int, ...] | None = None, align_corners: bool
) -> Array:
    """See edgerun.ops.spatial.affine_grid."""
    target = to if to is not None else tuple(int(s) for s in size) if size is not None else ()
    spatial = target[2:]
    working = accumulator(theta.dtype)
    base = centres(spatial, align_corners).astype(working)
    grid = base @ theta.astype(working, copy=False).swapaxes(1, 2)
    return grid.reshape(theta.shape[0], *spatial, len(spatial)).astype(theta.dtype, copy=False)


def centres(sizes: tuple[int, ...], align_corners: bool) -> Array:
    """Normalised coordinates of all cells, last axis first, and a one: f64 [prod(sizes), axes + 1]."""
    axes = []
    for size in sizes:
        steps = np.arange(size, dtype=np.float64)
        axes.append((2 * steps / max(size - 1, 1) - (size > 1)) if align_corners else (2 * steps + 1) / size - 1)
    grid = np.stack([*np.meshgrid(*axes, indexing="ij")][::-1], axis=-1).reshape(-1, len(sizes))
    return np.concatenate([grid, np.ones((grid.shape[0], 1))], axis=1)


@kernel("col2im")
def col2im(
    x: Array,
    image: Array | None = None,
    block: Array | None = None,
    *,
    to: tuple[int, ...] | None = None,
    kernel: tuple[int, ...] | None = None,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
) -> Array:
    """See edgerun.ops.spatial.col2im. Raises ShapeError when the columns do not fit the image."""
    sizes = to if to is not None else tuple(int(s) for s in np.asarray(image))
    taps = kernel if kernel is not None else tuple(int(s) for s in np.asarray(block))
    n, area = len(sizes), math.prod(taps)
    padded = [sizes[i] + pads[i] + pads[n + i] for i in range(n)]
    counts = [(padded[i] - (taps[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(n)]
    if x.shape[1] % area or x.shape[2] != math.prod(counts):
        raise ShapeError(f"columns of shape {x.shape} do not fit blocks {taps} in an image {sizes}")
    working = accumulator(x.dtype)
    columns = x.astype(working, copy=False).reshape(x.shape[0], -1, *taps, *counts)
    y = np.zeros((x.shape[0], columns.shape[1], *padded), working)
    for position in itertools.product(*map(range, taps)):
        source: Any = (slice(None), slice(None), *position)
        y[(slice(None), slice(None), *tap(position, strides, dilations, counts))] += columns[source]
    inside = tuple(slice(pads[i], pads[i] + sizes[i]) for i in range(n))
    return y[(slice(None), slice(None), *inside)].astype(x.dtype, copy=False)
