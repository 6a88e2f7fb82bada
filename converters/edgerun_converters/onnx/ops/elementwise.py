"""Elementwise operators: arithmetic, comparison, logic, bits, casts, selection."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgerun.dtypes import DType, from_onnx
from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering

_UNARY = {
    "Neg": "neg", "Abs": "abs", "Sign": "sign", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sqrt": "sqrt",
    "Exp": "exp", "Log": "log", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos",
    "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh",
    "Atanh": "atanh", "Erf": "erf", "Sigmoid": "sigmoid", "Softplus": "softplus", "Reciprocal": "reciprocal",
    "Not": "not", "BitwiseNot": "bit_not", "IsNaN": "is_nan",
}  # fmt: skip
_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "And": "and", "Or": "or", "Xor": "xor",
    "BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor", "Equal": "eq", "Less": "lt",
    "LessOrEqual": "le", "Greater": "gt", "GreaterOrEqual": "ge",
}  # fmt: skip
_VARIADIC = {"Sum": "add", "Max": "max", "Min": "min"}


@lowering(*_UNARY)
def unary(b: Builder, n: OnnxNode) -> None:
    """One scalar function of one input; unsigned negation and the like follow the function's own meaning."""
    n.bind(b.scalar(_UNARY[n.op_type], n.input(0)))


@lowering(*_BINARY)
def binary(b: Builder, n: OnnxNode) -> None:
    """One scalar function of two broadcast inputs."""
    n.bind(b.scalar(_BINARY[n.op_type], n.input(0), n.input(1)))


@lowering(*_VARIADIC)
def variadic(b: Builder, n: OnnxNode) -> None:
    """Left to right over any number of inputs."""
    n.bind(_fold(b, _VARIADIC[n.op_type], n.inputs))


@lowering("Mean")
def mean(b: Builder, n: OnnxNode) -> None:
    """The sum over the count."""
    total = _fold(b, "add", n.inputs)
    n.bind(b.scalar("div", total, b.fill(total, len(n.inputs))))


def _fold(b: Builder, function: str, inputs: list[str]) -> str:
    if not inputs:
        raise UnsupportedError("an operator without inputs")
    result = inputs[0]
    for other in inputs[1:]:
        result = b.scalar(function, result, other)
    return result


@lowering("Mod")
def mod(b: Builder, n: OnnxNode) -> None:
    """fmod=0: the sign of the divisor (integers only in the specification; floats as NumPy's mod); fmod=1: as C."""
    n.bind(b.scalar("fmod" if n.attr("fmod", 0) else "mod", n.input(0), n.input(1)))


@lowering("Pow")
def power(b: Builder, n: OnnxNode) -> None:
    """The result has the type of the base; mixed types are computed in the wider float type."""
    base, exponent = n.input(0), n.input(1)
    kind, other = b.dtype(base), b.dtype(exponent)
    if kind is other:
        n.bind(b.scalar("pow", base, exponent))
    elif kind.is_integer and other.is_integer:
        wide = DType.I64
        n.bind(b.cast(b.scalar("pow", b.cast(base, wide), b.cast(exponent, wide)), kind, "cast_wrap"))
    elif kind.is_integer:
        n.bind(b.cast(b.scalar("pow", b.cast(base, DType.F64), b.cast(exponent, DType.F64)), kind))
    else:
        wide = DType.F64 if kind is DType.F64 else DType.F32
        n.bind(b.cast(b.scalar("pow", b.cast(base, wide), b.cast(exponent, wide)), kind))


@lowering("BitShift")
def bit_shift(b: Builder, n: OnnxNode) -> None:
    """Shift left or right by the second input."""
    direction = n.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise UnsupportedError(f"the shift direction {direction!r}")
    n.bind(b.scalar("shl" if direction == "LEFT" else "shr", n.input(0), n.input(1)))


@lowering("IsInf")
def is_inf(b: Builder, n: OnnxNode) -> None:
    """Infinities of the wanted signs."""
    x = n.input(0)
    positive, negative = n.attr("detect_positive", 1), n.attr("detect_negative", 1)
    if positive and negative:
        n.bind(b.scalar("is_inf", x))
        return
    if not positive and not negative:
        n.bind(b.scalar("ne", x, x) if not b.dtype(x).is_float else _never(b, x))
        return
    infinite = b.scalar("is_inf", x)
    sign = b.scalar("gt" if positive else "lt", x, b.fill(x, 0.0))
    n.bind(b.scalar("and", infinite, sign))


def _never(b: Builder, x: str) -> str:
    infinite = b.scalar("is_inf", x)
    return b.scalar("and", infinite, b.scalar("not", infinite))


@lowering("Where")
def where(b: Builder, n: OnnxNode) -> None:
    """Elements of the second input where the condition holds, of the third elsewhere."""
    n.bind(b.scalar("where", n.input(0), n.input(1), n.input(2)))


