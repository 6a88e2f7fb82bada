"""Where each output cell of a resized axis reads from, and with which weights.

Every coordinate transformation of ONNX Resize is affine in the output index, x(i) = start + i * step. Both are kept as
exact fractions, so that halves stay halves: 20 cells to 6 puts output 1 at exactly 4.5. A scale given as float32 counts
as the simplest fraction that rounds to it (3.3333333 is 10/3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from edgerun.dims import Dim, DimLike, floordiv
from edgerun.errors import ShapeError

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
"""simple: floor when enlarging, ceil when shrinking (what Resize 10 and Upsample mean)."""
POLICIES = ("stretch", "not_larger", "not_smaller")


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis to be resized: `length` cells become `count`, `scale` is the factor that coordinates use."""

    length: int
    count: int
    scale: Fraction
    roi: tuple[float, float] = (0.0, 1.0)
    """Start and end of the region that tf_crop_and_resize reads, relative to length - 1."""


@dataclass(frozen=True, slots=True)
class Filter:
    """How to interpolate; see `edgerun.ops.resize.resize`."""

    mode: str
    coordinate: str
    nearest: str
    cubic_coeff: float
    exclude_outside: bool
    antialias: bool


@dataclass(frozen=True, slots=True)
class Taps:
    """Cells that each output cell reads: index [count, taps] i64, weight [count, taps] f64, outside [count] bool."""

    index: np.ndarray
    weight: np.ndarray
    outside: np.ndarray
    """Whether the coordinate lies outside the input (only tf_crop_and_resize asks)."""


def exact(scale: float) -> Fraction:
    """The simplest fraction that rounds to `scale` in float32. Raises ShapeError unless the scale is positive."""
    value = float(np.float32(scale))
    if not 0 < value < float("inf"):
        raise ShapeError(f"a resize factor of {scale} is not positive")
    for limit in (16, 256, 4096):
        fraction = Fraction(float(scale)).limit_denominator(limit)
        if fraction > 0 and float(np.float32(float(fraction))) == value:
            return fraction
    return Fraction(value)


def scaled_size(size: DimLike, scale: float) -> DimLike | None:
    """floor(size * scale), multiplied in float32 as the standard's shape inference does; None when not expressible."""
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    fraction = exact(scale)
    if fraction.denominator > 1 << 30 or fraction.numerator > 1 << 30:
        return None
    return floordiv(size * fraction.numerator, fraction.denominator)


def apply_policy(lengths: Sequence[int], sizes: Sequence[int], policy: str) -> tuple[list[int], list[Fraction]]:
    """(output sizes, scales) for requested sizes; the policies other than stretch keep the aspect ratio.

    Raises ShapeError for an unknown policy.
    """
    if policy not in POLICIES:
        raise ShapeError(f"there is no aspect ratio policy {policy!r}")
    scales = [Fraction(s, max(n, 1)) for n, s in zip(lengths, sizes, strict=True)]
    if policy == "stretch":
        return list(sizes), scales
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [int(scale * n + Fraction(1, 2)) for n in lengths], [scale] * len(scales)


@lru_cache(maxsize=256)
def taps(axis: Axis, kind: Filter) -> Taps:
    """The taps of every output cell of an axis."""
    if axis.length < 1 and axis.count > 0:
        raise ShapeError(f"an axis without cells cannot be resized to {axis.count}")
    start, step = _affine(axis, kind.coordinate)
    denominator = start.denominator * step.denominator
    first, delta = int(start * denominator), int(step * denominator)
    # Python integers in an object array: exact for any fraction.
    numerator = first + delta * np.arange(axis.count).astype(object)
    outside = np.array([not 0 <= x <= (axis.length - 1) * denominator for x in numerator], bool)
    if kind.mode == "nearest":
        index = _nearest(numerator, denominator, kind.nearest, axis.scale).astype(np.int64)[:, None]
        weight = np.ones(index.shape)
    else:
        low = (numerator // denominator).astype(np.int64)
        fraction = ((numerator % denominator) / denominator).astype(np.float64)
        index, weight = _weights(low, fraction, kind, float(axis.scale))
    if kind.exclude_outside:
        weight = np.where((index >= 0) & (index < axis.length), weight, 0.0)
        weight = weight / weight.sum(axis=1, keepdims=True)
    return Taps(np.clip(index, 0, axis.length - 1), weight, outside)


def _affine(axis: Axis, coordinate: str) -> tuple[Fraction, Fraction]:
    """(start, step) of the input coordinate of output cell i: start + i * step."""
    length, count, scale = axis.length, axis.count, axis.scale
    half, zero = Fraction(1, 2), Fraction(0)
    if coordinate == "asymmetric":
        return zero, 1 / scale
    if coordinate == "tf_half_pixel_for_nn":
        return half / scale, 1 / scale
    if coordinate == "half_pixel" or (coordinate == "pytorch_half_pixel" and count > 1):
        return half / scale - half, 1 / scale
    if coordinate == "pytorch_half_pixel":
        return zero, zero
    if coordinate == "half_pixel_symmetric":
        adjustment = count / (scale * length)
        return Fraction(length, 2) * (1 - adjustment) + half / scale - half, 1 / scale
    if coordinate == "align_corners":
        # The reference divides by the unrounded output length; the two agree whenever length * scale is whole.
        width = length * scale
        return zero, (length - 1) / (width - 1) if count > 1 and width > 1 else zero
    if coordinate == "tf_crop_and_resize":
        low, high = (Fraction(r) for r in axis.roi)
        if count > 1:
            return low * (length - 1), (high - low) * (length - 1) / (count - 1)
        return half * (low + high) * (length - 1), zero
    raise ShapeError(f"there is no coordinate transformation {coordinate!r}")


def _nearest(numerator: np.ndarray, denominator: int, rule: str, scale: Fraction) -> np.ndarray:
    if rule == "simple":
        rule = "ceil" if scale < 1 else "floor"
    if rule == "floor":
        return numerator // denominator
    if rule == "ceil":
        return -(-numerator // denominator)
    if rule == "round_prefer_floor":
        return -((denominator - 2 * numerator) // (2 * denominator))
    return (2 * numerator + denominator) // (2 * denominator)


def _weights(low: np.ndarray, fraction: np.ndarray, kind: Filter, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """(cells, weights) around low + fraction. Antialiasing widens the filter by 1 / scale when shrinking."""
    squeeze = min(scale, 1.0) if kind.antialias else 1.0
    radius = (1 if kind.mode == "linear" else 2) / squeeze
    reach = np.arange(-int(np.ceil(radius)) + 1, int(np.ceil(radius)) + 1)
    distance = np.abs(reach - fraction[:, None]) * squeeze
    weight = np.maximum(1 - distance, 0) if kind.mode == "linear" else _cubic(distance, kind.cubic_coeff)
    if squeeze < 1:
        weight = weight / weight.sum(axis=1, keepdims=True)
    return low[:, None] + reach, weight


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic convolution kernel (1981) with parameter a."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = a * (((d - 5) * d + 8) * d - 4)
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def symbolic(sizes: Sequence[DimLike]) -> bool:
    """Whether any size is not a number."""
    return any(isinstance(s, Dim) for s in sizes)
