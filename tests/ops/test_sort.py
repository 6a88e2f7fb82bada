"""TopK and Unique: hand values, rules against kernels, and single ONNX nodes against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.errors import EdgerunError
from tests.ops.core_op import apply
from tests.ops.single_node import NodeCase

node = settings(deadline=None, max_examples=60)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
few = st.integers(-2, 2)
"""Elements from a small set: most draws hold equal ones."""


def drawn(data: Any, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    count = int(np.prod(shape))
    return np.array(data.draw(st.lists(few, min_size=count, max_size=count)), dtype).reshape(shape)


def topk(x: np.ndarray, k: int, **attrs: Any) -> tuple[list[Any], list[Any]]:
    values, index = apply("topk", x, None, count=k, **attrs)
    again = apply("topk", x, np.array(k, np.int64), **attrs)
    assert again[0].tobytes() == values.tobytes()
    assert again[1].tolist() == index.tolist()
    return values.tolist(), index.tolist()


def test_topk_of_equal_elements_takes_the_lower_index_first():
    x = np.array([1, 3, 3, 3, 0, 0], np.float32)
    assert topk(x, 2, axis=0, largest=True) == ([3, 3], [1, 2])
    assert topk(x, 3, axis=-1, largest=False) == ([0, 0, 1], [4, 5, 0])
    assert topk(x, 4, axis=0, sorted=False) == ([3, 3, 3, 1], [1, 2, 3, 0])


def test_topk_puts_nan_above_all_numbers():
    x = np.array([np.inf, np.nan, -np.inf, np.nan], np.float32)
    assert topk(x, 3, axis=0)[1] == [1, 3, 0]
    assert topk(x, 3, axis=0, largest=False)[1] == [2, 0, 1]


def test_topk_of_the_least_integers():
    x = np.array([-128, 127, 0], np.int8)
    assert topk(x, 3, axis=0, largest=True) == ([127, 0, -128], [1, 2, 0])
    assert topk(np.array([0, 255], np.uint8), 2, axis=0, largest=False) == ([0, 255], [0, 1])


def test_topk_of_none():
    assert topk(np.zeros((2, 3), np.float32), 0, axis=1) == ([[], []], [[], []])


@pytest.mark.parametrize("k", [-1, 4])
def test_topk_of_more_than_there_are(k: int):
    for constant in ((), ("k",)):
        inputs: dict[str, np.ndarray] = {"x": np.zeros(3, np.float32), "k": np.array([k], np.int64)}
        with pytest.raises(EdgerunError, match="of the 3 elements"):
            NodeCase("TopK", inputs, outputs=2, constant=constant).edgerun()


@node
@given(shapes, st.sampled_from([np.float32, np.int64, np.int32]), st.booleans(), st.data())
def test_topk_node(shape: tuple[int, ...], dtype: Any, largest: bool, data: Any):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    inputs: dict[str, np.ndarray] = {
        "x": drawn(data, shape, dtype),
        "k": np.array([data.draw(st.integers(1, shape[axis]))], np.int64),
    }
    NodeCase("TopK", inputs, {"axis": axis, "largest": int(largest)}, outputs=2).check()


@node
@given(shapes, st.booleans(), st.data())
def test_unique_node(shape: tuple[int, ...], ascending: bool, data: Any):
    axis = data.draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))
    x = drawn(data, shape)
    attributes = {"sorted": int(ascending)} | ({} if axis is None else {"axis": axis})
    NodeCase("Unique", {"x": x}, attributes, outputs=4).check()
    apply("unique", x, axis=axis, sorted=ascending)


def test_unique_by_hand():
    y, first, inverse, counts = apply("unique", np.array([2, 1, 2, 3], np.int32), sorted=False)
    assert [v.tolist() for v in (y, first, inverse, counts)] == [[2, 1, 3], [0, 1, 3], [0, 1, 0, 2], [2, 1, 1]]
    y, first, inverse, counts = apply("unique", np.array([2, 1, 2, 3], np.int32))
    assert [v.tolist() for v in (y, first, inverse, counts)] == [[1, 2, 3], [1, 0, 3], [1, 0, 1, 2], [1, 2, 1]]


def test_unique_of_strings_and_of_nothing():
    assert apply("unique", np.array(["b", "a", "b"], object))[0].tolist() == ["a", "b"]
    assert [len(v) for v in apply("unique", np.zeros(0, np.float32))] == [0, 0, 0, 0]


def test_unique_counts_all_nan_as_one():
    y, first, inverse, counts = apply("unique", np.array([np.nan, 1, np.nan], np.float32))
    assert y[0] == 1
    assert np.isnan(y[1:]).all()
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([1, 0], [1, 0, 1], [1, 2])
