"""Quantised arithmetic: conversion between real and quantised tensors, integer products, quantised conv and matmul.

real = (quantised - zero) * scale. Granularity follows the shape of `scale`, which `zero` shares: rank 0 = one pair for
the tensor, rank 1 = one per index of `axis`, rank of the input = blocks of `block` elements along `axis` share a pair.
Accumulation of integer products is exact modulo 2^32 (never saturating at 16 bits). Rounding is to nearest, halves to
even; a NaN quantises like 0.
"""

from __future__ import annotations

from edgerun.dims import DimLike, broadcast, ceildiv, product
from edgerun.dtypes import DType
from edgerun.graph import Shape
from edgerun.ops.registry import TensorType, macs, op, require
from edgerun.ops.windows import check_window, window_counts

QUANTISED = frozenset(
    {
        DType.U8, DType.I8, DType.U16, DType.I16, DType.U4, DType.I4, DType.U2, DType.I2, DType.F8E4M3FN,
        DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ, DType.F4E2M1, DType.F6E2M3, DType.F6E3M2,
    }
)  # fmt: skip


@op("quant")
def quantize_linear(
    x: TensorType,
    scale: TensorType,
    zero: TensorType | None = None,
    *,
    axis: int = 0,
    block: int = 0,
    dtype: DType = DType.U8,
    saturate: bool = True,
    precision: DType | None = None,
) -> TensorType:
    """round(x / scale) + zero, saturated to `dtype`; same shape as x.

    `precision` is the type of the division (default: that of `scale`). `saturate=False` lets 8-bit floats overflow to
    NaN or infinity.
    """
    require(dtype in QUANTISED, f"{dtype.short} is not a quantised type")
    require(zero is None or zero.dtype is dtype, "the zero point has another type than the output")
    _check_scale(x, scale, zero, axis, block)
    return x.like(dtype=dtype)


@op("quant", fold=False)
def dequantize_linear(
    x: TensorType,
    scale: TensorType,
    zero: TensorType | None = None,
    *,
    axis: int = 0,
    block: int = 0,
    dtype: DType = DType.F32,
) -> TensorType:
    """(x - zero) * scale as `dtype`; same shape as x."""
    require(x.dtype in QUANTISED or x.dtype is DType.I32, f"{x.dtype.short} is not a quantised type")
    require(dtype.is_float, f"dequantisation gives floats, not {dtype.short}")
    require(zero is None or zero.dtype is x.dtype, "the zero point has another type than the input")
    _check_scale(x, scale, zero, axis, block)
    return x.like(dtype=dtype)


@op("quant")
def dynamic_quantize_linear(x: TensorType) -> tuple[TensorType, TensorType, TensorType]:
    """Quantise to 8 unsigned bits over the range of x widened to hold 0: (y, scale, zero). All-zero input: scale 1."""
    require(x.dtype is DType.F32, f"dynamic quantisation takes f32, not {x.dtype.short}")
    return x.like(dtype=DType.U8), TensorType(DType.F32, ()), TensorType(DType.U8, ())


@op("quant")
def matmul_integer(
    a: TensorType, b: TensorType, a_zero: TensorType | None = None, b_zero: TensorType | None = None
) -> TensorType:
    """(a - a_zero) @ (b - b_zero) as i32. Zero points broadcast against a and b: rank 0, [M, 1] or [N], and batched."""
    require(a.dtype.is_integer and b.dtype.is_integer, f"integer matmul of {a.dtype.short} and {b.dtype.short}")
    return TensorType(DType.I32, _matmul_shape(a, b))


@op("quant")
def qlinear_matmul(
    a: TensorType,
    a_scale: TensorType,
    a_zero: TensorType,
    b: TensorType,
    b_scale: TensorType,
    b_zero: TensorType,
    y_scale: TensorType,
    y_zero: TensorType,
    bias: TensorType | None = None,
) -> TensorType:
    """Product of quantised tensors, requantised: round(acc * (a_scale * b_scale / y_scale)) + y_zero.

    acc is the exact integer product plus the i32 `bias` [N] (in units of a_scale * b_scale). Parameters of a and b
    broadcast as in matmul_integer; those of y are rank 0.
    """
    _check_parameters(a, a_zero)
    _check_parameters(b, b_zero)
    return TensorType(y_zero.dtype, _matmul_shape(a, b))


