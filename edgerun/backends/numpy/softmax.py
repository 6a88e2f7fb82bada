"""NumPy kernels of softmax and hardmax."""

from __future__ import annotations

import numpy as np

from edgerun.backends.numpy.registry import kernel

Array = np.ndarray


@kernel("softmax")
def softmax(x: Array, *, axis: int, log: bool = False) -> Array:
    """See edgerun.ops.softmax.softmax."""
    wide = x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)
    if x.size == 0:
        return x.copy()
    shifted = wide - wide.max(axis=axis, keepdims=True)
    e = np.exp(shifted)
    total = e.sum(axis=axis, keepdims=True)
    return (shifted - np.log(total) if log else e / total).astype(x.dtype, copy=False)


@kernel("hardmax")
def hardmax(x: Array, *, axis: int) -> Array:
    """See edgerun.ops.softmax.hardmax."""
    result = np.zeros_like(x)
    if x.size:
        wide = x if x.dtype.kind == "f" else x.astype(np.float32)
        index = np.expand_dims(np.argmax(wide, axis=axis), axis)
        np.put_along_axis(result, index, np.ones((), x.dtype), axis)
    return result
