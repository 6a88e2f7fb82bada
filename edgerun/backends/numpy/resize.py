"""NumPy kernel of resizing: one axis after the other, each as a weighted sum of gathered cells."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.activation import accumulator
from edgerun.backends.numpy.registry import kernel
from edgerun.errors import ShapeError
from edgerun.ops.resample import Axis, Filter, Taps, apply_policy, exact, scaled_size, taps

Array = np.ndarray
MAX_GATHERS = 6
"""Wider filters (antialiasing) are applied as one product with a matrix."""


@kernel("resize")
def resize(
    x: Array,
    scales: Array | None = None,
    sizes: Array | None = None,
    roi: Array | None = None,
    *,
    axes: tuple[int, ...],
    factors: tuple[float, ...] | None = None,
    to: tuple[int, ...] | None = None,
    mode: str = "nearest",
    coordinate: str = "half_pixel",
    nearest: str = "round_prefer_floor",
    cubic_coeff: float = -0.75,
    exclude_outside: bool = False,
    extrapolation: float = 0.0,
    antialias: bool = False,
    policy: str = "stretch",
) -> Array:
    """See edgerun.ops.resize.resize. Raises ShapeError for factors that are not positive."""
    plans = _axes(x, scales, sizes, roi if coordinate == "tf_crop_and_resize" else None, axes, factors, to, policy)
    kind = Filter(mode, coordinate, nearest, cubic_coeff, exclude_outside and mode != "nearest", antialias)
    y, integer = x, np.dtype(x.dtype).kind in "iu"
    if mode != "nearest":
        y = x.astype(np.float64 if integer else accumulator(x.dtype), copy=False)
    outside = np.zeros((), bool)
    # The axis that shrinks most goes first: less work for the others.
    for axis, plan in sorted(plans.items(), key=lambda p: p[1].count / max(p[1].length, 1)):
        found = taps(plan, kind)
        y = y.take(found.index[:, 0], axis) if mode == "nearest" else _interpolated(y, axis, found)
        if coordinate == "tf_crop_and_resize":
            outside = outside | found.outside.reshape([-1 if k == axis else 1 for k in range(x.ndim)])
    if outside.any():
        y = np.where(outside, y.dtype.type(extrapolation), y)
    if integer and mode != "nearest":
        limits = np.iinfo(x.dtype)
        whole = np.rint(y)
        if not antialias:
            # Weights such as 0.1 + 0.9 leave whole results a rounding error short of themselves.
            whole = np.where(np.abs(y - whole) < 1e-6, whole, np.trunc(y))
        y = np.clip(whole, limits.min, limits.max)
    return np.ascontiguousarray(y.astype(x.dtype, copy=False))


def _axes(
    x: Array,
    scales: Array | None,
    sizes: Array | None,
    roi: Array | None,
    axes: tuple[int, ...],
    factors: tuple[float, ...] | None,
    to: tuple[int, ...] | None,
    policy: str,
) -> dict[int, Axis]:
    lengths = [x.shape[a] for a in axes]
    if scales is not None:
        values = [float(s) for s in scales]
        counts: list[Any] = [scaled_size(n, s) for n, s in zip(lengths, values, strict=True)]
        ratios = [exact(s) for s in values]
    else:
        wanted = [int(s) for s in sizes] if sizes is not None else list(to or ())
        if any(s < 0 for s in wanted):
            raise ShapeError(f"the sizes {wanted} are negative")
        counts, ratios = apply_policy(lengths, wanted, policy)
        if factors is not None:
            ratios = [exact(f) for f in factors]
    regions = [(0.0, 1.0)] * len(axes)
    if roi is not None:
        regions = [(float(roi[k]), float(roi[len(axes) + k])) for k in range(len(axes))]
    return {
        axis: Axis(length, count, ratio, region)
        for axis, length, count, ratio, region in zip(axes, lengths, counts, ratios, regions, strict=True)
        if length != count or ratio != 1 or roi is not None
    }


def _interpolated(x: Array, axis: int, found: Taps) -> Array:
    """x with `axis` replaced by weighted sums of its cells."""
    weight = found.weight.astype(x.dtype)
    if weight.shape[1] > MAX_GATHERS:
        matrix = np.zeros((weight.shape[0], x.shape[axis]), x.dtype)
        np.add.at(matrix, (np.arange(weight.shape[0])[:, None], found.index), weight)
        return np.moveaxis(np.moveaxis(x, axis, -1) @ matrix.T, -1, axis)
    shape = [-1 if k == axis else 1 for k in range(x.ndim)]
    total = x.take(found.index[:, 0], axis) * weight[:, 0].reshape(shape)
    for k in range(1, weight.shape[1]):
        total += x.take(found.index[:, k], axis) * weight[:, k].reshape(shape)
    return total