@op("quant")
def conv_integer(
    x: TensorType,
    w: TensorType,
    x_zero: TensorType | None = None,
    w_zero: TensorType | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[DimLike, ...],
    dilations: tuple[int, ...],
    group: int = 1,
) -> TensorType:
    """Convolution of integers, channels last: x [N, *S, C], w [O, *K, C/group], x_zero rank 0, w_zero rank 0 or [O].

    The i32 sums of (x - x_zero) * (w - w_zero); padding counts as real zero. pads = all begins, then all ends.
    """
    require(x.dtype.is_integer and w.dtype.is_integer, f"integer conv of {x.dtype.short} and {w.dtype.short}")
    return TensorType(DType.I32, _conv_shape(x, w, strides, pads, dilations, group))


@op("quant")
def qlinear_conv(
    x: TensorType,
    x_scale: TensorType,
    x_zero: TensorType,
    w: TensorType,
    w_scale: TensorType,
    w_zero: TensorType,
    y_scale: TensorType,
    y_zero: TensorType,
    bias: TensorType | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[DimLike, ...],
    dilations: tuple[int, ...],
    group: int = 1,
) -> TensorType:
    """Quantised convolution, channels last: round(acc * (x_scale * w_scale / y_scale)) + y_zero, saturated.

    acc is conv_integer plus the i32 `bias` [O]. Parameters of w are rank 0 or [O], the others rank 0.
    """
    _check_parameters(x, x_zero)
    _check_parameters(w, w_zero)
    return TensorType(y_zero.dtype, _conv_shape(x, w, strides, pads, dilations, group))


