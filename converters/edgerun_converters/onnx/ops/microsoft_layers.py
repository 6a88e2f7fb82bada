"""Normalisation, embedding and activation operators of com.microsoft (and the ones onnxruntime adds to ai.onnx)."""

from __future__ import annotations

from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering

MICROSOFT = "com.microsoft"


@lowering("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_layer_norm(b: Builder, n: OnnxNode) -> None:
    simplified = n.op_type == "SkipSimplifiedLayerNormalization"
    x, skip, gamma = n.input(0), n.input(1), n.input(2)
    beta, bias = ("", n.input(3)) if simplified else (n.input(3), n.input(4))
    total = b.scalar("add", x, skip)
    if bias:
        total = b.scalar("add", total, bias)
    axis, epsilon = b.rank(total) - 1, float(n.attr("epsilon", 1e-12 if not simplified else 1e-5))
    if simplified:
        y = b.one("rms_norm", [total, gamma], axis=axis, epsilon=epsilon)
        inverse = _inverse_rms(b, total, axis, epsilon) if n.wants(2) else ""
        n.bind(y, "", inverse, total)
        return
    wanted = 3 if n.wants(1) or n.wants(2) else 1
    y, *rest = b.emit("layer_norm", [total, gamma, beta], wanted, axis=axis, epsilon=epsilon)
    n.bind(y, *(rest or ("", "")), total)


@lowering("SimplifiedLayerNormalization")
@lowering("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_norm(b: Builder, n: OnnxNode) -> None:
    x, scale = n.input(0), n.input(1)
    axis, epsilon = b.axis(x, int(n.attr("axis", -1))), float(n.attr("epsilon", 1e-5))
    y = b.one("rms_norm", [x, scale], axis=axis, epsilon=epsilon)
    n.bind(y, _inverse_rms(b, x, axis, epsilon) if n.wants(1) else "")


def _inverse_rms(b: Builder, x: str, axis: int, epsilon: float) -> str:
    mean = b.one("reduce", [b.scalar("mul", x, x)], kind="mean", over=tuple(range(axis, b.rank(x))))
    return b.scalar("reciprocal", b.scalar("sqrt", b.scalar("add", mean, b.fill(mean, epsilon))))


@lowering("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_norm(b: Builder, n: OnnxNode) -> None:
    ids, segments, words, places, kinds, gamma, beta, mask, positions = (n.input(i) for i in range(9))
    total = b.one("gather", [words, ids], axis=0)
    if positions:
        place = b.one("gather", [places, positions], axis=0)
    else:
        place = b.one("slice", [places], ranges=((0, 0, b.shape(ids)[1], 1),))
    total = b.scalar("add", total, place)
    if kinds:
        total = b.scalar("add", total, b.one("gather", [kinds, segments], axis=0))
    epsilon = float(n.attr("epsilon", 1e-12))
    y = b.one("layer_norm", [total, gamma, beta], axis=2, epsilon=epsilon)
    lengths = ""
    if n.wants(1):
        if mask and n.attr("mask_index_type", 1):
            lengths = b.one("reduce", [b.cast(mask, DType.I32)], kind="sum", over=(1,), keepdims=False)
        else:
            lengths = b.one("expand", [b.const(0, DType.I32)], to=(b.shape(ids)[0],))
    n.bind(y, lengths, total)


@lowering("Gelu", domain=MICROSOFT)
def gelu(b: Builder, n: OnnxNode) -> None:
    n.bind(b.scalar("gelu", n.input(0)))


@lowering("BiasGelu", domain=MICROSOFT)
def bias_gelu(b: Builder, n: OnnxNode) -> None:
    n.bind(b.scalar("gelu", b.scalar("add", n.input(0), n.input(1))))


@lowering("FastGelu", domain=MICROSOFT)
def fast_gelu(b: Builder, n: OnnxNode) -> None:
    x = b.scalar("add", n.input(0), n.input(1)) if n.input(1) else n.input(0)
    n.bind(b.scalar("gelu_tanh", x))


@lowering("QuickGelu", domain=MICROSOFT)
def quick_gelu(b: Builder, n: OnnxNode) -> None:
    x = n.input(0)
    scaled = b.scalar("mul", x, b.fill(x, float(n.attr("alpha", 1.702))))
    n.bind(b.scalar("mul", x, b.scalar("sigmoid", scaled)))


@lowering("BiasAdd", domain=MICROSOFT)
def bias_add(b: Builder, n: OnnxNode) -> None:
    n.bind(b.scalar("add", b.scalar("add", n.input(0), n.input(1)), n.input(2)))


@lowering("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(b: Builder, n: OnnxNode) -> None:
    x, bias = n.input(0), n.input(1)
    axis = b.axis(x, int(n.attr("axis", 1)))
    if axis != b.rank(x) - 1 or b.rank(bias) != b.rank(x):
        raise UnsupportedError("BiasSoftmax is supported along the last axis with a bias of the input's rank")
    n.bind(b.one("softmax", [b.scalar("add", x, bias)], axis=axis))