@lowering("Cast")
def cast(b: Builder, n: OnnxNode) -> None:
    """To the type of the attribute `to`."""
    try:
        target = from_onnx(int(n.attr("to")))
    except KeyError as e:
        raise UnsupportedError(f"the type number {n.attr('to')}") from e
    n.bind(_cast(b, n, n.input(0), target))


@lowering("CastLike")
def cast_like(b: Builder, n: OnnxNode) -> None:
    """To the type of the second input."""
    n.bind(_cast(b, n, n.input(0), b.dtype(n.input(1))))


def _cast(b: Builder, n: OnnxNode, x: str, target: DType) -> str:
    function = "cast" if n.attr("saturate", 1) else "cast_wrap"
    if target is DType.F8E8M0:
        function = {"up": "cast_up", "down": "cast_down", "nearest": "cast"}.get(n.attr("round_mode", "up"), "cast_up")
    return b.cast(x, target, function)


@lowering("Clip")
def clip(b: Builder, n: OnnxNode) -> None:
    """min(max(x, low), high): the upper bound wins when they cross. Bounds are attributes before opset 11."""
    x = n.input(0)
    if n.opset < 11:
        low = b.fill(x, n.attr("min")) if "min" in n.attributes else ""
        high = b.fill(x, n.attr("max")) if "max" in n.attributes else ""
    else:
        low, high = n.input(1), n.input(2)
    result = x
    if low:
        result = b.scalar("max", result, _scalar(b, low))
    if high:
        result = b.scalar("min", result, _scalar(b, high))
    n.bind(result)


def _scalar(b: Builder, name: str) -> str:
    """Bounds are rank 0; exporters also write [1], which must not add a dimension."""
    return b.reshape(name, ()) if b.type(name).shape == (1,) else name


@lowering("BatchNormalization")
def batch_normalization(b: Builder, n: OnnxNode) -> None:
    """Inference: x * mul + add with per-channel constants. Training mode normalises by the batch's own moments."""
    x, scale, bias, mean_name, variance = (n.input(i) for i in range(5))
    rank = b.rank(x)
    dtype = b.dtype(x)
    epsilon = float(n.attr("epsilon", 1e-5))
    channel = tuple([1, -1] + [1] * (rank - 2)) if rank > 1 else (-1,)

    def spread(name: str) -> str:
        size = b.shape(name)[0]
        return b.reshape(b.cast(name, dtype), tuple(size if d == -1 else d for d in channel))

    if n.attr("training_mode", 0) or (n.opset >= 14 and n.wants(1)):
        _training(b, n, spread, epsilon)
        return
    if n.opset < 9 and not n.attr("spatial", 1):
        raise UnsupportedError("BatchNormalization with spatial=0")
    parameters = [b.static(p) for p in (scale, bias, mean_name, variance)]
    if all(p is not None for p in parameters):
        s, t, m, v = (np.asarray(p, np.float64) for p in parameters)
        factor = s / np.sqrt(v + epsilon)
        shape = tuple(s.size if d == -1 else d for d in channel)
        multiply = b.const(factor.reshape(shape), dtype, f"{n.name}.scale")
        add = b.const((t - m * factor).reshape(shape), dtype, f"{n.name}.offset")
        n.bind(b.scalar("add", b.scalar("mul", x, multiply), add))
        return
    deviation = b.scalar("sqrt", b.scalar("add", spread(variance), b.fill(x, epsilon)))
    factor_name = b.scalar("div", spread(scale), deviation)
    centred = b.scalar("sub", x, spread(mean_name))
    n.bind(b.scalar("add", b.scalar("mul", centred, factor_name), spread(bias)))


def _training(b: Builder, n: OnnxNode, spread: Callable[[str], str], epsilon: float) -> None:
    """(y, running mean, running variance) by the moments over all axes but the channels'."""
    x, scale, bias, running_mean, running_variance = (n.input(i) for i in range(5))
    rank, momentum = b.rank(x), float(n.attr("momentum", 0.9))
    axes = (0, *range(2, rank))
    mean_name = b.one("reduce", [x], kind="mean", over=axes, keepdims=True)
    centred = b.scalar("sub", x, mean_name)
    variance = b.one("reduce", [b.scalar("mul", centred, centred)], kind="mean", over=axes, keepdims=True)
    deviation = b.scalar("sqrt", b.scalar("add", variance, b.fill(x, epsilon)))
    y = b.scalar("add", b.scalar("mul", b.scalar("div", centred, deviation), spread(scale)), spread(bias))

    def running(old: str, new: str) -> str:
        flat = b.cast(b.reshape(new, b.shape(old)), b.dtype(old))
        kept = b.scalar("mul", old, b.fill(old, momentum))
        return b.scalar("add", kept, b.scalar("mul", flat, b.fill(flat, 1.0 - momentum)))

    n.bind(y, running(running_mean, mean_name), running(running_variance, variance))
