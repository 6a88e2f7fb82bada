"""Random operators and Dropout."""

from __future__ import annotations

from edgerun.dtypes import DType, from_onnx
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering


def _seed(n: OnnxNode) -> float | None:
    seed = n.attr("seed", None)
    return None if seed is None else float(seed)


@lowering("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike")
def random(b: Builder, n: OnnxNode) -> None:
    like = n.op_type.endswith("Like")
    stated = n.attr("dtype", 0)
    if stated:
        dtype = from_onnx(stated)
    else:
        dtype = b.dtype(n.input(0)) if like else DType.F32
    shape = None if like else tuple(int(d) for d in n.attr("shape"))
    inputs = [n.input(0)] if like else []
    if "Normal" in n.op_type:
        mean, scale = float(n.attr("mean", 0.0)), float(n.attr("scale", 1.0))
        n.bind(b.one("random_normal", inputs, shape=shape, dtype=dtype, mean=mean, scale=scale, seed=_seed(n)))
    else:
        low, high = float(n.attr("low", 0.0)), float(n.attr("high", 1.0))
        n.bind(b.one("random_uniform", inputs, shape=shape, dtype=dtype, low=low, high=high, seed=_seed(n)))


@lowering("Multinomial")
def multinomial(b: Builder, n: OnnxNode) -> None:
    samples, dtype = int(n.attr("sample_size", 1)), from_onnx(n.attr("dtype", DType.I32.onnx))
    n.bind(b.one("multinomial", [n.input(0)], samples=samples, dtype=dtype, seed=_seed(n)))


@lowering("Bernoulli")
def bernoulli(b: Builder, n: OnnxNode) -> None:
    stated = n.attr("dtype", 0)
    dtype = from_onnx(stated) if stated else b.dtype(n.input(0))
    n.bind(b.one("bernoulli", [n.input(0)], dtype=dtype, seed=_seed(n)))


@lowering("Dropout")
def dropout(b: Builder, n: OnnxNode) -> None:
    """The identity, unless opset 12 or later asks for training: then kept elements are scaled by 1 / (1 - ratio)."""
    x, ratio, training = n.input(0), n.input(1), n.input(2)
    mode = b.static(training)
    if n.opset < 12 or not training or (mode is not None and not mode.any()):
        # Before opset 10 the mask had the type of the data.
        mask_type = DType.BOOL if n.opset >= 10 else b.dtype(x)
        n.bind(x, b.one("expand", [b.const(1, mask_type)], to=b.shape(x)) if n.wants(1) else "")
        return
    ratio = b.cast(ratio, DType.F64) if ratio else b.const(0.5, DType.F64)
    drawn = b.one("random_uniform", [x], dtype=DType.F64, seed=_seed(n))
    mask = b.scalar("ge", drawn, ratio)
    one = b.const(1.0, DType.F64)
    scale = b.scalar("div", one, b.scalar("sub", one, ratio))
    if mode is None:
        mask = b.scalar("or", mask, b.scalar("not", training))
        scale = b.scalar("where", training, scale, one)
    scaled = b.scalar("mul", x, b.cast(scale, b.dtype(x)))
    n.bind(b.scalar("where", mask, scaled, b.fill(x, 0)), mask)
