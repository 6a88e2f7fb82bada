"""Pooling against onnxruntime and against hand values."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.dims import symbol
from edgerun.dtypes import DType
from edgerun.errors import EdgerunError
from edgerun.ops.registry import TensorType, infer
from tests.ops.shapes import assert_symbolic_shapes
from tests.ops.single_node import NodeCase


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@st.composite
def pools(draw):
    """(operator, input shape, attributes) of a legal node with one to three spatial axes."""
    op_type = draw(st.sampled_from(["MaxPool", "AveragePool", "LpPool"]))
    n = draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(n)]
    strides = [draw(st.integers(1, 3)) for _ in range(n)]
    attributes = {"kernel_shape": kernel, "strides": strides}
    dilations = [draw(st.integers(1, 2)) for _ in range(n)]
    mode = draw(st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if mode == "NOTSET":
        attributes["pads"] = [draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
        attributes["ceil_mode"] = draw(st.integers(0, 1))
    else:
        attributes["auto_pad"] = mode
        # onnxruntime refuses SAME padding of dilated kernels and of kernels shorter than their stride.
        dilations = [1] * n
        attributes["strides"] = [min(s, k) for s, k in zip(strides, kernel, strict=True)]
    attributes["dilations"] = dilations
    if op_type == "AveragePool":
        attributes["count_include_pad"] = draw(st.integers(0, 1))
    if op_type == "LpPool":
        attributes["p"] = draw(st.integers(1, 3))
    sizes = [draw(st.integers((k - 1) * d + 1, 9)) for k, d in zip(kernel, dilations, strict=True)]
    return op_type, (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *sizes), attributes


@given(pools())
@settings(max_examples=150, deadline=None)
def test_pool_matches_a_loop(node):
    op_type, shape, attributes = node
    x = normal(*shape)
    (y,) = NodeCase(op_type, {"X": x}, attributes).edgerun()
    np.testing.assert_allclose(y, pooled_by_hand(op_type, x, y.shape, attributes), rtol=1e-4, atol=1e-5)


@given(pools())
@settings(max_examples=100, deadline=None)
def test_pool_matches_onnxruntime(node):
    op_type, shape, attributes = node
    NodeCase(op_type, {"X": normal(*shape)}, attributes).check()


@given(pools())
@settings(max_examples=40, deadline=None)
def test_pool_with_symbolic_sizes(node):
    op_type, shape, attributes = node
    assert_symbolic_shapes(NodeCase(op_type, {"X": normal(*shape)}, attributes))


def pooled_by_hand(op_type, x, shape, attributes):
    """Windows one by one, from the definition."""
    n = x.ndim - 2
    kernel, strides, dilations = (attributes[k] for k in ("kernel_shape", "strides", "dilations"))
    pads = list(attributes.get("pads", [0] * (2 * n)))
    if attributes.get("auto_pad", "VALID") != "VALID":
        for k in range(n):
            total = max((shape[2 + k] - 1) * strides[k] + kernel[k] - x.shape[2 + k], 0)
            small, large = total // 2, total - total // 2
            pads[k], pads[n + k] = (small, large) if attributes["auto_pad"] == "SAME_UPPER" else (large, small)
    y = np.zeros(shape)
    for place in itertools.product(*map(range, shape)):
        held, counted = [], 0
        for step in itertools.product(*map(range, kernel)):
            cell = [place[2 + k] * strides[k] - pads[k] + step[k] * dilations[k] for k in range(n)]
            if all(0 <= c < x.shape[2 + k] for k, c in enumerate(cell)):
                held.append(x[(place[0], place[1], *cell)])
            counted += all(-pads[k] <= c < x.shape[2 + k] + pads[n + k] for k, c in enumerate(cell))
        if op_type == "MaxPool":
            y[place] = max(held, default=-math.inf)
        elif op_type == "LpPool":
            y[place] = sum(abs(float(v)) ** attributes["p"] for v in held) ** (1 / attributes["p"])
        else:
            divisor = counted if attributes["count_include_pad"] else len(held)
            y[place] = sum(held) / divisor if divisor else math.nan
    return y


@given(st.integers(0, 1), st.integers(0, 1), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_max_pool_indices_match_onnxruntime(ceil_mode, storage_order, stride, dilation, n):
    kernel = [2, 3, 2][:n]
    attributes = {"kernel_shape": kernel, "strides": [stride] * n, "dilations": [dilation] * n, "ceil_mode": ceil_mode}
    attributes |= {"pads": [1, 1, 0, 0, 1, 1][: 2 * n], "storage_order": storage_order}
    x = normal(2, 3, *[7, 6, 5][:n])
    NodeCase("MaxPool", {"X": x}, attributes, outputs=2).check()


def test_max_pool_indices_take_the_first_of_ties():
    x = np.zeros((1, 1, 4), np.float32)
    _, indices = NodeCase("MaxPool", {"X": x}, {"kernel_shape": [2], "strides": [2]}, outputs=2).edgerun()
    assert indices.tolist() == [[[0, 2]]]


@pytest.mark.parametrize("outputs", [1, 2])
def test_nan_wins_a_maximum(outputs):
    x = np.array([[[1, np.nan, 5, 2, 3, 4]]], np.float32)
    y, *indices = NodeCase("MaxPool", {"X": x}, {"kernel_shape": [3], "strides": [3]}, outputs=outputs).edgerun()
    np.testing.assert_array_equal(y, [[[np.nan, 4]]])
    assert [i.tolist() for i in indices] == [[[[1, 5]]]][: outputs - 1]


def test_window_of_nan_only():
    x = np.full((1, 1, 3, 3), np.nan, np.float32)
    assert np.isnan(NodeCase("MaxPool", {"X": x}, {"kernel_shape": [3, 3]}).edgerun()[0]).all()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_of_integers(dtype):
    x = (
        np.random.default_rng(0)
        .integers(np.iinfo(dtype).min, 0 if dtype == np.int8 else 255, (1, 2, 6, 6))
        .astype(dtype)
    )
    NodeCase("MaxPool", {"X": x}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}).check()


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_other_floats(op_type, dtype):
    x = normal(1, 2, 6, 6).astype(dtype)
    attributes = {"kernel_shape": [2, 3], "strides": [2, 1]}
    (y,) = NodeCase(op_type, {"X": x}, attributes).edgerun()
    (expected,) = NodeCase(op_type, {"X": x.astype(np.float32)}, attributes).reference()
    assert y.dtype == dtype
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=1e-3)


def test_average_pool_ceil_mode():
    x = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
    (y,) = NodeCase("AveragePool", {"X": x}, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}).edgerun()
    np.testing.assert_array_equal(y[0, 0], [[6, 7.5], [12, 13.5]])


def test_average_pool_ceil_mode_divides_by_cells_inside_the_padding():
    x = np.array([[[2.0903, 4.6493, 1.6320, -3.2051, 4.6975, 4.7296, 3.3653, -1.5815, -2.3832]]], np.float32)
    padded = np.concatenate([np.zeros(3), x[0, 0].astype(float), np.zeros(3)])
    expected = [padded[s : s + 7].sum() / (min(s + 7, 15) - s) for s in (0, 3, 6, 9)]
    attributes = {"kernel_shape": [7], "strides": [3], "pads": [3, 3], "ceil_mode": 1, "count_include_pad": 1}
    (y,) = NodeCase("AveragePool", {"X": x}, attributes).edgerun()
    np.testing.assert_allclose(y[0, 0], expected, rtol=1e-6)


def test_ceil_mode_drops_a_window_that_starts_in_the_end_padding():
    attributes = {"kernel_shape": [1], "strides": [2], "pads": [0, 0], "ceil_mode": 1}
    (y,) = NodeCase("MaxPool", {"X": np.arange(4, dtype=np.float32).reshape(1, 1, 4)}, attributes).edgerun()
    assert y.tolist() == [[[0, 2]]]


def test_shape_rule_in_ceil_mode():
    x = TensorType(DType.F32, (1, symbol("L"), 3))
    attrs = {"kind": "max", "kernel": (3,), "strides": (2,), "pads": (1, 1), "dilations": (1,), "ceil_mode": True}
    (y,) = infer("pool", [x], attrs)
    assert str(y.dims[1]) == "min(ceildiv(L + 1, 2), ceildiv(L - 1, 2) + 1)"


@pytest.mark.parametrize(
    ("op_type", "attributes", "message"),
    [
        ("MaxPool", {"kernel_shape": [3]}, "kernel_shape"),
        ("MaxPool", {}, "kernel_shape"),
        ("AveragePool", {"kernel_shape": [9, 9]}, "does not fit"),
        ("LpPool", {"kernel_shape": [2, 2], "p": 0}, "order"),
    ],
)
def test_refusals(op_type, attributes, message):
    with pytest.raises(EdgerunError, match=message):
        NodeCase(op_type, {"X": normal(1, 1, 4, 4)}, attributes).graph()


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_max_unpool_undoes_max_pool(pads):
    x = normal(2, 3, 6, 6)
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": pads}
    y, indices = NodeCase("MaxPool", {"X": x}, attributes, outputs=2).edgerun()
    (back,) = NodeCase("MaxUnpool", {"X": y, "I": indices}, attributes).edgerun()
    expected = np.zeros(x.size, np.float32)
    expected[indices.ravel()] = x.ravel()[indices.ravel()]
    np.testing.assert_array_equal(back.ravel(), expected)


def test_max_unpool_output_shape_extends_the_end():
    x, i = np.array([[[5, 6]]], np.float32), np.array([[[1, 3]]], np.int64)
    size = np.array([1, 1, 6], np.int64)
    for constant in ([], ["size"]):
        inputs = {"X": x, "I": i, "size": size}
        attributes = {"kernel_shape": [2], "strides": [2]}
        (y,) = NodeCase("MaxUnpool", inputs, attributes, constant=constant).edgerun()
        assert y.tolist() == [[[0, 5, 0, 6, 0, 0]]]


def test_max_unpool_refuses_an_index_outside():
    inputs = {"X": np.ones((1, 1, 1), np.float32), "I": np.full((1, 1, 1), 7, np.int64)}
    with pytest.raises(EdgerunError, match="index"):
        NodeCase("MaxUnpool", inputs, {"kernel_shape": [2]}).edgerun()
