"""Convolutions of ai.onnx. They arrive channels first and run channels last."""

from __future__ import annotations

from edgerun.dims import DimLike, maximum
from edgerun.errors import ShapeError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering
from edgerun_converters.onnx.windows import auto_pad, distribute, filters_last, integers, kernel_of, read_window


@lowering("Conv")
def conv(b: Builder, n: OnnxNode) -> None:
    x, w, bias = n.input(0), n.input(1), n.input(2)
    window = read_window(n, b.shape(x)[2:], _checked_kernel(b, n, x, w))
    y = b.one(
        "conv",
        [b.to_channels_last(x), filters_last(b, w), bias],
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        group=int(n.attr("group", 1)),
    )
    n.bind(b.to_channels_first(y))


@lowering("ConvTranspose")
def conv_transpose(b: Builder, n: OnnxNode) -> None:
    x, w, bias = n.input(0), n.input(1), n.input(2)
    kernel = _checked_kernel(b, n, x, w)
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
    strides, dilations = integers(n, "strides", ones), integers(n, "dilations", ones)
    output_padding = integers(n, "output_padding", zeros)
    y = b.one(
        "conv_transpose",
        [b.to_channels_last(x), filters_last(b, w), bias],
        strides=strides,
        pads=_transposed_pads(b, n, x, kernel, strides, dilations, output_padding),
        dilations=dilations,
        output_padding=output_padding,
        group=int(n.attr("group", 1)),
    )
    n.bind(b.to_channels_first(y))


def _transposed_pads(
    b: Builder,
    n: OnnxNode,
    x: str,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    output_padding: tuple[int, ...],
) -> tuple[DimLike, ...]:
    """The cropping that `pads`, `auto_pad` or `output_shape` asks for; an end may be negative (zeros are added)."""
    sizes = b.shape(x)[2:]
    mode = auto_pad(n)
    shape: tuple[DimLike, ...] = tuple(int(s) for s in n.attr("output_shape", ()))
    if not shape:
        if mode == "NOTSET":
            return integers(n, "pads", (0,) * (2 * len(kernel)))
        if mode == "VALID":
            return (0,) * (2 * len(kernel))
        shape = tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
    if len(shape) == len(kernel) + 2:
        # Old exporters wrote the batch and channels, too.
        shape = shape[2:]
    if len(shape) != len(kernel):
        raise ShapeError(f"output_shape {shape} does not list {len(kernel)} spatial sizes")
    totals = [
        (size - 1) * stride + extra + (k - 1) * dilation + 1 - wanted
        for size, stride, extra, k, dilation, wanted in zip(
            sizes, strides, output_padding, kernel, dilations, shape, strict=True
        )
    ]
    # Only an end can be negative: the output grows there, and nowhere else.
    begins = distribute([maximum(t, 0) for t in totals], upper=mode == "SAME_UPPER")[: len(kernel)]
    return (*begins, *(t - p for t, p in zip(totals, begins, strict=True)))


@lowering("DeformConv")
def deform_conv(b: Builder, n: OnnxNode) -> None:
    x, w, offset, bias, mask = (n.input(k) for k in range(5))
    window = read_window(n, b.shape(x)[2:], _checked_kernel(b, n, x, w))
    y = b.one(
        "deform_conv",
        [
            b.to_channels_last(x),
            filters_last(b, w),
            b.to_channels_last(offset),
            bias,
            b.to_channels_last(mask) if mask else "",
        ],
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        group=int(n.attr("group", 1)),
        offset_group=int(n.attr("offset_group", 1)),
    )
    n.bind(b.to_channels_first(y))


def _checked_kernel(b: Builder, n: OnnxNode, x: str, w: str) -> tuple[int, ...]:
    if b.rank(x) != b.rank(w) or b.rank(x) < 3:
        raise ShapeError(f"the input {b.type(x)} and the weights {b.type(w)} do not make a convolution")
    return kernel_of(b, n, w)