@op("quant")
def matmul_nbits(
    a: TensorType,
    b: TensorType,
    scales: TensorType,
    zeros: TensorType | None = None,
    g_idx: TensorType | None = None,
    bias: TensorType | None = None,
    *,
    k: int,
    n: int,
    bits: int = 4,
    block: int,
    a_bits: int = 0,
) -> TensorType:
    """a [..., K] @ W^T + bias with W [N, K] stored in `bits` (2, 4 or 8) per weight and one scale per `block` of K.

    b [N, ceil(K/block), block*bits/8] holds the codes, least significant bits first; scales [N, ceil(K/block)];
    zeros either packed like b, [N, ceil(ceil(K/block)*bits/8)] u8, or one float a block; absent = 2^(bits-1).
    g_idx [K] names the block of every k (default k // block). Computed in the type of a, accumulated in f32. With
    `a_bits` 8 a (f32) is first rounded to multiples of f16(m / 127) in each block of 32, m its largest magnitude there,
    as the Q8 blocks of ggml; K is then a multiple of 32, and `block` is 32, or 16 with codes of 8 bits without zeros.
    """
    require(a_bits in (0, 8), f"{a_bits} bits of a")
    fits = block == 32 or (block == 16 and bits == 8 and zeros is None)
    require(a_bits == 0 or (fits and k % 32 == 0 and g_idx is None and bits != 2), "a_bits with other blocks")
    require(a_bits == 0 or a.dtype is DType.F32, f"a_bits for {a.dtype.short}")
    require(bits in (2, 4, 8), f"weights of {bits} bits")
    require(block >= 16 and block & (block - 1) == 0, f"the block size {block} is no power of two of at least 16")
    require(a.dtype in (DType.F32, DType.F16, DType.BF16), f"matmul_nbits takes floats, not {a.dtype.short}")
    require(b.dtype is DType.U8, f"packed weights are u8, not {b.dtype.short}")
    if a.shape is None:
        return a.like()
    inner = a.shape[-1]
    require(not isinstance(inner, int) or inner == k, f"the input has {inner} columns, the weights {k}")
    if b.shape is not None:
        count = product(b.shape)
        require(
            not isinstance(count, int) or count == n * -(-k // block) * (block * bits // 8),
            f"packed weights {b} do not hold {n} rows of {k} weights of {bits} bits in blocks of {block}",
        )
    return a.like((*a.shape[:-1], n))


@op("quant")
def rows_nbits(
    index: TensorType,
    b: TensorType,
    scales: TensorType,
    zeros: TensorType | None = None,
    *,
    k: int,
    n: int,
    bits: int,
    block: int,
) -> TensorType:
    """The rows of W [N, K] (stored as for matmul_nbits, zeros as floats) at `index` [...]: f32 [..., K].

    Indices count from the end when negative.
    """
    require(index.dtype in (DType.I32, DType.I64), f"indices are i32 or i64, not {index.dtype.short}")
    require(
        bits in (4, 8) and block >= 16 and k % block == 0, f"rows of {k} weights of {bits} bits in blocks of {block}"
    )
    require(zeros is None or zeros.dtype.is_float, "the zero points of rows are floats")
    if b.shape is not None:
        count = product(b.shape)
        require(b.dtype is DType.U8 and (not isinstance(count, int) or count == n * k * bits // 8), f"bad codes {b}")
    return TensorType(DType.F32, None if index.shape is None else (*index.shape, k))


def _check_scale(x: TensorType, scale: TensorType, zero: TensorType | None, axis: int, block: int) -> None:
    require(block >= 0, f"the block size {block} is negative")
    if scale.shape is None or x.shape is None:
        return
    if block:
        require(len(scale.shape) == len(x.shape), f"blocked scales need the rank of the input, not {scale}")
        require(0 <= axis < len(x.shape), f"axis {axis} is outside a tensor of rank {len(x.shape)}")
        expected = tuple(ceildiv(d, block) if k == axis else d for k, d in enumerate(x.shape))
        require(_compatible(scale.shape, expected), f"the scale has the shape {scale.shape}, expected {expected}")
    elif scale.shape != ():
        require(len(scale.shape) == 1, f"a scale of rank {len(scale.shape)} needs a block size")
        require(0 <= axis < len(x.shape), f"axis {axis} is outside a tensor of rank {len(x.shape)}")
        require(_compatible(scale.shape, (x.shape[axis],)), f"{scale.shape[0]} scales for {x.shape[axis]} channels")
    if zero is not None and zero.shape is not None:
        require(_compatible(zero.shape, scale.shape), f"zero point {zero} and scale {scale} differ in shape")


def _compatible(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(
        not (isinstance(p, int) and isinstance(q, int)) or p == q for p, q in zip(a, b, strict=True)
    )


def _check_parameters(x: TensorType, zero: TensorType) -> None:
    require(x.dtype in QUANTISED, f"{x.dtype.short} is not a quantised type")
    require(zero.dtype is x.dtype, "a zero point has another type than its tensor")


def _matmul_shape(a: TensorType, b: TensorType) -> Shape | None:
    if a.shape is None or b.shape is None:
        return None
    require(len(a.shape) > 0 and len(b.shape) > 0, "matmul of a scalar")
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    require(_compatible(left[-1:], right[-2:-1]), f"inner dimensions {left[-1]} and {right[-2]} differ")
    result = (*broadcast(left[:-2], right[:-2]), left[-2], right[-1])
    if len(a.shape) == 1:
        result = (*result[:-2], result[-1])
    if len(b.shape) == 1:
        result = result[:-1]
    return result


def _conv_shape(
    x: TensorType,
    w: TensorType,
    strides: tuple[int, ...],
    pads: tuple[DimLike, ...],
    dilations: tuple[int, ...],
    group: int,
) -> Shape | None:
    if x.shape is None or w.shape is None:
        return None
    require(len(x.shape) == len(w.shape) >= 3, f"input {x} and weights {w} differ in rank, or lack spatial axes")
    kernel = w.shape[1:-1]
    check_window(len(kernel), kernel, strides, dilations, pads)
    channels, per_group = x.shape[-1], w.shape[-1]
    if isinstance(channels, int) and isinstance(per_group, int):
        require(channels == per_group * group, f"{channels} channels for weights of {group} groups of {per_group}")
    return (x.shape[0], *window_counts(x.shape[1:-1], kernel, strides, dilations, pads), w.shape[0])


@macs("matmul_integer")
def _matmul_integer_macs(a: TensorType, b: TensorType, *rest: object, out: TensorType) -> DimLike:
    return 0 if out.shape is None or a.shape is None else product(out.shape) * a.shape[-1]


@macs("qlinear_matmul")
def _qlinear_matmul_macs(a: TensorType, *rest: object, out: TensorType) -> DimLike:
    return 0 if out.shape is None or a.shape is None else product(out.shape) * a.shape[-1]


@macs("conv_integer")
def _conv_integer_macs(x: TensorType, w: TensorType, *rest: object, out: TensorType, **attrs: object) -> DimLike:
    return 0 if out.shape is None or w.shape is None else product(out.shape) * product(w.shape[1:])


@macs("qlinear_conv")
def _qlinear_conv_macs(
    x: TensorType,
    x_scale: TensorType,
    x_zero: TensorType,
    w: TensorType,
    *rest: object,
    out: TensorType,
    **attrs: object,
) -> DimLike:
    return 0 if out.shape is None or w.shape is None else product(out.shape) * product(w.shape[1:])


@macs("matmul_nbits")
def _matmul_nbits_macs(a: TensorType, *rest: object, k: int, n: int, out: TensorType, **attrs: object) -> DimLike:
    return 0 if out.shape is None else product(out.shape) * k
