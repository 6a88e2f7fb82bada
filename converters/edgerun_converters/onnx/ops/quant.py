"""Quantisation operators of ai.onnx: QuantizeLinear to QLinearConv, every opset."""

from __future__ import annotations

from edgerun.dtypes import DType, from_onnx
from edgerun.errors import ShapeError, UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering
from edgerun_converters.onnx.windows import filters_last, kernel_of, read_window


@lowering("QuantizeLinear")
def quantize_linear(b: Builder, n: OnnxNode) -> None:
    x, scale, zero = n.input(0), n.input(1), n.input(2)
    stated = n.attr("output_dtype", 0)
    dtype = from_onnx(stated) if stated else (b.dtype(zero) if zero else DType.U8)
    if zero and b.dtype(zero) is not dtype:
        raise UnsupportedError(f"output_dtype is {dtype.short}, but the zero point is {b.dtype(zero).short}")
    block = int(n.attr("block_size", 0))
    axis = _axis(b, x, n.attr("axis", 1))
    precision = n.attr("precision", 0)
    n.bind(
        b.one(
            "quantize_linear",
            [x, granular(b, scale, block), granular(b, zero, block)],
            axis=axis,
            block=block,
            dtype=dtype,
            saturate=bool(n.attr("saturate", 1)),
            precision=from_onnx(precision) if precision else None,
        )
    )


@lowering("DequantizeLinear")
def dequantize_linear(b: Builder, n: OnnxNode) -> None:
    x, scale, zero = n.input(0), n.input(1), n.input(2)
    stated = n.attr("output_dtype", 0)
    dtype = from_onnx(stated) if stated else b.dtype(scale)
    block = int(n.attr("block_size", 0))
    if dtype is DType.F8E8M0:
        raise UnsupportedError("scales of type float8e8m0 need the attribute output_dtype")
    n.bind(
        b.one(
            "dequantize_linear",
            [x, granular(b, scale, block), granular(b, zero, block)],
            axis=_axis(b, x, n.attr("axis", 1)),
            block=block,
            dtype=dtype,
        )
    )


@lowering("DynamicQuantizeLinear")
def dynamic_quantize_linear(b: Builder, n: OnnxNode) -> None:
    n.bind(*b.emit("dynamic_quantize_linear", [n.input(0)]))


@lowering("MatMulInteger")
def matmul_integer(b: Builder, n: OnnxNode) -> None:
    a, w = n.input(0), n.input(1)
    n.bind(b.one("matmul_integer", [a, w, row_parameter(b, n.input(2)), scalar(b, n.input(3))]))


@lowering("QLinearMatMul")
def qlinear_matmul(b: Builder, n: OnnxNode) -> None:
    a, a_scale, a_zero, w, w_scale, w_zero, y_scale, y_zero = (n.input(k) for k in range(8))
    inputs = [a, row_parameter(b, a_scale), row_parameter(b, a_zero), w, scalar(b, w_scale), scalar(b, w_zero)]
    n.bind(b.one("qlinear_matmul", [*inputs, scalar(b, y_scale), scalar(b, y_zero)]))


@lowering("ConvInteger")
def conv_integer(b: Builder, n: OnnxNode) -> None:
    x, w = n.input(0), n.input(1)
    window = read_window(n, b.shape(x)[2:], kernel_of(b, n, w))
    y = b.one(
        "conv_integer",
        [b.to_channels_last(x), filters_last(b, w), scalar(b, n.input(2)), scalar(b, n.input(3))],
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        group=int(n.attr("group", 1)),
    )
    n.bind(b.to_channels_first(y))


@lowering("QLinearConv")
def qlinear_conv(b: Builder, n: OnnxNode) -> None:
    n.bind(b.to_channels_first(emit_qlinear_conv(b, n, b.to_channels_last(n.input(0)))))


def emit_qlinear_conv(b: Builder, n: OnnxNode, x: str) -> str:
    """qlinear_conv on the channels-last `x`, the other inputs as in QLinearConv."""
    _, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (n.input(k) for k in range(9))
    window = read_window(n, b.shape(x)[1:-1], kernel_of(b, n, w))
    parameters = [scalar(b, p) for p in (x_scale, x_zero)]
    weights = [filters_last(b, w), scalar(b, w_scale), scalar(b, w_zero)]
    return b.one(
        "qlinear_conv",
        [x, *parameters, *weights, scalar(b, y_scale), scalar(b, y_zero), bias],
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        group=int(n.attr("group", 1)),
    )


def scalar(b: Builder, parameter: str) -> str:
    """A parameter with one element as rank 0; others, and "" for an absent one, as they are."""
    return b.reshape(parameter, ()) if parameter and b.type(parameter).shape == (1,) else parameter


def row_parameter(b: Builder, parameter: str) -> str:
    """A parameter of the left matmul operand: one value a row becomes a column vector."""
    parameter = scalar(b, parameter)
    if parameter and b.rank(parameter) == 1:
        return b.reshape(parameter, (*b.shape(parameter), 1))
    return parameter


def granular(b: Builder, parameter: str, block: int) -> str:
    """A scale or zero point of QuantizeLinear: rank 0 when it holds one element and is not blocked."""
    return parameter if block else scalar(b, parameter)


def _axis(b: Builder, x: str, axis: int) -> int:
    """The quantised axis; on vectors and scalars the attribute's default of 1 means nothing."""
    shape = b.type(x).shape
    if shape is None:
        if axis < 0:
            raise ShapeError(f"axis {axis} of a tensor of unknown rank")
        return axis
    return 0 if len(shape) <= 1 else b.axis(x, axis)
