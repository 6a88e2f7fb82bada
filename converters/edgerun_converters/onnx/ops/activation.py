"""Activations, written as small elementwise programs that the passes recognise again."""

from __future__ import annotations

from edgerun.dtypes import DType
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering


@lowering("Relu")
def relu(b: Builder, n: OnnxNode) -> None:
    """max(x, 0), NaN stays."""
    n.bind(b.scalar("max", n.input(0), b.fill(n.input(0), 0)))


def _below_zero(b: Builder, x: str, negative: str) -> str:
    """`negative` where x < 0, else x."""
    return b.scalar("where", b.scalar("lt", x, b.fill(x, 0)), negative, x)


@lowering("LeakyRelu")
def leaky_relu(b: Builder, n: OnnxNode) -> None:
    """alpha * x below zero."""
    x = n.input(0)
    n.bind(_below_zero(b, x, b.scalar("mul", x, b.fill(x, n.attr("alpha", 0.01)))))


@lowering("PRelu")
def prelu(b: Builder, n: OnnxNode) -> None:
    """slope * x below zero; the slope broadcasts to x."""
    x = n.input(0)
    n.bind(_below_zero(b, x, b.scalar("mul", x, n.input(1))))


@lowering("Elu")
def elu(b: Builder, n: OnnxNode) -> None:
    """alpha * (e^x - 1) below zero."""
    x = n.input(0)
    n.bind(_below_zero(b, x, _scaled_expm1(b, x, n.attr("alpha", 1.0))))


def _scaled_expm1(b: Builder, x: str, alpha: float) -> str:
    return b.scalar("mul", b.fill(x, alpha), b.scalar("sub", b.scalar("exp", x), b.fill(x, 1)))


@lowering("Selu")
def selu(b: Builder, n: OnnxNode) -> None:
    """gamma * elu(x, alpha)."""
    x = n.input(0)
    alpha = n.attr("alpha", 1.67326319217681884765625)
    gamma = n.attr("gamma", 1.05070102214813232421875)
    n.bind(b.scalar("mul", _below_zero(b, x, _scaled_expm1(b, x, alpha)), b.fill(x, gamma)))


@lowering("Celu")
def celu(b: Builder, n: OnnxNode) -> None:
    """max(0, x) + min(0, alpha * (e^(x / alpha) - 1))."""
    x, alpha = n.input(0), n.attr("alpha", 1.0)
    zero = b.fill(x, 0)
    low = b.scalar("min", zero, _scaled_expm1(b, b.scalar("div", x, b.fill(x, alpha)), alpha))
    n.bind(b.scalar("add", b.scalar("max", zero, x), low))


@lowering("HardSigmoid")
def hard_sigmoid(b: Builder, n: OnnxNode) -> None:
    """clamp(alpha x + beta, 0, 1)."""
    x = n.input(0)
    n.bind(_hard_sigmoid(b, x, n.attr("alpha", 0.2), n.attr("beta", 0.5)))


def _hard_sigmoid(b: Builder, x: str, alpha: float, beta: float) -> str:
    line = b.scalar("add", b.scalar("mul", x, b.fill(x, alpha)), b.fill(x, beta))
    return b.scalar("min", b.scalar("max", line, b.fill(x, 0)), b.fill(x, 1))


@lowering("HardSwish")
def hard_swish(b: Builder, n: OnnxNode) -> None:
    """x * clamp(x / 6 + 1/2, 0, 1)."""
    x = n.input(0)
    n.bind(b.scalar("mul", x, _hard_sigmoid(b, x, 1 / 6, 0.5)))


@lowering("Gelu")
def gelu(b: Builder, n: OnnxNode) -> None:
    """The erf form, or with approximate="tanh" the tanh form."""
    n.bind(b.scalar("gelu_tanh" if n.attr("approximate", "none") == "tanh" else "gelu", n.input(0)))


@lowering("Swish")
def swish(b: Builder, n: OnnxNode) -> None:
    """x * sigmoid(alpha x)."""
    x, alpha = n.input(0), n.attr("alpha", 1.0)
    inner = x if alpha == 1.0 else b.scalar("mul", x, b.fill(x, alpha))
    n.bind(b.scalar("mul", x, b.scalar("sigmoid", inner)))


@lowering("Mish")
def mish(b: Builder, n: OnnxNode) -> None:
    """x * tanh(softplus(x))."""
    x = n.input(0)
    n.bind(b.scalar("mul", x, b.scalar("tanh", b.scalar("softplus", x))))


@lowering("Softsign")
def softsign(b: Builder, n: OnnxNode) -> None:
    """x / (1 + |x|)."""
    x = n.input(0)
    n.bind(b.scalar("div", x, b.scalar("add", b.scalar("abs", x), b.fill(x, 1))))


@lowering("ThresholdedRelu")
def thresholded_relu(b: Builder, n: OnnxNode) -> None:
    """x above alpha, else 0."""
    x = n.input(0)
    n.bind(b.scalar("where", b.scalar("gt", x, b.fill(x, n.attr("alpha", 1.0))), x, b.fill(x, 0)))


@lowering("Shrink")
def shrink(b: Builder, n: OnnxNode) -> None:
    """x + bias below -lambd, x - bias above lambd, else 0; integers are computed in float64."""
    x, dtype = n.input(0), b.dtype(n.input(0))
    wide = b.cast(x, DType.F64) if dtype.is_integer else x
    bias, lambd = b.fill(wide, n.attr("bias", 0.0)), n.attr("lambd", 0.5)
    zero = b.fill(wide, 0)
    high = b.scalar("where", b.scalar("gt", wide, b.fill(wide, lambd)), b.scalar("sub", wide, bias), zero)
    low = b.scalar("lt", wide, b.fill(wide, -lambd))
    n.bind(b.cast(b.scalar("where", low, b.scalar("add", wide, bias), high), dtype))
