"""QDQ graphs become integer layers with the same values."""

from __future__ import annotations

import numpy as np
import pytest

from edgerun.dtypes import DType
from edgerun.graph import Graph, Node
from edgerun.session import from_graph
from edgerun_converters.passes import optimize


def _gemm(trans_b: bool, per_channel: bool) -> Graph:
    """x f32 [3, 20] quantised, times quantised weights, quantised again."""
    rng = np.random.default_rng(0)
    graph = Graph()
    graph.add_tensor("x", DType.F32, (3, 20))
    constants = {
        "xs": np.float32(0.05), "xz": np.uint8(120), "ys": np.float32(0.2), "yz": np.uint8(100),
        "w": rng.integers(-127, 128, (7, 20) if trans_b else (20, 7)).astype(np.int8),
        "ws": rng.uniform(0.01, 0.02, 7).astype(np.float32) if per_channel else np.float32(0.01),
        "wz": np.zeros(7, np.int8) if per_channel else np.int8(0),
        "b": rng.normal(size=7).astype(np.float32),
    }  # fmt: skip
    for name, value in constants.items():
        array = np.asarray(value)
        graph.add_tensor(name, {"f": DType.F32, "u": DType.U8, "i": DType.I8}[array.dtype.kind], array.shape, array)
    for name, dtype, shape in (
        ("xq", DType.U8, (3, 20)), ("xd", DType.F32, (3, 20)), ("wd", DType.F32, constants["w"].shape),
        ("m", DType.F32, (3, 7)), ("y", DType.U8, (3, 7)),
    ):  # fmt: skip
        graph.add_tensor(name, dtype, shape)
    axis = {"axis": 0 if trans_b else 1} if per_channel else {}
    graph.nodes = [
        Node("quantize_linear", ["x", "xs", "xz"], ["xq"], {}, "q"),
        Node("dequantize_linear", ["xq", "xs", "xz"], ["xd"], {}, "d"),
        Node("dequantize_linear", ["w", "ws", "wz"], ["wd"], axis, "dw"),
        Node("matmul", ["xd", "wd", "b"], ["m"], {"trans_b": True} if trans_b else {}, "m"),
        Node("quantize_linear", ["m", "ys", "yz"], ["y"], {}, "qy"),
    ]
    graph.inputs, graph.outputs = ["x"], ["y"]
    graph.check()
    return graph


@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
def test_products_of_codes(trans_b: bool, per_channel: bool) -> None:
    graph = _gemm(trans_b, per_channel)
    better = optimize(graph)
    assert "qlinear_matmul" in {n.op for n in better.nodes}
    assert not {"matmul", "dequantize_linear"} & {n.op for n in better.nodes}
    x = np.random.default_rng(1).normal(size=(3, 20)).astype(np.float32)
    expected, actual = (next(iter(from_graph(g).run({"x": x}).values())) for g in (graph, better))
    assert np.abs(expected.astype(int) - actual.astype(int)).max() <= 1
