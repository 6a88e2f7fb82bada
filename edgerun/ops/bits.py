"""Bit patterns under another type."""

from __future__ import annotations

from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, op, require


@op("movement")
def bit_cast(x: TensorType, *, dtype: DType) -> TensorType:
    """The same bits as elements of `dtype`, a type of the same width."""
    require(
        x.dtype.bits == dtype.bits and x.dtype is not DType.STRING,
        f"elements of {x.dtype.short} and {dtype.short} differ in width",
    )
    return x.like(dtype=dtype)
