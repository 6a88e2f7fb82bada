"""Convolutions, channels last: x [N, *S, C] with any number of spatial axes.

`pads` lists the padding before every spatial axis, then after every one. Activation and residual: see
`edgerun.ops.activation`.
"""

from __future__ import annotations

from edgerun.dims import DimLike, floordiv, product
from edgerun.graph import Shape
from edgerun.ops.activation import check_epilogue
from edgerun.ops.registry import TensorType, compatible, macs, may_equal, op, require
from edgerun.ops.windows import check_window, span, window_counts


@op("conv")
def conv(
    x: TensorType,
    w: TensorType,
    bias: TensorType | None = None,
    residual: TensorType | None = None,
    slope: TensorType | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[DimLike, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    act: str = "none",
    p0: float = 0.0,
    p1: float = 0.0,
    res: str = "none",
) -> TensorType:
    """Cross-correlation: x [N, *S, C], w [O, *K, C/group], bias [O] -> [N, *S', O].

    The residual has the shape of the output, the slope of prelu is [O] or [1].
    Floats of one dtype; f16 and bf16 are summed in f32. Output channel o reads the input channels of group
    o * group // O. Raises ShapeError when ranks, channels or sizes do not fit.
    """
    _check_types(x, w, bias, residual, slope)
    out: Shape | None = None
    if x.shape is not None and w.shape is not None:
        _check_ranks(x, w)
        kernel = w.shape[1:-1]
        check_window(len(x.shape) - 2, kernel, strides, dilations, pads)
        _check_channels(x.shape[-1], w.shape[-1], w.shape[0], group)
        out = (x.shape[0], *window_counts(x.shape[1:-1], kernel, strides, dilations, pads), w.shape[0])
    check_epilogue(out, bias, residual, slope, act, res)
    return TensorType(x.dtype, out)


@op("conv")
def conv_transpose(
    x: TensorType,
    w: TensorType,
    bias: TensorType | None = None,
    slope: TensorType | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[DimLike, ...],
    dilations: tuple[int, ...],
    output_padding: tuple[int, ...],
    group: int = 1,
    act: str = "none",
    p0: float = 0.0,
    p1: float = 0.0,
) -> TensorType:
    """The transpose of a convolution: x [N, *S, C], w [C, *K, O/group], bias [O] -> [N, *S', O], slope [O] or [1].

    S' = (S - 1) * stride + (K - 1) * dilation + 1 - pads + output_padding. Cells beyond the reach of the kernel
    (negative end pads, output padding) hold the bias. Computed as `conv`. Raises ShapeError when sizes do not fit.
    """
    _check_types(x, w, bias, None, slope)
    out: Shape | None = None
    if x.shape is not None and w.shape is not None:
        _check_ranks(x, w)
        kernel, n = w.shape[1:-1], len(x.shape) - 2
        check_window(n, kernel, strides, dilations, pads, negative_pads=True)
        require(len(output_padding) == n, f"output_padding has {len(output_padding)} values for {n} spatial axes")
        require(all(not isinstance(p, int) or p >= 0 for p in pads[:n]), f"padding {pads} is negative at the start")
        _check_channels(x.shape[-1], floordiv(w.shape[0], group), w.shape[-1] * group, group)
        sizes = [
            (x.shape[1 + i] - 1) * strides[i]
            + span(kernel[i], dilations[i])
            - pads[i]
            - pads[n + i]
            + output_padding[i]
            for i in range(n)
        ]
        require(all(not isinstance(s, int) or s >= 0 for s in sizes), f"the output would have the sizes {sizes}")
        out = (x.shape[0], *sizes, w.shape[-1] * group)
    check_epilogue(out, bias, None, slope, act, "none")
    return TensorType(x.dtype, out)


@op("conv")
def deform_conv(
    x: TensorType,
    w: TensorType,
    offset: TensorType,
    bias: TensorType | None = None,
    mask: TensorType | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[DimLike, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    offset_group: int = 1,
) -> TensorType:
    """Deformable convolution (v2), channels last: every tap is read off its place by a learned offset, and scaled.

    x [N, *S, C], w [O, *K, C/group], offset [N, *S', G * prod(K) * n] (for each of the G offset groups and each tap the
    n displacements in axis order), mask [N, *S', G * prod(K)], bias [O] -> [N, *S', O]. Reads are multilinear, zero
    outside the input. Input channel c belongs to offset group c * G // C.
    """
    _check_types(x, w, bias, offset, mask)
    if x.shape is None or w.shape is None:
        return TensorType(x.dtype, None)
    _check_ranks(x, w)
    n, kernel = len(x.shape) - 2, w.shape[1:-1]
    check_window(n, kernel, strides, dilations, pads)
    _check_channels(x.shape[-1], w.shape[-1], w.shape[0], group)
    require(offset_group >= 1, f"there are {offset_group} offset groups")
    if isinstance(x.shape[-1], int):
        require(x.shape[-1] % offset_group == 0, f"{x.shape[-1]} channels in {offset_group} offset groups")
    sizes = window_counts(x.shape[1:-1], kernel, strides, dilations, pads)
    taps = product(kernel) * offset_group
    for what, given, channels in (("offset", offset, taps * n), ("mask", mask, taps)):
        if given is None or given.shape is None:
            continue
        expected = (x.shape[0], *sizes, channels)
        require(compatible(given.shape, expected), f"the {what} is {given}, expected the shape {expected}")
    out = (x.shape[0], *sizes, w.shape[0])
    check_epilogue(out, bias, None, None, "none", "none")
    return TensorType(x.dtype, out)


@macs("conv")
def _conv_macs(x: TensorType, w: TensorType, *rest: object, out: TensorType, **attrs: object) -> DimLike:
    return 0 if out.shape is None or w.shape is None else product(out.shape) * product(w.shape[1:])


@macs("deform_conv")
def _deform_conv_macs(x: TensorType, w: TensorType, *rest: object, out: TensorType, **attrs: object) -> DimLike:
    return _conv_macs(x, w, out=out)


@macs("conv_transpose")
def _conv_transpose_macs(x: TensorType, w: TensorType, *rest: object, out: TensorType, **attrs: object) -> DimLike:
    return 0 if x.shape is None or w.shape is None else product(x.shape) * product(w.shape[1:])


def _check_types(x: TensorType, w: TensorType, *others: TensorType | None) -> None:
    require(x.dtype.is_float, f"a convolution takes floats, not {x.dtype.short}")
    for other in (w, *others):
        require(other is None or other.dtype is x.dtype, f"a convolution mixes {x.dtype.short} and {other}")


def _check_ranks(x: TensorType, w: TensorType) -> None:
    require(x.rank >= 3, f"a convolution needs batch, spatial axes and channels, not {x}")
    require(x.rank == w.rank, f"input {x} and weights {w} differ in rank")


def _check_channels(channels: DimLike, per_group: DimLike, filters: DimLike, group: int) -> None:
    require(group >= 1, f"there are {group} groups")
    require(
        may_equal(channels, per_group * group),
        f"{channels} input channels, but weights for {group} groups of {per_group}",
    )
    require(not isinstance(filters, int) or filters % group == 0, f"{filters} filters in {group} groups")
