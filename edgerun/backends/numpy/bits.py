"""NumPy kernel of bit casts."""

from __future__ import annotations

import numpy as np

from edgerun.backends.numpy.casts import convert
from edgerun.backends.numpy.registry import kernel
from edgerun.dtypes import DType, from_numpy


@kernel("bit_cast")
def bit_cast(x: np.ndarray, *, dtype: DType) -> np.ndarray:
    """See edgerun.ops.bits.bit_cast. Below 8 bits an element is a byte whose low bits count."""
    source = from_numpy(x.dtype)
    if source.bits >= 8:
        return np.ascontiguousarray(x).reshape(x.shape).view(dtype.numpy)
    plain: np.ndarray = x.astype(np.int8) if source.is_integer else np.ascontiguousarray(x)
    codes: np.ndarray = plain.view(np.uint8)
    codes = (codes & ((1 << source.bits) - 1)).reshape(x.shape)
    return convert(codes, dtype) if dtype.is_integer else codes.view(dtype.numpy)
