"""Random numbers. These ops are not pure: they are never folded and never merged.

`seed` None draws fresh numbers in every run. With a seed every run draws the same: the stream is NumPy's MT19937
(`numpy.random.RandomState`), whose numbers are frozen across NumPy versions. A seed that is a whole number in
[0, 2^32) seeds it directly, any other by its float32 bit pattern.
"""

from __future__ import annotations

from edgerun.dims import DimLike
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, op, require


@op("random", pure=False)
def random_normal(
    like: TensorType | None = None,
    *,
    shape: tuple[DimLike, ...] | None = None,
    dtype: DType = DType.F32,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> TensorType:
    """Normally distributed numbers of the given shape, or the shape of `like`."""
    return _output(like, shape, dtype)


@op("random", pure=False)
def random_uniform(
    like: TensorType | None = None,
    *,
    shape: tuple[DimLike, ...] | None = None,
    dtype: DType = DType.F32,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
) -> TensorType:
    """Numbers uniform in [low, high) of the given shape, or the shape of `like`."""
    return _output(like, shape, dtype)


@op("random", pure=False)
def multinomial(x: TensorType, *, samples: int, dtype: DType = DType.I32, seed: float | None = None) -> TensorType:
    """Class numbers [B, samples] drawn with replacement; x [B, C] holds unnormalised log-probabilities."""
    require(x.dtype.is_float and dtype in (DType.I32, DType.I64), f"multinomial of {x.dtype.short} to {dtype.short}")
    if x.shape is None:
        return TensorType(dtype, None)
    require(len(x.shape) == 2, f"multinomial takes [batch, classes], not {x}")
    return TensorType(dtype, (x.shape[0], samples))


@op("random", pure=False)
def bernoulli(x: TensorType, *, dtype: DType, seed: float | None = None) -> TensorType:
    """1 with the probability that x holds, else 0; same shape as x."""
    require(x.dtype.is_float, f"probabilities are floats, not {x.dtype.short}")
    return x.like(dtype=dtype)


def _output(like: TensorType | None, shape: tuple[DimLike, ...] | None, dtype: DType) -> TensorType:
    require(dtype.is_float, f"random floats cannot be {dtype.short}")
    require((like is None) != (shape is None), "random numbers take a shape or an example")
    return TensorType(dtype, shape if like is None else like.shape)
