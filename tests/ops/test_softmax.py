"""Softmax, LogSoftmax, Hardmax: hand values, rules against kernels, and single ONNX nodes against onnxruntime."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.dtypes import DType
from edgerun.errors import ShapeError
from edgerun.ops.registry import TensorType, infer
from tests.ops.core_op import apply
from tests.ops.single_node import NodeCase

node = settings(deadline=None, max_examples=60)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def normal(shape: tuple[int, ...], seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return (3 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


@node
@given(shapes, st.sampled_from(["Softmax", "LogSoftmax", "Hardmax"]), st.sampled_from([8, 11, 13]), st.data())
def test_node(shape: tuple[int, ...], op_type: str, opset: int, data: Any):
    axis = data.draw(st.integers(-len(shape) if opset > 8 else 0, len(shape) - 1))
    NodeCase(op_type, {"x": normal(shape)}, {"axis": axis}, opset=opset).check()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple), st.booleans(), st.data())
def test_shapes(shape: tuple[int, ...], log: bool, data: Any):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64, ml_dtypes.bfloat16]))
    x = normal(shape, dtype=dtype)
    y = apply("softmax", x, axis=axis, log=log).astype(np.float64)
    total = (np.exp(y) if log else y).sum(axis)
    np.testing.assert_allclose(total, np.ones_like(total) * (shape[axis] > 0), rtol=2e-2)
    assert (apply("hardmax", x, axis=axis).astype(np.float64).sum(axis) == (shape[axis] > 0)).all()


def test_before_opset_13_all_trailing_axes_count_together():
    x = normal((2, 3, 4))
    y = NodeCase("Softmax", {"x": x}, {"axis": 1}, opset=11).edgerun()[0]
    np.testing.assert_allclose(y.sum((1, 2)), [1, 1], rtol=1e-6)
    y = NodeCase("Softmax", {"x": x}, {"axis": 1}, opset=13).edgerun()[0]
    np.testing.assert_allclose(y.sum(1), np.ones((2, 4)), rtol=1e-6)


def test_large_and_infinite_logits():
    def values(*logits: float, log: bool = False) -> list[float]:
        return apply("softmax", np.array(logits, np.float32), axis=0, log=log).tolist()

    assert values(1e38, 1e38) == [0.5, 0.5]
    assert values(-1e38, 0) == [0, 1]
    assert values(0, -np.inf) == [1, 0]
    assert values(0, -np.inf, log=True) == [0, -np.inf]
    assert values(0, -200, log=True) == [0, -200]
    assert np.isnan(values(-np.inf, -np.inf)).all()
    assert np.isnan(values(np.inf, 0)).all()
    assert np.isnan(values(np.nan, 0)).all()


def test_half_types_are_computed_in_float32():
    x = np.zeros(4096, np.float16)  # the sum 4096 of ones is beyond float16's consecutive integers
    assert apply("softmax", x, axis=0)[0] == np.float16(1 / 4096)


@pytest.mark.parametrize(
    ("x", "expected"), [([1, 3, 3, 2], [0, 1, 0, 0]), ([1, np.nan, 9], [0, 1, 0]), ([-np.inf] * 2, [1, 0])]
)
def test_hardmax_takes_the_first_maximum_and_nan_is_one(x: list[float], expected: list[float]):
    assert apply("hardmax", np.array(x, np.float32), axis=0).tolist() == expected


def test_integers_are_refused():
    for name in ("softmax", "hardmax"):
        with pytest.raises(ShapeError):
            infer(name, [TensorType(DType.I32, (2,))], {"axis": 0})
