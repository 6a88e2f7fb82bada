"""Indexing ops: hand values, rules against kernels on random inputs, and single ONNX nodes against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.dtypes import DType
from edgerun.errors import EdgerunError, ShapeError
from edgerun.ops.registry import TensorType, infer
from tests.ops.core_op import apply
from tests.ops.single_node import NodeCase

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
node = settings(deadline=None, max_examples=40)


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def indices(data: Any, shape: tuple[int, ...], length: int, dtype: Any = np.int64) -> np.ndarray:
    """Random indices into an axis, counted from either end."""
    count = int(np.prod(shape))
    drawn = data.draw(st.lists(st.integers(-length, length - 1), min_size=count, max_size=count))
    return np.array(drawn, dtype).reshape(shape)


# -- gather


@given(shapes, st.lists(st.integers(0, 3), max_size=2).map(tuple), st.sampled_from([np.int32, np.int64]), st.data())
def test_gather(shape: tuple[int, ...], form: tuple[int, ...], dtype: Any, data: Any):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    places = indices(data, form, shape[axis], dtype)
    y = apply("gather", numbers(*shape), places, axis=axis)
    assert y.tolist() == np.take(numbers(*shape), places, axis).tolist()


@node
@given(shapes, st.data())
def test_gather_node(shape: tuple[int, ...], data: Any):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    case = {"x": numbers(*shape), "i": indices(data, (2, 2), shape[axis])}
    NodeCase("Gather", case, {"axis": axis}).check()


def test_gather_of_strings_by_a_scalar():
    x = np.array([["a", "b"], ["c", "d"]], object)
    assert apply("gather", x, np.array(-1, np.int64), axis=1).tolist() == ["b", "d"]


@pytest.mark.parametrize("bad", [3, -4])
def test_an_index_outside_is_an_error(bad: int):
    x, lines = numbers(3), numbers(1, 3)
    runs: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("Gather", {"x": x, "i": i64(bad)}, {}),
        ("GatherElements", {"x": x, "i": i64(bad)}, {}),
        ("GatherND", {"x": x, "i": i64(bad)}, {}),
        ("ScatterElements", {"x": x, "i": i64(bad), "u": floats(1)}, {}),
        ("ScatterND", {"x": x, "i": i64(bad).reshape(1, 1), "u": floats(1)}, {}),
        ("GatherElements", {"x": lines, "i": i64(bad).reshape(1, 1)}, {"axis": 1}),
    ]
    for op_type, inputs, attributes in runs:
        for constant in ((), ("i",)):
            with pytest.raises(EdgerunError, match="outside"):
                NodeCase(op_type, inputs, attributes, opset=18, constant=constant).edgerun()


@node
@given(shapes, st.data())
def test_gather_and_scatter_elements_node(shape: tuple[int, ...], data: Any):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    form = tuple(data.draw(st.integers(1, n)) for n in shape)
    x, places = numbers(*shape), indices(data, form, shape[axis])
    y = apply("gather_elements", x, places, axis=axis)
    NodeCase("GatherElements", {"x": x, "i": places}, {"axis": axis}).check()
    assert y.shape == form
    reduction = data.draw(st.sampled_from(["none", "add", "mul", "min", "max"]))
    updates = -numbers(*form)
    if reduction == "none":
        # Two updates to one place have an order here and none elsewhere: they agree to be equal.
        updates = y
    inputs = {"x": x, "i": places, "u": updates}
    NodeCase("ScatterElements", inputs, {"axis": axis, "reduction": reduction}, opset=18).check()
    apply("scatter_elements", x, places, updates, axis=axis, reduction=reduction)


def test_scatter_order_and_reductions():
    x, twice = floats(1, 1, 1), i64(1, -2)
    for reduction, expected in [("none", 5), ("add", 13), ("mul", 35), ("min", 1), ("max", 7)]:
        updates = floats(7, 5)
        y = apply("scatter_elements", x, twice, updates, axis=0, reduction=reduction)
        assert y.tolist() == [1, expected, 1]
        z = apply("scatter_nd", x, twice.reshape(2, 1), updates, reduction=reduction)
        assert z.tolist() == [1, expected, 1]
    assert x.tolist() == [1, 1, 1]


def test_scatter_with_nan():
    for reduction in ("min", "max"):
        y = apply("scatter_elements", floats(1, np.nan), i64(0, 1), floats(np.nan, 3), axis=0, reduction=reduction)
        assert np.isnan(y).all()


@pytest.mark.parametrize(
    ("op_type", "places", "updates"),
    [
        ("ScatterElements", np.zeros((2, 2), np.int64), np.ones((1, 2), np.float32)),  # NumPy would broadcast
        ("ScatterElements", np.zeros((2, 3), np.int64), np.ones((2, 3), np.float32)),  # longer than the other axis
        ("ScatterElements", np.zeros(2, np.int64), np.ones(2, np.float32)),
        ("ScatterND", np.zeros((2, 1), np.int64), np.ones((1, 2), np.float32)),
        ("ScatterND", np.zeros((2, 3), np.int64), np.ones(2, np.float32)),
        ("ScatterND", np.zeros((2, 0), np.int64), np.ones((2, 2, 2), np.float32)),
        ("GatherElements", np.zeros((2, 3), np.int64), None),
        ("GatherElements", np.zeros(2, np.int64), None),
        ("GatherND", np.zeros((1, 3), np.int64), None),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_shapes_that_do_not_fit(op_type: str, places: np.ndarray, updates: np.ndarray | None, symbolic: bool):
    inputs = {"x": numbers(2, 2), "i": places} | ({} if updates is None else {"u": updates})
    with pytest.raises(EdgerunError):
        NodeCase(op_type, inputs, opset=18, symbolic=symbolic).edgerun()


@node
@given(shapes, st.data())
def test_gather_nd_node(shape: tuple[int, ...], data: Any):
    batch = data.draw(st.integers(0, len(shape) - 1))
    depth = data.draw(st.integers(1, len(shape) - batch))
    lengths = shape[batch : batch + depth]
    form = (*shape[:batch], 3)
    columns = [indices(data, form, n) for n in lengths]
    places = np.stack(columns, -1)
    x = numbers(*shape)
    NodeCase("GatherND", {"x": x, "i": places}, {"batch_dims": batch}).check()
    apply("gather_nd", x, places, batch_dims=batch)


@node
@given(shapes, st.data())
def test_scatter_nd_node(shape: tuple[int, ...], data: Any):
    depth = data.draw(st.integers(1, len(shape)))
    places = np.stack([indices(data, (3,), n) for n in shape[:depth]], -1)
    updates = numbers(3, *shape[depth:])
    reduction = data.draw(st.sampled_from(["add", "mul", "min", "max"]))
    x = numbers(*shape)
    NodeCase("ScatterND", {"x": x, "i": places, "u": updates}, {"reduction": reduction}, opset=18).check()
    apply("scatter_nd", x, places, updates, reduction=reduction)


def test_gather_nd_of_one_element():
    assert apply("gather_nd", numbers(3, 4), i64(-1, 1)).tolist() == 9
    assert apply("gather_nd", np.array(["a", "b"], object), i64(1)).tolist() == "b"
    assert apply("gather_nd", numbers(3, 4), np.array([[-1, -1], [0, -2]])).tolist() == [11, 2]


# -- one-hot, compress, nonzero, triangles, sequences


def test_one_hot_by_hand():
    values = floats(-1, 1)
    y = apply("one_hot", i64(0, -1, 3, -4), np.array(3, np.int64), values, axis=1)
    assert y.tolist() == [[1, -1, -1], [-1, -1, 1], [-1, -1, -1], [-1, -1, -1]]
    y = apply("one_hot", floats(-0.5, 1.9, -1.9), np.array(3, np.int64), values, axis=1)  # truncated
    assert y.tolist() == [[1, -1, -1], [-1, 1, -1], [-1, -1, 1]]
    assert apply("one_hot", i64(1), np.array(0, np.int64), values, axis=0).shape == (0, 1)


@node
@given(st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple), st.integers(1, 4), st.data())
def test_one_hot_node(shape: tuple[int, ...], depth: int, data: Any):
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    places = indices(data, shape, depth + 1)
    inputs = {"i": places, "d": np.array(depth, np.int64), "v": i64(3, 8)}
    NodeCase("OneHot", inputs, {"axis": axis}).check()


@node
@given(shapes, st.data())
def test_compress_node(shape: tuple[int, ...], data: Any):
    axis = data.draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))
    length = int(np.prod(shape)) if axis is None else shape[axis]
    condition = np.array(data.draw(st.lists(st.booleans(), min_size=1, max_size=length)), bool)
    x = numbers(*shape)
    NodeCase("Compress", {"x": x, "c": condition}, {} if axis is None else {"axis": axis}).check()
    apply("compress", x, condition, axis=axis)


@node
@given(st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple), st.data())
def test_nonzero_node(shape: tuple[int, ...], data: Any):
    count = int(np.prod(shape))
    x = np.array(data.draw(st.lists(st.sampled_from([0, 1, -2]), min_size=count, max_size=count)), np.float32)
    NodeCase("NonZero", {"x": x.reshape(shape)}).check()
    apply("nonzero", x.reshape(shape))


def test_nonzero_by_hand():
    assert apply("nonzero", np.array([[0, np.nan], [-0.0, 2]], np.float32)).tolist() == [[0, 1], [1, 1]]
    assert apply("nonzero", np.array(5, np.int32)).tolist() == [[0]]
    assert apply("nonzero", np.array(False)).shape == (1, 0)


@node
@given(shapes.filter(lambda s: len(s) > 1), st.integers(-5, 5), st.booleans())
def test_trilu_node(shape: tuple[int, ...], k: int, upper: bool):
    x = numbers(*shape) + 1
    NodeCase("Trilu", {"x": x, "k": np.array(k, np.int64)}, {"upper": int(upper)}).check()
    shift = np.array(k, np.int64)
    y = apply("trilu", x, shift, upper=upper)
    assert y.tolist() == (np.triu(x, k) if upper else np.tril(x, k)).tolist()


def test_trilu_replaces_rather_than_multiplies():
    x = np.full((2, 2), np.nan, np.float32)
    assert np.isnan(apply("trilu", x, None, upper=True)).tolist() == [[True, True], [False, True]]


@node
@given(st.integers(1, 3), st.integers(1, 4), st.booleans(), st.data())
def test_reverse_sequence_node(batch: int, steps: int, batch_first: bool, data: Any):
    lengths = i64(*(data.draw(st.integers(1, steps)) for _ in range(batch)))
    x = numbers(*((batch, steps) if batch_first else (steps, batch)), 2)
    axes = {"batch_axis": int(not batch_first), "time_axis": int(batch_first)}
    NodeCase("ReverseSequence", {"x": x, "l": lengths}, axes).check()
    apply("reverse_sequence", x, lengths, **axes)


def test_reverse_sequence_refuses_lengths_beyond_the_axis():
    with pytest.raises(ShapeError):
        apply("reverse_sequence", numbers(1, 2), i64(3), batch_axis=0, time_axis=1)


def test_tensor_scatter():
    past, update = np.zeros((2, 4, 1), np.float32), floats(1, 2, 3, 4).reshape(2, 2, 1)
    y = apply("tensor_scatter", past, update, i64(0, 2), axis=-2)
    assert y[..., 0].tolist() == [[1, 2, 0, 0], [0, 0, 3, 4]]
    y = apply("tensor_scatter", past, update, i64(3, 1), axis=1, mode="circular")
    assert y[..., 0].tolist() == [[2, 0, 0, 1], [0, 3, 4, 0]]
    with pytest.raises(ShapeError):
        apply("tensor_scatter", past, update, i64(0, 3), axis=1)


def test_indices_are_integers():
    x = TensorType(DType.F32, (2, 3))
    for name in ("gather", "gather_elements"):
        with pytest.raises(ShapeError):
            infer(name, [x, x], {"axis": 0})
