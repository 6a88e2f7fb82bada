"""The `onnx.backend.base` adapter."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgerun import onnx_backend
from edgerun.errors import UnsupportedError, UsageError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def model(op_type: str = "Neg") -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("optimize", [True, False])
def test_run_model_takes_lists_and_mappings(optimize: bool):
    for inputs in ([X], {"x": X}):
        (y,) = onnx_backend.run_model(model(), inputs, optimize=optimize)
        np.testing.assert_array_equal(y, -X)


def test_prepared_models_run_again_with_other_sizes():
    prepared = onnx_backend.prepare(model())
    for x in (X, X[:1], np.concatenate([X, X])):
        np.testing.assert_array_equal(prepared.run([x])[0], -x)


def test_run_node():
    node = helper.make_node("Sub", ["a", "b"], ["c"])
    (c,) = onnx_backend.run_node(node, [X, X[0]])
    np.testing.assert_array_equal(c, X - X[0])


def test_sequences_go_in_and_out_as_lists():
    graph = helper.make_graph(
        [helper.make_node("SequenceInsert", ["q", "x"], ["r"])],
        "g",
        [
            helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        ],
        [helper.make_tensor_sequence_value_info("r", TensorProto.FLOAT, None)],
    )
    sequence = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (r,) = onnx_backend.run_model(sequence, [[X[0]], X])
    assert [v.shape for v in r] == [(3,), (2, 3)]


def test_devices():
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA:0")
    with pytest.raises(UsageError, match="CUDA"):
        onnx_backend.prepare(model(), "CUDA")


def test_refusals():
    assert onnx_backend.is_compatible(model())
    assert not onnx_backend.is_compatible(model("Nonsense"))
    with pytest.raises(UnsupportedError, match="Nonsense"):
        onnx_backend.prepare(model("Nonsense"))
    with pytest.raises(UsageError, match="takes 1 inputs, not 2"):
        onnx_backend.run_model(model(), [X, X])
