"""Padding and sliding windows over channels-last arrays, as views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

Array = np.ndarray


def pad_spatial(x: Array, before: Sequence[int], after: Sequence[int], value: Any = 0) -> Array:
    """x [N, *S, C] with constant padding around the spatial axes; x itself when there is none."""
    if not any(before) and not any(after):
        return x
    sizes = [b + s + a for b, s, a in zip(before, x.shape[1:-1], after, strict=True)]
    padded = np.full((x.shape[0], *sizes, x.shape[-1]), value, x.dtype)
    inside = tuple(slice(b, b + s) for b, s in zip(before, x.shape[1:-1], strict=True))
    padded[(slice(None), *inside)] = x
    return padded


def windows(
    x: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], counts: Sequence[int]
) -> Array:
    """The view [N, *counts, *kernel, C] of windows of x [N, *S, C], which must contain all of them. Read only."""
    step = x.strides[1:-1]
    return as_strided(
        x,
        (x.shape[0], *counts, *kernel, x.shape[-1]),
        (
            x.strides[0],
            *(t * s for t, s in zip(step, strides, strict=True)),
            *(t * d for t, d in zip(step, dilations, strict=True)),
            x.strides[-1],
        ),
        writeable=False,
    )


def tap(
    position: Sequence[int], strides: Sequence[int], dilations: Sequence[int], counts: Sequence[int]
) -> tuple[slice, ...]:
    """The slices of the padded spatial axes that kernel position `position` reads, one cell for each window."""
    return tuple(
        slice(p * d, p * d + max((c - 1) * s + 1, 0), s)
        for p, s, d, c in zip(position, strides, dilations, counts, strict=True)
    )
