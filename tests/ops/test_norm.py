"""Normalisation against onnxruntime and against the definitions in double precision."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from edgerun.dtypes import DType
from edgerun.errors import EdgerunError
from edgerun.ops.registry import TensorType, infer
from tests.ops.shapes import assert_symbolic_shapes
from tests.ops.single_node import NodeCase


def normal(*shape, seed=0, dtype=np.float32):
    return (np.random.default_rng(seed).standard_normal(shape) * 2 + 1).astype(dtype)


@given(st.integers(1, 4), st.integers(-4, 3), st.booleans(), st.sampled_from([1e-5, 1e-2]))
@settings(max_examples=60, deadline=None)
def test_layer_norm_matches_onnxruntime(rank, axis, with_bias, epsilon):
    axis = max(-rank, min(axis, rank - 1))
    shape = (2, 3, 4, 5)[:rank]
    parameters = shape[axis:] if axis >= 0 else shape[rank + axis :]
    bias = normal(*parameters, seed=2) if with_bias else None
    inputs = {"X": normal(*shape), "scale": normal(*parameters, seed=1), "bias": bias}
    NodeCase("LayerNormalization", inputs, {"axis": axis, "epsilon": epsilon}, outputs=3, opset=17).check(1e-4, 1e-4)


@pytest.mark.parametrize("parameters", [(5,), (1,), (4, 1), (3, 4, 5), ()])
def test_layer_norm_scale_that_broadcasts(parameters):
    x, scale, bias = normal(3, 4, 5), normal(*parameters, seed=1), normal(*parameters, seed=2)
    (y,) = NodeCase("LayerNormalization", {"X": x, "scale": scale, "bias": bias}, {"axis": 1}, opset=17).edgerun()
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=(1, 2), keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(axis=(1, 2), keepdims=True) + 1e-5) * scale + bias
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_layer_norm_of_other_floats(dtype):
    x, scale = normal(3, 64).astype(dtype), normal(64, seed=1).astype(dtype)
    y, mean, inverse = NodeCase("LayerNormalization", {"X": x, "scale": scale}, outputs=3, opset=17).edgerun()
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * scale.astype(float)
    assert y.dtype == dtype
    assert mean.dtype == inverse.dtype == np.float32
    tolerance = {2: 2e-2, 8: 1e-12}[np.dtype(dtype).itemsize]
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_layer_norm_statistics_in_the_stash_type():
    inputs = {"X": normal(3, 8), "scale": np.ones(8, np.float32)}
    attributes = {"stash_type": TensorProto.BFLOAT16}
    _, mean, inverse = NodeCase("LayerNormalization", inputs, attributes, outputs=3, opset=17).edgerun()
    assert mean.dtype == inverse.dtype == ml_dtypes.bfloat16


def test_layer_norm_of_a_large_offset_keeps_its_precision():
    x = (10000 + np.arange(8, dtype=np.float32)).reshape(1, 8)
    (y,) = NodeCase("LayerNormalization", {"X": x, "scale": np.ones(8, np.float32)}, opset=17).edgerun()
    centred = np.arange(8) - 3.5
    np.testing.assert_allclose(y[0], centred / np.sqrt((centred**2).mean() + 1e-5), rtol=1e-5)


@pytest.mark.parametrize("parameters", [(4, 5), (5,), (1,)])
@pytest.mark.parametrize("axis", [1, -2])
def test_rms_norm(axis, parameters):
    x, scale = normal(3, 4, 5), normal(*parameters, seed=1)
    (y,) = NodeCase("RMSNormalization", {"X": x, "scale": scale}, {"axis": axis, "epsilon": 1e-3}, opset=23).edgerun()
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=(1, 2), keepdims=True) + 1e-3) * scale
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_rms_norm_takes_the_type_of_its_scale():
    inputs = {"X": normal(3, 8).astype(np.float16), "scale": normal(8, seed=1)}
    (y,) = NodeCase("RMSNormalization", inputs, opset=23).edgerun()
    assert y.dtype == np.float32


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups, opset):
    x = normal(2, 6, 4, 3)
    count = groups if opset == 18 else 6
    scale, bias = normal(count, seed=1), normal(count, seed=2)
    inputs = {"X": x, "scale": scale, "bias": bias}
    (y,) = NodeCase("GroupNormalization", inputs, {"num_groups": groups}, opset=opset).edgerun()
    wide = x.astype(np.float64).reshape(2, groups, -1)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    per_channel = [np.repeat(p, 6 // count).reshape(6, 1, 1) for p in (scale, bias)]
    np.testing.assert_allclose(y, expected.reshape(x.shape) * per_channel[0] + per_channel[1], rtol=1e-4, atol=1e-4)


@given(st.integers(1, 3), st.integers(1, 2), st.integers(1, 4), st.booleans())
@settings(max_examples=40, deadline=None)
def test_instance_norm_matches_onnxruntime(n, batch, channels, constant):
    inputs = {
        "X": normal(batch, channels, *(4, 5, 3)[:n]),
        "s": normal(channels, seed=1),
        "b": normal(channels, seed=2),
    }
    NodeCase("InstanceNormalization", inputs, constant=["s", "b"] if constant else []).check(1e-4, 1e-4)


def test_instance_norm_of_a_large_image():
    x = normal(1, 2, 300, 300) + np.array([1000, 0], np.float32).reshape(1, 2, 1, 1)
    inputs = {"X": x, "s": np.ones(2, np.float32), "b": np.zeros(2, np.float32)}
    (y,) = NodeCase("InstanceNormalization", inputs).edgerun()
    wide = x.astype(np.float64)
    expected = (wide - wide.mean((2, 3), keepdims=True)) / np.sqrt(wide.var((2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("op_type", ["InstanceNormalization", "GroupNormalization"])
def test_symbolic_sizes(op_type):
    inputs = {"X": normal(2, 4, 5, 6), "s": normal(4, seed=1), "b": normal(4, seed=2)}
    attributes = {"num_groups": 2} if op_type == "GroupNormalization" else {}
    case = NodeCase(op_type, inputs, attributes, constant=["s", "b"])
    plain = case.edgerun()[0]
    assert_symbolic_shapes(case)
    np.testing.assert_array_equal(case.edgerun()[0], plain)


@given(st.integers(1, 7), st.integers(1, 6), st.integers(0, 2), st.sampled_from([0.5, 0.75, 1.0]))
@settings(max_examples=40, deadline=None)
def test_lrn_matches_its_definition(size, channels, n, beta):
    x = normal(2, channels, *(3, 4)[:n])
    attributes = {"size": size, "alpha": 0.3, "beta": beta, "bias": 1.5}
    (y,) = NodeCase("LRN", {"X": x}, attributes).edgerun()
    expected = np.empty(x.shape)
    for c in range(channels):
        low, high = max(0, c - (size - 1) // 2), min(channels, c + size // 2 + 1)
        total = (x[:, low:high].astype(np.float64) ** 2).sum(axis=1)
        expected[:, c] = x[:, c] / (1.5 + 0.3 / size * total) ** beta
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn_matches_onnxruntime(size):
    NodeCase("LRN", {"X": normal(2, 6, 4, 4)}, {"size": size, "alpha": 0.01}).check()


def test_rules_refuse():
    x = TensorType(DType.F32, (2, 3, 8))
    with pytest.raises(EdgerunError, match="scale"):
        infer("layer_norm", [x, TensorType(DType.F32, (3,))], {"axis": 2, "epsilon": 1e-5})
    with pytest.raises(EdgerunError, match="groups"):
        one = TensorType(DType.F32, (8,))
        infer("group_norm", [x, one, one], {"groups": 3, "epsilon": 1e-5})
    with pytest.raises(EdgerunError, match="channels"):
        one = TensorType(DType.F32, (7,))
        infer("group_norm", [x, one, one], {"groups": 4, "epsilon": 1e-5})
