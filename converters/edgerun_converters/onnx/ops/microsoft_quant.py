"""Quantised operators of com.microsoft.

The QLinear elementwise and pooling operators become dequantise, compute, quantise; integer products keep integer ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, find, lowering
from edgerun_converters.onnx.delegate import delegate
from edgerun_converters.onnx.ops.quant import emit_qlinear_conv, row_parameter, scalar
from edgerun_converters.onnx.ops.rnn import emit_recurrent
from edgerun_converters.onnx.windows import permuted

MICROSOFT = "com.microsoft"


def _real(b: Builder, x: str, scale: str, zero: str) -> str:
    return b.one("dequantize_linear", [x, scalar(b, scale), scalar(b, zero)], dtype=b.dtype(scale))


def _quantised(b: Builder, y: str, scale: str, zero: str, dtype: DType) -> str:
    return b.one("quantize_linear", [y, scalar(b, scale), scalar(b, zero)], dtype=b.dtype(zero) if zero else dtype)


def _around(b: Builder, n: OnnxNode, compute: Callable[[str], str]) -> None:
    """Quantise what `compute` makes of the dequantised x; inputs are x, scale, zero, y scale, y zero."""
    y = compute(_real(b, n.input(0), n.input(1), n.input(2)))
    n.bind(_quantised(b, y, n.input(3), n.input(4), b.dtype(n.input(0))))


@lowering("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_binary(b: Builder, n: OnnxNode) -> None:
    left = _real(b, n.input(0), n.input(1), n.input(2))
    right = _real(b, n.input(3), n.input(4), n.input(5))
    y = b.scalar("add" if n.op_type == "QLinearAdd" else "mul", left, right)
    n.bind(_quantised(b, y, n.input(6), n.input(7), b.dtype(n.input(0))))


@lowering("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(b: Builder, n: OnnxNode) -> None:
    _around(b, n, lambda x: b.scalar("sigmoid", x))


@lowering("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(b: Builder, n: OnnxNode) -> None:
    _around(b, n, lambda x: delegate(b, n, "LeakyRelu", [x], opset=16, alpha=float(n.attr("alpha", 0.01)))[0])


@lowering("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(b: Builder, n: OnnxNode) -> None:
    axis, opset = int(n.attr("axis", -1)), int(n.attr("opset"))
    _around(b, n, lambda x: delegate(b, n, "Softmax", [x], opset=opset, axis=axis)[0])


@lowering("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(b: Builder, n: OnnxNode) -> None:
    attributes = {k: n.attr(k) for k in ("axes", "keepdims") if k in n.attributes}
    _around(b, n, lambda x: delegate(b, n, "ReduceMean", [x], opset=13, **attributes)[0])


@lowering("QLinearGlobalAveragePool", "QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(b: Builder, n: OnnxNode) -> None:
    channels_last = bool(n.attr("channels_last", 0))
    attributes = {k: v for k, v in n.attributes.items() if k != "channels_last"}

    def compute(x: str) -> str:
        x = b.to_channels_first(x) if channels_last else x
        y = delegate(b, n, n.op_type.removeprefix("QLinear"), [x], opset=11, **attributes)[0]
        return b.to_channels_last(y) if channels_last else y

    _around(b, n, compute)


@lowering("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(b: Builder, n: OnnxNode) -> None:
    parts = [_real(b, *n.inputs[k : k + 3]) for k in range(2, len(n.inputs), 3)]
    y = b.one("concat", parts, axis=b.axis(parts[0], int(n.attr("axis"))))
    n.bind(_quantised(b, y, n.input(0), n.input(1), b.dtype(n.input(2))))


@lowering("QLinearWhere", domain=MICROSOFT)
def qlinear_where(b: Builder, n: OnnxNode) -> None:
    x, y = _real(b, *n.inputs[1:4]), _real(b, *n.inputs[4:7])
    z = b.scalar("where", n.input(0), x, y)
    n.bind(_quantised(b, z, n.input(7), n.input(8), b.dtype(n.input(1))))


@lowering("QuantizeLinear", "DequantizeLinear", domain=MICROSOFT)
def quantize(b: Builder, n: OnnxNode) -> None:
    """As in ai.onnx, opset 21 (which has the 16-bit types that these were made for)."""
    n.bind(*delegate(b, n, n.op_type, n.inputs, opset=21, axis=int(n.attr("axis", 1))))


@lowering("QLinearConv", domain=MICROSOFT)
def qlinear_conv(b: Builder, n: OnnxNode) -> None:
    if not n.attr("channels_last", 0):
        function = find("", "QLinearConv")
        assert function is not None
        function(b, n)
        return
    n.bind(emit_qlinear_conv(b, n, n.input(0)))


# -- integer products


@lowering("QGemm", domain=MICROSOFT)
def qgemm(b: Builder, n: OnnxNode) -> None:
    a, a_scale, a_zero, w, w_scale, w_zero, bias, y_scale, y_zero = (n.input(k) for k in range(9))
    if n.attr("transA", 0):
        a = b.transpose(a, (1, 0))
    if n.attr("transB", 0):
        w = permuted(b, w, (1, 0))
    a_scale, a_zero, w_scale, w_zero = (scalar(b, p) for p in (a_scale, a_zero, w_scale, w_zero))
    alpha = float(n.attr("alpha", 1.0))
    if alpha != 1.0:
        a_scale = b.scalar("mul", a_scale, b.fill(a_scale, alpha))
    if bias and b.rank(bias) == 2 and b.shape(bias)[0] == 1:
        bias = b.reshape(bias, b.shape(bias)[1:])
    elif bias and b.rank(bias) != 1:
        raise UnsupportedError(f"the bias of QGemm has the shape {b.shape(bias)}, expected one value a column")
    if y_scale:
        parameters = [scalar(b, y_scale), scalar(b, y_zero)]
        n.bind(b.one("qlinear_matmul", [a, a_scale, a_zero, w, w_scale, w_zero, *parameters, bias]))
        return
    sums = b.one("matmul_integer", [a, w, a_zero, w_zero])
    if bias:
        sums = b.scalar("add", sums, bias)
    n.bind(b.scalar("mul", b.cast(sums, DType.F32), b.scalar("mul", a_scale, w_scale)))


@lowering("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(b: Builder, n: OnnxNode) -> None:
    a, w, a_scale, w_scale, a_zero, w_zero, bias = (n.input(k) for k in range(7))
    a_scale, a_zero = row_parameter(b, a_scale), row_parameter(b, a_zero)
    n.bind(scaled_product(b, a, w, a_scale, scalar(b, w_scale), a_zero, scalar(b, w_zero), bias))


@lowering("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(b: Builder, n: OnnxNode) -> None:
    a, w, w_scale, w_zero, bias = (n.input(k) for k in range(5))
    codes, a_scale, a_zero = b.emit("dynamic_quantize_linear", [a])
    n.bind(scaled_product(b, codes, w, a_scale, scalar(b, w_scale), a_zero, scalar(b, w_zero), bias))


def scaled_product(b: Builder, a: str, w: str, a_scale: str, w_scale: str, a_zero: str, w_zero: str, bias: str) -> str:
    """(a - a_zero) @ (w - w_zero) * a_scale * w_scale + bias, with the product in integers."""
    sums = b.one("matmul_integer", [a, w, a_zero, w_zero])
    y = b.scalar("mul", b.cast(sums, b.dtype(a_scale)), b.scalar("mul", a_scale, w_scale))
    return b.scalar("add", y, bias) if bias else y


@lowering("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(b: Builder, n: OnnxNode) -> None:
    """Weights are [D, I, 4H] and [D, H, 4H] here; the core op takes them as lstm does."""
    inputs = [n.input(k) for k in range(8)]
    inputs[1], inputs[2] = permuted(b, inputs[1], (0, 2, 1)), permuted(b, inputs[2], (0, 2, 1))
    parameters = [n.input(k) for k in range(8, 12)]
    default = ("Sigmoid", "Tanh", "Tanh")
    y = emit_recurrent(
        b, n, "lstm_quantised", inputs, default, parameters, input_forget=bool(n.attr("input_forget", 0))
    )
    n.bind(*y)


@lowering("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(b: Builder, n: OnnxNode) -> None:
    if n.attr("weight_prepacked", 0):
        raise UnsupportedError("MatMulNBits with weights packed for one kind of hardware is not supported")
    k, count, bits, block = (int(n.attr(a)) for a in ("K", "N", "bits", "block_size"))
    n.bind(b.one("matmul_nbits", [n.input(i) for i in range(6)], k=k, n=count, bits=bits, block=block))


@lowering("GatherBlockQuantized", domain=MICROSOFT)
def gather_block_quantized(b: Builder, n: OnnxNode) -> None:
    """One op for rows of a constant matrix in blocks of 32 of K.

    Otherwise codes, scales and zero points are gathered first, so that only they are dequantised.
    """
    data, indices, scales, zeros = (n.input(k) for k in range(4))
    rank = b.rank(data)
    axis = b.axis(data, int(n.attr("gather_axis", 0)))
    quantised = b.axis(data, int(n.attr("quantize_axis", 1)))
    block, bits = int(n.attr("block_size", 128)), int(n.attr("bits", 4))
    if axis == quantised:
        raise UnsupportedError("GatherBlockQuantized along the blocked axis is not supported")
    packed = b.dtype(data) is DType.U8 and bits < 8
    if packed and quantised != rank - 1:
        raise UnsupportedError("packed codes must be blocked along the last axis")
    if packed and bits == 4 and rank == 2 and block == 32 and _rows_of_weights(b, n, data, indices, scales, zeros):
        return
    gathered = [b.one("gather", [t, indices], axis=axis) if t else "" for t in (data, scales, zeros)]
    codes, scale, zero = gathered
    if packed:
        codes = _unpack(b, codes, bits)
        if zero:
            zero = _unpack(b, zero, bits)
            length = b.shape(scale)[-1]
            zero = b.one("slice", [zero], ranges=((b.rank(zero) - 1, 0, length, 1),))
    if not zero and b.dtype(codes) is DType.U8:
        # Unsigned codes are centred unless zero points say otherwise.
        zero = b.one("expand", [b.const(1 << (bits - 1), DType.U8)], to=b.shape(scale))
    moved = quantised + b.rank(indices) - 1 if quantised > axis else quantised
    n.bind(b.one("dequantize_linear", [codes, scale, zero], axis=moved, block=block, dtype=b.dtype(scales)))


def _rows_of_weights(b: Builder, n: OnnxNode, data: str, indices: str, scales: str, zeros: str) -> bool:
    """Emit rows_nbits for 4-bit codes when all parameters are constant and rows end with a block."""
    codes, factors = b.static(data), b.static(scales)
    offsets = b.static(zeros) if zeros else None
    if codes is None or factors is None or (zeros and offsets is None) or codes.shape[1] % 16:
        return False
    if factors.dtype != np.float32 or factors.shape != (codes.shape[0], codes.shape[1] // 16):
        return False
    zero = ""
    if offsets is not None:
        unpacked = np.stack([offsets & 15, offsets >> 4], -1).reshape(len(offsets), -1)[:, : factors.shape[1]]
        zero = b.const(unpacked.astype(np.float32), hint=zeros)
    count, width = codes.shape
    n.bind(b.one("rows_nbits", [indices, data, scales, zero], k=2 * width, n=count, bits=4, block=32))
    return True


def _unpack(b: Builder, packed: str, bits: int) -> str:
    """Bytes to codes along the last axis, least significant bits first."""
    shape = b.shape(packed)
    mask = b.const((1 << bits) - 1, DType.U8)
    parts: Sequence[str] = [
        b.reshape(b.scalar("bit_and", b.scalar("shr", packed, b.const(shift, DType.U8)), mask), (*shape, 1))
        for shift in range(0, 8, bits)
    ]
    stacked = b.one("concat", parts, axis=len(shape))
    return b.reshape(stacked, (*shape[:-1], shape[-1] * len(parts)))
