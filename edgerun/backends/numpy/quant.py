"""NumPy kernels of quantised arithmetic.

Integer products run as floating-point matrix products: BLAS is many times faster than NumPy's integer loops. The result
is exact: sums of 8-bit products stay below 2^24 over EXACT_IN_F32 terms, so float32 holds them, and longer sums are
added up in float64, which holds all sums of 16-bit products.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.backends.numpy.windows import pad_spatial, tap
from edgerun.dtypes import DType, from_numpy
from edgerun.errors import ShapeError
from edgerun.ops.windows import window_counts

Array = np.ndarray

EXACT_IN_F32 = 256
"""255 * 255 * 256 < 2^24."""

INTEGER_RANGES = {
    DType.U8: (0, 255), DType.I8: (-128, 127), DType.U16: (0, 65535), DType.I16: (-32768, 32767),
    DType.U4: (0, 15), DType.I4: (-8, 7), DType.U2: (0, 3), DType.I2: (-2, 1),
}  # fmt: skip


@kernel("quantize_linear")
def quantize_linear(
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    axis: int = 0,
    block: int = 0,
    dtype: DType = DType.U8,
    saturate: bool = True,
    precision: DType | None = None,
) -> Array:
    """See edgerun.ops.quant.quantize_linear."""
    working = _division_type(precision.numpy if precision is not None else scale.dtype)
    quotient = x.astype(working, copy=False) / _spread(scale, x.shape, axis, block).astype(working, copy=False)
    return saturated(quotient, None if zero is None else _spread(zero, x.shape, axis, block), dtype, saturate)


def saturated(quotient: Array, zero: Array | None, dtype: DType, saturate: bool = True) -> Array:
    """round(quotient) + zero in the quantised type `dtype`, NaN as 0; float types are rounded by the conversion."""
    if dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[dtype]
        # float64 holds every 16-bit sum exactly, which float16 does not.
        rounded = np.rint(quotient).astype(np.float32 if quotient.dtype != np.float64 else np.float64, copy=False)
        rounded = np.nan_to_num(rounded, nan=0.0)
        if zero is not None:
            rounded = rounded + zero.astype(np.float32)
        return np.asarray(np.clip(rounded, low, high)).astype(np.int32).astype(dtype.numpy)
    value = quotient.astype(np.float32)
    if zero is not None:
        value = value + zero.astype(np.float32)
    return to_small_float(value, dtype, saturate)


def to_small_float(value: Array, dtype: DType, saturate: bool) -> Array:
    """float32 to a float type of 8 bits or less. Types without NaN take 0 for it."""
    import ml_dtypes

    target = dtype.numpy
    if dtype in (DType.F4E2M1, DType.F6E2M3, DType.F6E3M2):
        value, saturate = np.nan_to_num(value, nan=0.0, posinf=np.inf, neginf=-np.inf), True
    if saturate:
        largest = np.float32(ml_dtypes.finfo(target).max)
        value = np.clip(value, -largest, largest)
    return value.astype(target)


@kernel("dequantize_linear")
def dequantize_linear(
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    axis: int = 0,
    block: int = 0,
    dtype: DType = DType.F32,
) -> Array:
    """See edgerun.ops.quant.dequantize_linear."""
    working: Any = np.float64 if dtype is DType.F64 else np.float32
    if x.dtype == np.int32:
        # float32 cannot hold every i32, so the subtraction happens in integers.
        difference = (x if zero is None else x - _spread(zero, x.shape, axis, block)).astype(working)
    else:
        difference = x.astype(working)
        if zero is not None:
            difference -= _spread(zero, x.shape, axis, block).astype(working)
    difference *= _spread(scale, x.shape, axis, block).astype(working)
    return difference.astype(dtype.numpy, copy=False)


@kernel("dynamic_quantize_linear")
def dynamic_quantize_linear(x: Array) -> tuple[Array, Array, Array]:
    """See edgerun.ops.quant.dynamic_quantize_linear."""
    low = np.float32(min(0.0, float(x.min(initial=0.0))))
    high = np.float32(max(0.0, float(x.max(initial=0.0))))
    scale = np.float32(1.0) if low == high else (high - low) / np.float32(255)
    zero = np.uint8(np.rint(np.clip(-low / scale, 0, 255)))
    return saturated(x / scale, np.asarray(zero), DType.U8), np.asarray(scale, np.float32), np.asarray(zero)


@kernel("matmul_integer")
def matmul_integer(a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
    """See edgerun.ops.quant.matmul_integer."""
    return _wrapped(_product(_centred(a, a_zero), _centred(b, b_zero)))


@kernel("qlinear_matmul")
def qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    y_scale: Array,
    y_zero: Array,
    bias: Array | None = None,
) -> Array:
    """See edgerun.ops.quant.qlinear_matmul."""
    product = _product(_centred(a, a_zero), _centred(b, b_zero))
    if bias is not None:
        product = product + bias
    return _requantised(product, a_scale, b_scale, y_scale, y_zero)


@kernel("conv_integer")
def conv_integer(
    x: Array,
    w: Array,
    x_zero: Array | None = None,
    w_zero: Array | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
) -> Array:
    """See edgerun.ops.quant.conv_integer."""
    return _wrapped(_convolve(x, w, x_zero, w_zero, strides, pads, dilations, group))


@kernel("qlinear_conv")
def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    w: Array,
    w_scale: Array,
    w_zero: Array,
    y_scale: Array,
    y_zero: Array,
    bias: Array | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
) -> Array:
    """See edgerun.ops.quant.qlinear_conv."""
    sums = _convolve(x, w, x_zero, w_zero, strides, pads, dilations, group)
    if bias is not None:
        sums = sums + bias.astype(np.float64)
    return _requantised(sums, x_scale, w_scale, y_scale, y_zero)


@kernel("matmul_nbits")
def matmul_nbits(
    a: Array,
    b: Array,
    scales: Array,
    zeros: Array | None = None,
    g_idx: Array | None = None,
    bias: Array | None = None,
    *,
    k: int,
    n: int,
    bits: int = 4,
    block: int,
    a_bits: int = 0,
) -> Array:
    """See edgerun.ops.quant.matmul_nbits."""
    blocks = -(-k // block)
    codes = unpack_codes(b.reshape(n, -1), bits).reshape(n, blocks * block)[:, :k].astype(np.float32)
    scale = scales.reshape(n, blocks).astype(np.float32)
    if zeros is None:
        zero = np.full((n, blocks), 1 << (bits - 1), np.float32)
    elif zeros.dtype == np.uint8:
        zero = unpack_codes(zeros.reshape(n, -1), bits)[:, :blocks].astype(np.float32)
    else:
        zero = zeros.reshape(n, blocks).astype(np.float32)
    index = np.arange(k) // block if g_idx is None else g_idx[:k]
    weights = (codes - zero[:, index]) * scale[:, index]
    rounded = _rounded_blocks(a) if a_bits else a.astype(np.float32, copy=False)
    result = rounded @ weights.T
    if bias is not None:
        result = result + bias.astype(np.float32)
    return result.astype(a.dtype, copy=False)


def _rounded_blocks(a: Array) -> Array:
    """a f32 [..., K] rounded to 8 bits in blocks of 32; NaN where a block is not finite."""
    blocks = a.reshape(*a.shape[:-1], -1, 32)
    most = np.abs(blocks).max(-1, keepdims=True)
    with np.errstate(all="ignore"):
        factor = np.where(most > 0, np.float32(127) / most, np.float32(0))
        factor = np.where(factor < np.float32(3.4e38), factor, np.float32(0))
        step = (most / np.float32(127)).astype(np.float16).astype(np.float32)
        codes = np.where(np.isfinite(most), np.rint(blocks * factor), np.float32(np.nan))
        return (codes * step).reshape(a.shape)


@kernel("rows_nbits")
def rows_nbits(
    index: Array, b: Array, scales: Array, zeros: Array | None = None, *, k: int, n: int, bits: int, block: int
) -> Array:
    """See edgerun.ops.quant.rows_nbits."""
    rows = index.reshape(-1)
    codes = unpack_codes(b.reshape(n, -1)[rows], bits).reshape(len(rows), k // block, block).astype(np.float32)
    scale = scales.reshape(n, -1)[rows].astype(np.float32)[..., None]
    zero = np.float32(1 << (bits - 1)) if zeros is None else zeros.reshape(n, -1)[rows].astype(np.float32)[..., None]
    return ((codes - zero) * scale).reshape(*index.shape, k)


def unpack_codes(packed: Array, bits: int) -> Array:
    """Bytes [N, B] to codes [N, B * 8 / bits] u8, least significant bits first."""
    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return codes.reshape(packed.shape[0], packed.shape[1] * 8 // bits)


def _spread(parameter: Array, shape: tuple[int, ...], axis: int, block: int) -> Array:
    """Scales or zero points so that they broadcast against a tensor of this shape."""
    if parameter.size == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    if block:
        repeated = np.repeat(parameter, block, axis=axis)
        return repeated[(slice(None),) * axis + (slice(0, shape[axis]),)]
    if parameter.ndim != 1 or parameter.shape[0] != shape[axis]:
        raise ShapeError(f"{parameter.shape} quantisation parameters do not fit axis {axis} of {shape}")
    return parameter.reshape([-1 if k == axis else 1 for k in range(len(shape))])


def _division_type(dtype: Any) -> Any:
    """The type to divide in: scale types that only hold powers of two and integers need a wider one."""
    kind = from_numpy(dtype)
    if kind in (DType.F16, DType.BF16, DType.F32, DType.F64):
        return dtype
    return np.float64 if kind is DType.I32 else np.float32


def _centred(x: Array, zero: Array | None) -> Array:
    """x - zero, in float32 for 8-bit codes and in float64 for wider ones."""
    working: Any = np.float32 if x.dtype.itemsize == 1 else np.float64
    values = x.astype(working)
    if zero is not None and (zero.size > 1 or float(zero.reshape(-1)[0]) != 0):
        values -= zero.astype(working)
    return values


def _product(a: Array, b: Array) -> Array:
    """The exact matrix product of small integers held in floats."""
    inner = a.shape[-1]
    if inner <= EXACT_IN_F32 or a.dtype == np.float64 or b.dtype == np.float64:
        return a @ b
    total: Any = 0.0
    for start in range(0, inner, EXACT_IN_F32):
        part = slice(start, start + EXACT_IN_F32)
        rows = b[part] if b.ndim == 1 else b[..., part, :]
        total = total + (a[..., part] @ rows).astype(np.float64)
    return total


def _wrapped(sums: Array) -> Array:
    """Exact integers in floats to i32 modulo 2^32."""
    return sums.astype(np.int64).astype(np.int32)


def _requantised(sums: Array, a_scale: Array, b_scale: Array, y_scale: Array, y_zero: Array) -> Array:
    multiplier = a_scale.astype(np.float32) * b_scale.astype(np.float32) / y_scale.astype(np.float32)
    return saturated(sums.astype(np.float32) * multiplier, y_zero, from_numpy(y_zero.dtype))


def _convolve(
    x: Array,
    w: Array,
    x_zero: Array | None,
    w_zero: Array | None,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int,
) -> Array:
    """Exact channels-last convolution: one product per kernel position, summed."""
    spatial = x.ndim - 2
    filters, *kernel_shape, per_group = w.shape
    values = pad_spatial(_centred(x, x_zero), pads[:spatial], pads[spatial:])
    weights = _centred(w, None if w_zero is None else w_zero.reshape(-1, *[1] * (spatial + 1)))
    out = [int(n) for n in window_counts(x.shape[1:-1], kernel_shape, strides, dilations, pads)]
    terms = math.prod(kernel_shape) * per_group
    narrow = values.dtype == weights.dtype == np.float32 and terms <= EXACT_IN_F32
    result = np.zeros((x.shape[0], *out, filters), np.float32 if narrow else np.float64)
    grouped = result.reshape(x.shape[0], *out, group, filters // group)
    for position in itertools.product(*map(range, kernel_shape)):
        window: Any = (slice(None), *tap(position, strides, dilations, out))
        filters_at: Any = (slice(None), *position)
        tile, part = values[window], weights[filters_at]
        if per_group == 1 and filters == group:
            result += tile * part[:, 0]
        elif group == 1:
            result += _product(tile.reshape(-1, per_group), part.T).reshape(result.shape)
        else:
            tile = tile.reshape(*tile.shape[:-1], group, 1, per_group)
            grouped += _product(tile, part.reshape(group, filters // group, per_group).swapaxes(1, 2))[..., 0, :]
    return result
