"""Weights that a name and a shape determine, so that reference outputs can be stored without the weights."""

import zlib

import numpy as np


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """f32, or i64 zeros for counters: variances in [0.5, 1.5), vectors near 1 (scales) or 0, matrices of unit gain."""
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    if name.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    if name.endswith("running_var"):
        return generator.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) == 1:
        scale = 1.0 if name.endswith("weight") else 0.0
        return (scale + 0.1 * generator.standard_normal(shape)).astype(np.float32)
    fan = float(np.prod(shape[1:])) if "c_" not in name else float(shape[0])
    return (1.4 / np.sqrt(fan) * generator.standard_normal(shape)).astype(np.float32)


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def token_ids(vocabulary: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(6).integers(1, vocabulary, shape)
