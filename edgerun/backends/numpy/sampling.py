"""Reading arrays at fractional places."""

from __future__ import annotations

import itertools

import numpy as np

Array = np.ndarray


def read_linear(x: Array, places: Array) -> Array:
    """Multilinear interpolation of x [*S, C] at places [..., len(S)] (cell units), zero outside -> [..., C]."""
    sizes = np.array(x.shape[:-1])
    low = np.floor(places)
    fraction = (places - low).astype(x.dtype)
    # A NaN or far-off place reads nothing: its corners all lie outside.
    corner = np.clip(np.nan_to_num(low, nan=-2.0), -2, sizes).astype(np.int64)
    flat = x.reshape(-1, x.shape[-1])
    result = np.zeros((*places.shape[:-1], x.shape[-1]), x.dtype)
    for step in itertools.product((0, 1), repeat=len(sizes)):
        cell = corner + np.array(step)
        inside = ((cell >= 0) & (cell < sizes)).all(axis=-1)
        weight = np.where(np.array(step) == 1, fraction, 1 - fraction).prod(axis=-1)
        index = np.ravel_multi_index(
            tuple(np.moveaxis(np.clip(cell, 0, np.maximum(sizes - 1, 0)), -1, 0)), x.shape[:-1]
        )
        result += np.where(inside[..., None], flat[index] * weight[..., None], 0)
    return result
