"""Normalisation, activation and fused operators of com.microsoft against onnxruntime."""

import numpy as np
import pytest

from edgerun.errors import EdgerunError
from tests.ops.single_node import NodeCase

f32 = np.float32
MS = "com.microsoft"


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(f32)


def node(op_type, inputs, outputs=1, wanted=(), constant=(), **attributes):
    return NodeCase(op_type, inputs, attributes, outputs=outputs, opset=1, domain=MS, wanted=wanted, constant=constant)


@pytest.mark.parametrize("beta", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_skip_layer_normalization(beta, bias, whole):
    inputs = {
        "x": normal(2, 3, 8), "s": normal(2, 3, 8, seed=1), "g": normal(8, seed=2),
        "b": normal(8, seed=3) if beta else None, "c": normal(8, seed=4) if bias else None,
    }  # fmt: skip
    wanted = (True, False, False, True) if whole else (True,)
    node("SkipLayerNormalization", inputs, len(wanted), wanted, epsilon=1e-5).check()


@pytest.mark.parametrize("bias", [False, True])
def test_skip_simplified_layer_normalization(bias):
    inputs = {"x": normal(2, 3, 8), "s": normal(2, 3, 8, seed=1), "g": normal(8, seed=2)}
    inputs["b"] = normal(8, seed=3) if bias else None
    wanted = (True, False, False, True)
    node("SkipSimplifiedLayerNormalization", inputs, 4, wanted, epsilon=1e-5).check()


def test_simplified_layer_normalization():
    x, g = normal(2, 3, 8), normal(8, seed=1)
    NodeCase("SimplifiedLayerNormalization", {"x": x, "g": g}, {"epsilon": 1e-5, "axis": -1}, opset=17).check()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("positions", [False, True])
def test_embed_layer_normalization(masked, segments, positions):
    r = np.random.default_rng(0)
    inputs = {
        "ids": r.integers(0, 9, (2, 4)).astype(np.int32),
        "seg": r.integers(0, 2, (2, 4)).astype(np.int32) if segments else None,
        "words": normal(9, 8), "places": normal(6, 8, seed=1), "kinds": normal(2, 8, seed=2) if segments else None,
        "g": normal(8, seed=3), "b": normal(8, seed=4),
        "m": np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32) if masked else None,
        "p": r.integers(0, 6, (2, 4)).astype(np.int32) if positions else None,
    }  # fmt: skip
    node("EmbedLayerNormalization", inputs, 3, epsilon=1e-5).check()


def test_gelu_family():
    x, bias = normal(3, 8) * 2, normal(8, seed=1)
    node("Gelu", {"x": x}).check()
    node("BiasGelu", {"x": x, "b": bias}).check()
    node("FastGelu", {"x": x, "b": bias}).check(atol=1e-4)
    node("FastGelu", {"x": x}).check(atol=1e-4)
    node("QuickGelu", {"x": x}, alpha=1.5).check()


@pytest.mark.parametrize("attributes", [
    {}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1, "alpha": 0.5}, {"transBatchA": 1}, {"transBatchB": 1},
    {"transA": 1, "transBatchA": 1}, {"transB": 1, "transBatchB": 1, "transBatchA": 1},
], ids=str)  # fmt: skip
def test_fused_matmul(attributes):
    a, b = normal(3, 3, 3, 3), normal(3, 3, 3, 3, seed=1)
    node("FusedMatMul", {"a": a, "b": b}, **attributes).check()


def test_fused_matmul_of_unequal_sizes():
    node("FusedMatMul", {"a": normal(2, 4, 3), "b": normal(5, 4, seed=1)}, transA=1, transB=1, alpha=2.0).check()


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "Sigmoid"])
def test_fused_gemm(activation):
    attributes = {"activation": activation, "transB": 1, "alpha": 0.5}
    if activation == "LeakyRelu":
        attributes["activation_alpha"] = 0.2
    node("FusedGemm", {"a": normal(3, 4), "b": normal(5, 4, seed=1), "c": normal(5, seed=2)}, **attributes).check()


@pytest.mark.parametrize("activation", [
    ("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.7]),
    ("HardSigmoid", [0.2, 0.4]),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("residual", [False, True])
def test_fused_convolution(activation, residual):
    name, parameters = activation
    inputs = {"x": normal(1, 3, 6, 6), "w": normal(4, 3, 3, 3, seed=1), "b": normal(4, seed=2)}
    inputs["z"] = normal(1, 4, 6, 6, seed=3) if residual else None
    attributes = {"activation": name, "pads": [1, 1, 1, 1]} | ({"activation_params": parameters} if parameters else {})
    node("FusedConv", inputs, **attributes).check(atol=1e-4)


def test_unknown_activation_is_refused():
    with pytest.raises(EdgerunError, match="activation"):
        node("FusedConv", {"x": normal(1, 1, 4, 4), "w": normal(1, 1, 3, 3)}, activation="Mish").graph()


def test_inverse():
    x = normal(2, 3, 3) + 3 * np.eye(3, dtype=f32)
    node("Inverse", {"x": x}).check(atol=1e-4)
    with pytest.raises(EdgerunError, match="inverted"):
        node("Inverse", {"x": np.zeros((2, 2), f32)}).edgerun()


def test_operators_that_the_standard_took_over():
    node("Trilu", {"x": normal(3, 4), "k": np.array(1)}, upper=0).check()
    node("GridSample", {"x": normal(1, 2, 4, 4), "g": normal(1, 3, 3, 2, seed=1) / 2}, align_corners=1).check()
    node("ExpandDims", {"x": normal(3, 4), "a": np.array(1, np.int32)}, constant=("a",)).check()


def test_unique():
    node("Unique", {"x": np.array([3, 1, 3, 2, 1], f32)}, 3).check()


def test_bias_softmax_and_bias_add():
    x, bias = normal(2, 3, 4), normal(1, 3, 4, seed=1)
    (y,) = node("BiasSoftmax", {"x": x, "b": bias}, axis=2, is_inner_broadcast=0).edgerun()
    e = np.exp(x + bias)
    np.testing.assert_allclose(y, e / e.sum(-1, keepdims=True), rtol=1e-5)
    (y,) = node("BiasAdd", {"x": x, "b": normal(4), "s": x}).edgerun()
    np.testing.assert_allclose(y, 2 * x + normal(4), rtol=1e-6)
