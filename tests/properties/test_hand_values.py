"""Where onnxruntime is not asked (see the reasons in the properties): values worked out by hand. And what the
properties found wrong, with the right values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgerun.backends.native.backend import compile_graph
from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun_converters.onnx.importer import import_model
from tests.ops.single_node import NodeCase
from tests.properties.draw import one
from tests.properties.sequences import graph_of, node, several

f32 = np.float32


def value(op_type, inputs, attributes=None, **options):
    case = one(op_type, inputs, attributes, **options)
    graph = import_model(case.model)
    (result,) = NumpyExecutor(graph).run(case.feeds).values()
    return result


def test_a_reduction_without_axes_still_computes_its_function():
    x = np.array([-2, 3], f32)
    assert value("ReduceL1", {"x": x}, {"noop_with_empty_axes": 1}, opset=18).tolist() == [2, 3]
    assert value("ReduceSumSquare", {"x": x}, {"noop_with_empty_axes": 1}, opset=18).tolist() == [4, 9]


def test_same_padding_of_a_stride_beyond_the_kernel_crops_nothing():
    x = np.array([[[1, 2]]], f32)
    attributes = {"kernel_shape": [1], "strides": [3], "auto_pad": "SAME_UPPER"}
    assert value("MaxPool", {"x": x}, attributes).tolist() == [[[1]]]


def test_places_of_max_unpool_count_before_the_enlargement():
    x, places = np.array([[[[5, 6]]]], f32), np.array([[[[1, 3]]]])
    inputs = {"x": x, "i": places, "s": np.array([1, 1, 2, 5])}
    y = value("MaxUnpool", inputs, {"kernel_shape": [1, 2], "strides": [1, 2]}, opset=11)
    assert y.tolist() == [[[[0, 5, 0, 6, 0], [0, 0, 0, 0, 0]]]]


def test_an_empty_string_splits_into_one():
    y, counts = NodeCase("StringSplit", {"x": np.array([""], object)}, {"delimiter": " "}, 2, 20).edgerun()
    assert y.tolist() == [[""]] and counts.tolist() == [1]


def test_corners_align_by_the_size_before_rounding():
    # From 5 to 2.5: position 1 reads 1 * (5 - 1) / (2.5 - 1) = 2.667.
    inputs = {"x": np.array([[[0, 1, 2, 3, 4]]], f32), "roi": np.zeros(0, f32), "s": np.array([1, 1, 0.5], f32)}
    attributes = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    y = value("Resize", inputs, attributes, opset=13, constant=("roi", "s"))
    np.testing.assert_allclose(y, [[[0, 8 / 3]]], rtol=1e-6)


def test_causal_queries_count_from_the_past():
    # One query after one past key sees that key and the first new one, whatever else there is.
    q, k = np.zeros((1, 1, 1, 1), f32), np.zeros((1, 1, 2, 1), f32)
    v = np.array([2, 9], f32).reshape(1, 1, 2, 1)
    inputs = {"q": q, "k": k, "v": v, "m": None, "pk": np.zeros((1, 1, 1, 1), f32), "pv": np.full((1, 1, 1, 1), 4, f32)}
    y, _, _ = NodeCase("Attention", inputs, {"is_causal": 1}, 3, 23).edgerun()
    assert y.item() == pytest.approx(3)


def test_every_node_of_a_tree_has_its_own_mode():
    attributes = {
        "nodes_treeids": [0] * 5, "nodes_nodeids": [0, 1, 2, 3, 4], "nodes_featureids": [0, 0, 0, 0, 0],
        "nodes_values": [0.0, -1.0, 0.0, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "BRANCH_GT", "LEAF", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 3, 0, 0, 0], "nodes_falsenodeids": [2, 4, 0, 0, 0], "target_treeids": [0, 0, 0],
        "target_nodeids": [2, 3, 4], "target_ids": [0, 0, 0], "target_weights": [1.0, 2.0, 3.0], "n_targets": 1,
    }  # fmt: skip
    x = np.array([[1], [-0.5], [-2]], f32)
    assert value("TreeEnsembleRegressor", {"x": x}, attributes, opset=3, domain="ai.onnx.ml").tolist() == [
        [1],
        [2],
        [3],
    ]


def test_a_loop_without_rounds_keeps_the_sizes_that_are_known():
    add = node("Identity", ["x"], ["y"])
    keep = node("Identity", ["c"], ["go"])
    body = graph_of([keep, add], {"i": np.array(0), "c": np.array(True)}, ["go", "y"])
    feeds = {"n": np.array(0), "x": np.ones((2, 3), f32)}
    case = several([node("Loop", ["n", ""], ["all"], body=body)], feeds, ["all"])
    for dim in case.model.graph.input[1].type.tensor_type.shape.dim:
        dim.dim_param = f"d{dim.dim_value}"
    assert NumpyExecutor(import_model(case.model)).run(case.feeds)["all"].shape == (0, 2, 3)


def test_scalars_are_quantised():
    assert value("QuantizeLinear", {"x": np.array(1.26, f32), "s": np.array(0.5, f32)}, opset=21).tolist() == 3


def test_no_strings_are_no_dimensions():
    nothing = np.zeros((0,), object)
    assert value("Where", {"c": np.zeros(0, bool), "a": nothing, "b": nothing}).shape == (0,)


@pytest.mark.parametrize("op_type", ["InstanceNormalization", "GroupNormalization"])
def test_scales_of_channels_that_are_only_known_when_it_runs(op_type):
    """The parameters were once taken for a single number that repeats."""
    x = np.arange(4, dtype=f32).reshape(1, 2, 2)
    inputs = {"x": x, "s": np.array([1, 10], f32), "b": np.array([5, 7], f32)}
    attributes = {"num_groups": 2} if op_type.startswith("Group") else {}
    case = one(op_type, inputs, attributes, opset=21 if attributes else 6)
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for port in model.graph.input:
        for axis, dim in enumerate(port.type.tensor_type.shape.dim):
            dim.dim_param = f"{port.name}{axis}"
    graph = import_model(model)
    graph.symbols.update(dict.fromkeys(graph.free_symbols(), (1, 4)))
    (y,) = compile_graph(graph).run(case.feeds).values()
    np.testing.assert_allclose(y, [[[4, 6], [-3, 17]]], atol=1e-3)


def test_tables_of_sizes_that_are_not_known():
    from edgerun.dims import symbol
    from edgerun.dtypes import DType
    from edgerun.ops.registry import TensorType, infer

    x, keys, values = (TensorType(DType.I64, (symbol(s),)) for s in ("n", "k", "v"))
    (y,) = infer("lookup", [x, keys, values], {})
    assert y.shape == x.shape
