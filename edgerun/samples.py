"""Seeded test data that every machine draws alike: the launcher of packed files has the same generator in C."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgerun.dtypes import DType


def _mix(x: np.ndarray) -> np.ndarray:
    """splitmix64 of uint64 numbers."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def random_values(dtype: DType, shape: Sequence[int], seed: int) -> np.ndarray:
    """Deterministic test data, equal on every machine.

    Floats: multiples of 2^-10 in [-1, 1). 8-bit integers: all values. Wider integers and bools: 0 or 1, so that they
    are valid as indices and masks.
    """
    count = int(np.prod(shape, dtype=np.int64))
    with np.errstate(over="ignore"):
        start = _mix(np.array([seed], np.uint64))
        draws = _mix(start + np.arange(count, dtype=np.uint64))
    if dtype.is_float:
        values = ((draws >> np.uint64(53)).astype(np.int64) - 1024) / 1024
        if dtype is DType.BF16:  # cut off, as the launcher does
            bits = values.astype(np.float32).view(np.uint32) >> np.uint32(16)
            return bits.astype(np.uint16).view(dtype.numpy).reshape(shape)
        return values.astype(dtype.numpy).reshape(shape)
    if dtype in (DType.I8, DType.U8):
        return (draws >> np.uint64(56)).astype(np.uint8).view(dtype.numpy).reshape(shape)
    return (draws >> np.uint64(63)).astype(dtype.numpy).reshape(shape)
