"""Reductions and running sums: hand values, rules against kernels, and single ONNX nodes against onnxruntime."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.dtypes import DType
from edgerun.errors import EdgerunError, ShapeError
from edgerun.ops.reduce import KINDS
from edgerun.ops.registry import TensorType, infer
from tests.ops.core_op import apply
from tests.ops.single_node import NodeCase

node = settings(deadline=None, max_examples=80)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
OPERATORS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceL1": "l1", "ReduceL2": "l2", "ReduceLogSum": "logsum", "ReduceLogSumExp": "logsumexp",
    "ReduceSumSquare": "sumsq",
}  # fmt: skip


def positive(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.5, 2, shape).astype(dtype)


def reduce(values: Any, kind: str, dtype: Any = np.float32, **attrs: Any) -> Any:
    """Reduce a vector to rank 0."""
    x = np.array(values, dtype)
    return apply("reduce", x, kind=kind, over=tuple(range(x.ndim)), keepdims=False, **attrs).tolist()


# -- values


def test_nan_spreads_through_all_kinds():
    for kind in KINDS:
        for x in ([np.nan, 42], [42, np.nan]):
            assert np.isnan(reduce(x, kind)), kind


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf), ("l1", 0), ("l2", 0), ("sumsq", 0),
        ("logsum", -np.inf), ("logsumexp", -np.inf),
    ],
)  # fmt: skip
def test_no_elements(kind: str, expected: float):
    assert reduce([], kind) == expected
    assert apply("reduce", np.zeros((2, 0), np.float32), kind=kind, over=(1,)).tolist() == [[expected], [expected]]


def test_no_elements_of_integers():
    assert np.isnan(reduce([], "mean"))
    assert reduce([], "mean", np.int32) == 0
    assert reduce([], "max", np.int8) == -128
    assert reduce([], "min", np.uint8) == 255
    assert reduce([], "max", np.bool_) is False
    assert reduce([], "min", np.bool_) is True


def test_integers():
    assert reduce([100, 100], "sum", np.int8) == -56  # wraps
    assert reduce([1 << 30, 1 << 30], "sum", np.int32) == -(1 << 31)
    assert reduce([16, 16], "prod", np.uint8) == 0
    assert reduce([-3, -4], "mean", np.int32) == -3  # toward zero
    assert reduce([3, 4], "mean", np.int64) == 3
    assert reduce([1 << 62, 1 << 62, 4], "mean", np.int64) == -((1 << 63) - 4) // 3 + 1  # the sum wraps
    assert reduce([1 << 63, 0], "mean", np.uint64) == 1 << 62
    assert reduce([-(1 << 63)], "mean", np.int64) == -(1 << 63)
    assert reduce([3, -4], "l2", np.int32) == 5
    assert reduce([100, 100], "l2", np.int8) == 127  # saturates
    assert reduce([-3, 2], "l1", np.int32) == 5
    assert reduce([0], "logsum", np.int32) == -(1 << 31)  # minus infinity saturates
    assert reduce([-128, 127], "max", np.int8) == 127
    assert reduce([0, 255], "min", np.uint8) == 0


def test_half_types_accumulate_in_float32():
    assert reduce(np.ones(4096), "sum", np.float16) == 4096
    assert reduce(np.ones(1024), "sum", ml_dtypes.bfloat16) == 1024
    assert reduce([300, 300], "l2", np.float16) == np.float16(300 * 2**0.5)


def test_logsumexp_of_extremes():
    assert reduce([-np.inf, -np.inf], "logsumexp") == -np.inf
    assert reduce([np.inf, 0], "logsumexp") == np.inf
    assert reduce([1000, 1000], "logsumexp") == pytest.approx(1000 + np.log(2))
    assert reduce([-1000, -1000], "logsumexp") == pytest.approx(-1000 + np.log(2))


def test_no_axes_reduce_nothing_but_apply_the_function():
    x = np.array([-3, 4], np.float32)
    for kind, expected in [("sum", [-3, 4]), ("l1", [3, 4]), ("l2", [3, 4]), ("sumsq", [9, 16]), ("max", [-3, 4])]:
        assert apply("reduce", x, kind=kind, over=()).tolist() == expected


# -- rules and nodes


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=3).map(tuple), st.sampled_from(KINDS), st.booleans(), st.booleans(), st.data()
)
def test_shapes(shape: tuple[int, ...], kind: str, keepdims: bool, noop: bool, data: Any):
    over = tuple(data.draw(st.lists(st.integers(0, max(len(shape) - 1, 0)), unique=True, max_size=len(shape))))
    dtype = data.draw(st.sampled_from([np.float32, np.float16, np.int32, np.int8, np.uint64]))
    x = positive(shape, dtype)
    y = apply("reduce", x, kind=kind, over=over, keepdims=keepdims)
    axes = np.array([a - len(shape) for a in over], np.int64)
    z = apply("reduce", x, axes, kind=kind, keepdims=keepdims, noop_with_empty_axes=noop)
    if over or noop:
        np.testing.assert_array_equal(z, y)
    else:
        np.testing.assert_array_equal(z, apply("reduce", x, kind=kind, keepdims=keepdims))


@node
@given(shapes, st.sampled_from(sorted(OPERATORS)), st.sampled_from([np.float32, np.int32]), st.booleans(), st.data())
def test_reduce_node(shape: tuple[int, ...], op_type: str, dtype: Any, keepdims: bool, data: Any):
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    noop = data.draw(st.booleans()) if axes else False
    inputs = {"x": positive(shape, dtype), "axes": np.array(axes, np.int64) - len(shape)}
    attributes = {"keepdims": int(keepdims), "noop_with_empty_axes": int(noop)}
    case = NodeCase(op_type, inputs, attributes, opset=18, constant=["axes"])
    if dtype == np.float32 or "Log" not in op_type:  # onnxruntime takes logarithms of integers in integers
        case.check()
    computed = NodeCase(op_type, inputs, attributes, opset=18)
    np.testing.assert_array_equal(computed.edgerun()[0], case.edgerun()[0])


@pytest.mark.parametrize("axis", [2, -3])
def test_axes_outside_are_errors(axis: int):
    for constant in ((), ("axes",)):
        inputs = {"x": positive((2, 3)), "axes": np.array([axis], np.int64)}
        with pytest.raises(EdgerunError, match="outside"):
            NodeCase("ReduceSum", inputs, opset=13, constant=constant).edgerun()


def test_what_is_refused():
    for dtype, kind in [(DType.STRING, "max"), (DType.BOOL, "sum"), (DType.F32, "median")]:
        with pytest.raises(ShapeError):
            infer("reduce", [TensorType(dtype, (2,))], {"kind": kind, "over": (0,)})


# -- argmax, argmin


def arg(values: list[float], kind: str, last: bool = False) -> int:
    x = np.array(values, np.float32)
    return apply("argreduce", x, kind=kind, axis=0, keepdims=False, last=last).tolist()


def test_index_of_equal_elements_and_nan():
    assert (arg([1, 3, 3, 2], "max"), arg([1, 3, 3, 2], "max", True)) == (1, 2)
    assert (arg([3, 1, 1], "min"), arg([3, 1, 1], "min", True)) == (1, 2)
    assert (arg([1, np.nan, 9, np.nan], "max"), arg([1, np.nan, 9, np.nan], "max", True)) == (1, 3)
    assert (arg([1, np.nan, 9, np.nan], "min"), arg([1, np.nan, 9, np.nan], "min", True)) == (1, 3)
    assert arg([0.0, -0.0], "max") == 0


def test_index_of_an_empty_axis_is_an_error():
    with pytest.raises(ShapeError):
        infer("argreduce", [TensorType(DType.F32, (2, 0))], {"kind": "max", "axis": 1, "keepdims": True})
    case = NodeCase("ArgMax", {"x": np.zeros((2, 0), np.float32)}, {"axis": 1}, symbolic=True)
    with pytest.raises(ShapeError):
        case.edgerun()
    x = np.zeros((2, 0), np.float32)
    assert apply("argreduce", x, kind="max", axis=0, keepdims=False).shape == (0,)


@node
@given(shapes, st.sampled_from(["ArgMax", "ArgMin"]), st.booleans(), st.booleans(), st.data())
def test_arg_node(shape: tuple[int, ...], op_type: str, keepdims: bool, last: bool, data: Any):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = np.random.default_rng(len(shape)).integers(0, 3, shape).astype(np.float32)
    attributes = {"axis": axis, "keepdims": int(keepdims), "select_last_index": int(last)}
    NodeCase(op_type, {"x": x}, attributes, opset=13).check()
    apply("argreduce", x, kind=op_type[3:].lower(), axis=axis, keepdims=keepdims, last=last)


# -- running sums and products


@node
@given(shapes, st.booleans(), st.booleans(), st.booleans(), st.data())
def test_running_node(shape: tuple[int, ...], exclusive: bool, reverse: bool, known: bool, data: Any):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x, place = positive(shape), np.array(axis, np.int64)
    attributes = {"exclusive": int(exclusive), "reverse": int(reverse)}
    NodeCase("CumSum", {"x": x, "a": place}, attributes, opset=14, constant=["a"] if known else []).check()
    for name in ("cumsum", "cumprod"):
        y = apply(name, x, over=axis, exclusive=exclusive, reverse=reverse)
        np.testing.assert_array_equal(apply(name, x, place, exclusive=exclusive, reverse=reverse), y)


def test_running_by_hand():
    def run(name: str, exclusive: bool, reverse: bool, dtype: Any = np.int32) -> list[int]:
        return apply(name, np.array([2, 3, 4], dtype), over=0, exclusive=exclusive, reverse=reverse).tolist()

    assert run("cumsum", False, False) == [2, 5, 9]
    assert run("cumsum", True, False) == [0, 2, 5]
    assert run("cumsum", False, True) == [9, 7, 4]
    assert run("cumsum", True, True) == [7, 4, 0]
    assert run("cumprod", False, False) == [2, 6, 24]
    assert run("cumprod", True, True) == [12, 4, 1]
    big = np.array([100, 100], np.int8)
    assert apply("cumsum", big, over=0, exclusive=False, reverse=False).tolist() == [100, -56]
    halves = np.full(4096, 1, np.float16)
    assert apply("cumsum", halves, over=0, exclusive=False, reverse=False)[-1] == 4096
    assert apply("cumsum", np.zeros((0, 2), np.float32), over=0, exclusive=True, reverse=True).shape == (0, 2)


@pytest.mark.parametrize("axis", [1, -2])
def test_running_axis_outside_is_an_error(axis: int):
    for constant in ((), ("a",)):
        with pytest.raises(EdgerunError):
            inputs = {"x": positive((2,)), "a": np.array(axis, np.int64)}
            NodeCase("CumSum", inputs, opset=14, constant=constant).edgerun()


# -- operators that the importer composes of reductions


@node
@given(st.lists(st.integers(1, 4), min_size=3, max_size=4).map(tuple), st.sampled_from([1, 2, 3]))
def test_global_pools(shape: tuple[int, ...], p: int):
    x = positive(shape) - 1
    NodeCase("GlobalAveragePool", {"x": x}).check()
    NodeCase("GlobalMaxPool", {"x": x}).check()
    NodeCase("GlobalLpPool", {"x": x}, {"p": p}, opset=21).check()


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lp_normalization(p: int, axis: int):
    NodeCase("LpNormalization", {"x": positive((3, 4)) - 1}, {"p": p, "axis": axis}).check()
    zero = NodeCase("LpNormalization", {"x": np.zeros((2, 3), np.float32)}, {"p": p, "axis": axis}).edgerun()[0]
    assert zero.tolist() == np.zeros((2, 3)).tolist()


def test_mean_variance_normalization():
    NodeCase("MeanVarianceNormalization", {"x": positive((2, 3, 4, 5))}, {"axes": [0, 2, 3]}, opset=13).check()


def test_sums_of_floats_add_in_double() -> None:
    """Adding 2048 equal rows one after the other in float32 would be off by 5e-6."""
    rows = np.full((2048, 33), 0.7, np.float32)
    total = apply("reduce", rows, kind="sum", over=(0,), keepdims=False)
    assert total.dtype == np.float32
    np.testing.assert_array_equal(total, rows.astype(np.float64).sum(0).astype(np.float32))
