"""NumPy kernels of matrix products and determinants."""

from __future__ import annotations

import numpy as np

from edgerun.backends.numpy.activation import accumulator, finish
from edgerun.backends.numpy.registry import kernel

Array = np.ndarray


@kernel("matmul")
def matmul(
    a: Array,
    b: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    *,
    trans_b: bool = False,
    act: str = "none",
    p0: float = 0.0,
    p1: float = 0.0,
    res: str = "none",
) -> Array:
    """See edgerun.ops.matmul.matmul."""
    working = accumulator(a.dtype)
    left, right = a.astype(working, copy=False), b.astype(working, copy=False)
    if trans_b:
        right = right.swapaxes(-1, -2)
    if right.ndim == 2 and left.ndim > 2:
        # One large product instead of a small one for each batch.
        y = (left.reshape(-1, left.shape[-1]) @ right).reshape(*left.shape[:-1], right.shape[-1])
    else:
        y = np.asarray(left @ right)
    return finish(y, bias, residual, None, act, p0, p1, res).astype(a.dtype, copy=False)


@kernel("det")
def det(x: Array) -> Array:
    """See edgerun.ops.matmul.det."""
    return np.asarray(np.linalg.det(x.astype(accumulator(x.dtype), copy=False))).astype(x.dtype, copy=False)
