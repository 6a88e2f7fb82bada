"""Fused matrix products and convolutions of com.microsoft, and its versions of operators that ai.onnx has too."""

from __future__ import annotations

from typing import Any

from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering
from edgerun_converters.onnx.delegate import delegate

MICROSOFT = "com.microsoft"


@lowering("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(b: Builder, n: OnnxNode) -> None:
    a = _transposed(b, n.input(0), bool(n.attr("transA", 0)), bool(n.attr("transBatchA", 0)))
    w = _transposed(b, n.input(1), bool(n.attr("transB", 0)), bool(n.attr("transBatchB", 0)))
    y = b.one("matmul", [a, w])
    alpha = float(n.attr("alpha", 1.0))
    n.bind(y if alpha == 1.0 else b.scalar("mul", y, b.fill(y, alpha)))


def _transposed(b: Builder, x: str, matrix: bool, batch: bool) -> str:
    """`batch` moves the first axis behind the other batch axes and the rows; `matrix` swaps the last two then."""
    rank = b.rank(x)
    if rank < 2:
        return x
    axes = list(range(rank))
    if batch:
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if matrix:
        axes[-2:] = axes[:-3:-1]
    return b.transpose(x, axes)


@lowering("FusedGemm", domain=MICROSOFT)
def fused_gemm(b: Builder, n: OnnxNode) -> None:
    attributes = {k: n.attr(k) for k in ("alpha", "beta", "transA", "transB") if k in n.attributes}
    y = delegate(b, n, "Gemm", n.inputs, opset=13, **attributes)[0]
    parameters = [n.attr(f"activation_{k}", None) for k in ("alpha", "beta", "gamma")]
    n.bind(_activated(b, n, y, [p for p in parameters if p is not None]))


@lowering("FusedConv", domain=MICROSOFT)
def fused_conv(b: Builder, n: OnnxNode) -> None:
    n.bind(_convolution(b, n, n.input(0), n.input(1), n.input(3)))


@lowering("NhwcFusedConv", "NhwcConv", domain=MICROSOFT)
def nhwc_fused_conv(b: Builder, n: OnnxNode) -> None:
    """Input, residual and output are channels last; the weights are as in Conv."""
    residual = b.to_channels_first(n.input(3)) if n.input(3) else ""
    n.bind(b.to_channels_last(_convolution(b, n, b.to_channels_first(n.input(0)), n.input(1), residual)))


@lowering("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(b: Builder, n: OnnxNode) -> None:
    pooled = delegate(b, n, "MaxPool", [b.to_channels_first(n.input(0))], opset=12, **n.attributes)[0]
    n.bind(b.to_channels_last(pooled))


def _convolution(b: Builder, n: OnnxNode, x: str, w: str, residual: str) -> str:
    attributes = {k: v for k, v in n.attributes.items() if not k.startswith("activation")}
    y = delegate(b, n, "Conv", [x, w, n.input(2)], opset=11, **attributes)[0]
    if residual:
        y = b.scalar("add", y, residual)
    return _activated(b, n, y, list(n.attr("activation_params", ())))


def _activated(b: Builder, n: OnnxNode, x: str, parameters: list[float]) -> str:
    """The activation that the node names, with its parameters in the order onnxruntime writes them."""
    name = n.attr("activation", "")
    names: dict[str, tuple[str, ...]] = {
        "": (), "Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
    }  # fmt: skip
    if name == "Clip":
        low, high = (b.fill(x, float(p)) for p in parameters)
        return delegate(b, n, "Clip", [x, low, high], opset=13)[0]
    if name not in names:
        raise UnsupportedError(f"{n.op_type} with the activation {name!r} is not supported")
    if not name:
        return x
    values: dict[str, Any] = {k: float(v) for k, v in zip(names[name], parameters, strict=False)}
    return delegate(b, n, name, [x], opset=13, **values)[0]


_SAME_AS: dict[str, tuple[str, int]] = {
    "GridSample": ("GridSample", 16),
    "Trilu": ("Trilu", 14),
    "Pad": ("Pad", 13),
    "Range": ("Range", 11),
    "GatherND": ("GatherND", 11),
    "ExpandDims": ("Unsqueeze", 13),
}
"""Operators that ai.onnx took over later: name -> (standard name, opset)."""


@lowering(*_SAME_AS, domain=MICROSOFT)
def standard(b: Builder, n: OnnxNode) -> None:
    name, opset = _SAME_AS[n.op_type]
    inputs = list(n.inputs)
    if n.op_type == "Range" and not n.input(2):
        inputs = [*inputs[:2], b.fill(inputs[0], 1)]
    if n.op_type == "ExpandDims" and b.rank(inputs[1]) == 0:
        inputs[1] = b.reshape(inputs[1], (1,))
    n.bind(*delegate(b, n, name, inputs, opset=opset, **n.attributes))


@lowering("Unique", domain=MICROSOFT)
def unique(b: Builder, n: OnnxNode) -> None:
    """The flat distinct values in order of appearance: (values, where each input element is among them, counts)."""
    values, _, inverse, counts = b.emit("unique", [n.input(0)], sorted=False)
    n.bind(values, inverse, counts)


@lowering("Inverse", domain=MICROSOFT)
def inverse(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("inverse", [n.input(0)]))
