"""Sequence and optional operators against plain lists, through the importer; their rules on types."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgerun.dims import symbol
from edgerun.dtypes import DType
from edgerun.errors import EdgerunError, ShapeError
from edgerun.onnx_backend import prepare
from edgerun.ops.registry import TensorType, infer
from edgerun.ops.sequence import VARIES

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = -A[:1]
SEQUENCE = [A, B, A + 10]


def run(op_type: str, *inputs: Any, opset: int = 17, **attributes: Any) -> Any:
    """Run one operator; lists are sequences, None is an absent optional."""
    names = [f"i{k}" for k in range(len(inputs))]
    values = [_declare(name, value) for name, value in zip(names, inputs, strict=True)]
    node = helper.make_node(op_type, names, ["out"], **attributes)
    graph = helper.make_graph([node], "g", values, [helper.make_empty_tensor_value_info("out")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return prepare(model).run(list(inputs))[0]


def _declare(name: str, value: Any) -> onnx.ValueInfoProto:
    if isinstance(value, list):
        return helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
    if value is None:
        tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
        return helper.make_value_info(name, helper.make_optional_type_proto(tensor))
    dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, dtype, [None] * value.ndim)


def same(result: Any, expected: list[np.ndarray]) -> None:
    assert isinstance(result, list)
    assert len(result) == len(expected)
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def at(position: int) -> np.ndarray:
    return np.array(position, np.int64)


def test_construct_and_length():
    same(run("SequenceConstruct", A, B), [A, B])
    assert run("SequenceLength", SEQUENCE) == 3
    assert run("SequenceLength", []) == 0


@pytest.mark.parametrize("position", [-3, -1, 0, 2])
def test_at(position: int):
    np.testing.assert_array_equal(run("SequenceAt", SEQUENCE, at(position)), SEQUENCE[position])


@pytest.mark.parametrize("position", [-4, 3])
def test_positions_outside_are_refused(position: int):
    for op_type in ("SequenceAt", "SequenceErase"):
        with pytest.raises(ShapeError, match="outside a sequence of length 3"):
            run(op_type, SEQUENCE, at(position))


@pytest.mark.parametrize("position", [None, -3, -1, 0, 3])
def test_insert(position: int | None):
    expected = list(SEQUENCE)
    expected.insert(3 if position is None else position, A)
    same(run("SequenceInsert", SEQUENCE, A, *([] if position is None else [at(position)])), expected)


@pytest.mark.parametrize("position", [None, -3, 1])
def test_erase(position: int | None):
    expected = list(SEQUENCE)
    del expected[-1 if position is None else position]
    same(run("SequenceErase", SEQUENCE, *([] if position is None else [at(position)])), expected)


@pytest.mark.parametrize(
    ("split", "cuts"), [(at(2), [2, 4]), (at(3), [3]), (np.array([1, 4]), [1]), (np.array([0, 2, 3]), [0, 2])]
)
def test_split(split: np.ndarray, cuts: list[int]):
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    same(run("SplitToSequence", x, split, axis=1), np.split(x, cuts, 1))


@pytest.mark.parametrize("keepdims", [0, 1])
def test_split_into_single_slices(keepdims: int):
    expected = [A[:, k : k + 1] if keepdims else A[:, k] for k in range(3)]
    same(run("SplitToSequence", A, axis=-1, keepdims=keepdims), expected)


@pytest.mark.parametrize("split", [at(0), np.array([1, 1]), np.array([-1, 6])])
def test_bad_split_sizes(split: np.ndarray):
    with pytest.raises(EdgerunError, match="split"):
        run("SplitToSequence", np.zeros((2, 5), np.float32), split, axis=1)


def test_concat():
    np.testing.assert_array_equal(run("ConcatFromSequence", SEQUENCE, axis=0), np.concatenate(SEQUENCE))
    np.testing.assert_array_equal(run("ConcatFromSequence", [A, A], axis=-1, new_axis=1), np.stack([A, A], -1))
    with pytest.raises(ShapeError, match="empty"):
        run("ConcatFromSequence", [], axis=0)


def test_optionals():
    same(run("Optional", SEQUENCE, opset=15), SEQUENCE)
    assert not run("OptionalHasElement", None)
    assert run("OptionalHasElement", A, opset=18)
    np.testing.assert_array_equal(run("OptionalGetElement", A, opset=18), A)
    with pytest.raises(ShapeError, match="absent"):
        run("OptionalGetElement", None)


# -- types


def kind(dtype: DType, *shape: Any, kind: str = "tensor") -> TensorType:
    return TensorType(dtype, shape, kind=kind)


def test_element_types_keep_what_all_have_in_common():
    n = symbol("N")
    (made,) = infer("sequence_construct", [kind(DType.F32, n, 2, 4), kind(DType.F32, n, 3, 4)], {})
    assert made.shape == (n, VARIES, 4)
    (first,) = infer("sequence_at", [made, kind(DType.I64)], {})
    (second,) = infer("sequence_at", [made, kind(DType.I64)], {})
    assert first.shape is not None and second.shape is not None
    assert first.shape[0] == second.shape[0] == n
    assert first.shape[1] != second.shape[1]


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        ("sequence_construct", [kind(DType.F32, 2), kind(DType.I64, 2)], "differ in type"),
        ("sequence_at", [kind(DType.F32, 2), kind(DType.I64)], "expected a sequence"),
        ("sequence_at", [kind(DType.F32, kind="sequence"), kind(DType.F32)], "position"),
        ("sequence_insert", [kind(DType.F32, kind="sequence"), kind(DType.I64, 2)], "does not fit"),
    ],
)
def test_wrong_types_are_refused(op: str, inputs: list[TensorType], message: str):
    with pytest.raises(ShapeError, match=message):
        infer(op, list(inputs), {})
