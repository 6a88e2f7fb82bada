"""Quantisers of weights and of ranges."""

from __future__ import annotations

import numpy as np

GROUP = 32
"""Weights that share a scale in the 8 and 4-bit modes."""
TINY = 1e-30
"""Weights below this are zeros: their scale would not be a normal number."""


def per_channel(w: np.ndarray, axis: int, least: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """f32 weights to (i8 codes in -127..127, f32 scale for each index of `axis`, at least `least`).

    A channel of nothing above TINY has scale 1.
    """
    others = tuple(k for k in range(w.ndim) if k != axis)
    largest = np.abs(w).max(axis=others)
    scale = np.maximum(np.where(largest > TINY, largest / 127, 1), least).astype(np.float32)
    shape = [-1 if k == axis else 1 for k in range(w.ndim)]
    return np.clip(np.rint(w / scale.reshape(shape)), -127, 127).astype(np.int8), scale


def in_groups(w: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """W [N, K], K a multiple of GROUP, to (codes u8 [N, K / GROUP, GROUP * bits / 8], scales f32 [N, K / GROUP]).

    Codes have the zero point 2^(bits - 1); the weight of largest magnitude in a group gets the code 0 of the sign that
    reaches further. Scales are rounded to f16, in which the native plan stores them.
    """
    n, k = w.shape
    groups = w.reshape(n, k // GROUP, GROUP).astype(np.float32)
    zero = 1 << (bits - 1)
    index = np.abs(groups).argmax(axis=-1)[..., None]
    scale = (np.take_along_axis(groups, index, -1)[..., 0] / -zero).astype(np.float16).astype(np.float32)
    divisor = np.where(scale == 0, 1, scale)[..., None]
    codes = np.clip(np.rint(groups / divisor) + zero, 0, 2 * zero - 1).astype(np.uint8)
    if bits == 4:
        codes = codes[..., 0::2] | codes[..., 1::2] << 4
    return codes, scale


def codes_of_range(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """(scale f32, zero point u8) of codes 0..255 over [low, high], which holds 0."""
    scale = np.float32((high - low) / 255) if high > low else np.float32(1)
    return np.asarray(scale), np.asarray(np.clip(np.rint(-low / scale), 0, 255), np.uint8)
