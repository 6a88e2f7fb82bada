"""NumPy kernels of normalisation."""

from __future__ import annotations

import numpy as np

from edgerun.backends.numpy.activation import accumulator
from edgerun.backends.numpy.registry import kernel

Array = np.ndarray


@kernel("layer_norm")
def layer_norm(
    x: Array, scale: Array | None = None, bias: Array | None = None, *, axis: int, epsilon: float
) -> tuple[Array, Array, Array]:
    """See edgerun.ops.norm.layer_norm."""
    working = accumulator(x.dtype)
    values = x.astype(working, copy=False)
    axes = tuple(range(axis, x.ndim))
    mean = values.mean(axis=axes, keepdims=True)
    y = values - mean
    inverse = 1 / np.sqrt(np.square(y).mean(axis=axes, keepdims=True) + working.type(epsilon))
    y *= inverse
    if scale is not None:
        y *= scale.astype(working, copy=False)
    if bias is not None:
        y += bias.astype(working, copy=False)
    return y.astype(x.dtype, copy=False), mean.astype(np.float32, copy=False), inverse.astype(np.float32, copy=False)


@kernel("rms_norm")
def rms_norm(x: Array, scale: Array, *, axis: int, epsilon: float) -> Array:
    """See edgerun.ops.norm.rms_norm."""
    working = accumulator(x.dtype)
    values = x.astype(working, copy=False)
    mean = np.square(values).mean(axis=tuple(range(axis, x.ndim)), keepdims=True)
    y = values / np.sqrt(mean + working.type(epsilon)) * scale.astype(working, copy=False)
    return y.astype(scale.dtype, copy=False)


@kernel("group_norm")
def group_norm(x: Array, scale: Array, bias: Array, *, groups: int, epsilon: float) -> Array:
    """See edgerun.ops.norm.group_norm."""
    working = accumulator(x.dtype)
    channels = x.shape[-1]
    values = x.astype(working, copy=False).reshape(x.shape[0], -1, groups, channels // groups)
    # Sums run across memory here, where NumPy adds one after the other: f64 keeps them exact enough.
    mean = values.mean(axis=(1, 3), keepdims=True, dtype=np.float64).astype(working)
    y = values - mean
    variance = np.square(y).mean(axis=(1, 3), keepdims=True, dtype=np.float64)
    y *= (1 / np.sqrt(variance + epsilon)).astype(working)
    y = y.reshape(x.shape)
    y *= scale.astype(working, copy=False)
    y += bias.astype(working, copy=False)
    return y.astype(x.dtype, copy=False)


@kernel("lrn")
def lrn(x: Array, *, size: int, alpha: float, beta: float, bias: float) -> Array:
    """See edgerun.ops.norm.lrn."""
    working = accumulator(x.dtype)
    values = x.astype(working, copy=False)
    squares = np.square(values)
    channels = x.shape[-1]
    total = np.zeros_like(squares)
    for shift in range(-((size - 1) // 2), size // 2 + 1):
        first, last = max(0, -shift), min(channels, channels - shift)
        if first < last:
            total[..., first:last] += squares[..., first + shift : last + shift]
    base = working.type(bias) + working.type(alpha / size) * total
    return (values / base ** working.type(beta)).astype(x.dtype, copy=False)
