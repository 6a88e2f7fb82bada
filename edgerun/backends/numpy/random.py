"""NumPy kernels of random numbers; see edgerun.ops.random for the generator and the meaning of seeds."""

from __future__ import annotations

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.dtypes import DType
from edgerun.errors import ShapeError

Array = np.ndarray


def generator(seed: float | None) -> np.random.RandomState:
    """The stream of a node."""
    if seed is None:
        return np.random.RandomState()
    if float(seed).is_integer() and 0 <= seed < 1 << 32:
        return np.random.RandomState(int(seed))
    return np.random.RandomState(int(np.float32(seed).view(np.uint32)))


@kernel("random_normal")
def random_normal(
    like: Array | None = None,
    *,
    shape: tuple[int, ...] | None = None,
    dtype: DType = DType.F32,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Array:
    """See edgerun.ops.random.random_normal."""
    size = shape if like is None else like.shape
    return np.asarray(generator(seed).standard_normal(size) * scale + mean).astype(dtype.numpy)


@kernel("random_uniform")
def random_uniform(
    like: Array | None = None,
    *,
    shape: tuple[int, ...] | None = None,
    dtype: DType = DType.F32,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
) -> Array:
    """See edgerun.ops.random.random_uniform."""
    size = shape if like is None else like.shape
    return np.asarray(generator(seed).uniform(low, high, size)).astype(dtype.numpy)


@kernel("multinomial")
def multinomial(x: Array, *, samples: int, dtype: DType = DType.I32, seed: float | None = None) -> Array:
    """See edgerun.ops.random.multinomial. Inverts the cumulative distribution."""
    logits = x.astype(np.float64)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    cumulative = weights.cumsum(axis=1)
    drawn = generator(seed).uniform(size=(x.shape[0], samples)) * cumulative[:, -1:]
    picks = [np.searchsorted(c, d, side="right") for c, d in zip(cumulative, drawn, strict=True)]
    return np.minimum(np.reshape(picks, (x.shape[0], samples)), x.shape[1] - 1).astype(dtype.numpy)


@kernel("bernoulli")
def bernoulli(x: Array, *, dtype: DType, seed: float | None = None) -> Array:
    """See edgerun.ops.random.bernoulli. Raises ShapeError for a probability outside [0, 1]."""
    probabilities = x.astype(np.float64)
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ShapeError("a probability lies outside [0, 1]")
    return np.asarray(generator(seed).binomial(1, probabilities)).astype(dtype.numpy)
