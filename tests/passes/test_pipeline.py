"""What the order of the passes achieves on small graphs."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.dtypes import DType
from edgerun.graph import Graph, Node
from edgerun.session import from_graph
from edgerun_converters.passes.pipeline import optimize

F = DType.F32


def _graph(x: tuple[int, ...]) -> Graph:
    graph = Graph()
    graph.add_tensor("x", F, x)
    graph.inputs.append("x")
    return graph


def _scalar(graph: Graph, name: str, value: float) -> str:
    graph.add_tensor(name, F, (), np.float32(value).reshape(()))
    return name


def _step(graph: Graph, function: str, a: str, b: str, out: str, shape: tuple[int, ...]) -> str:
    graph.add_tensor(out, F, shape)
    operands = (0, 1) if b else (0,)
    graph.nodes.append(Node("elementwise", [a, b] if b else [a], [out], {"program": ((function, F, *operands),)}, out))
    return out


def test_gelu_after_a_layer_is_fused_whole() -> None:
    """Its one half is not taken by the weights of the next layer."""
    rng = np.random.default_rng(0)
    graph, wide = _graph((4, 6)), (4, 8)
    for name, shape in (("w", (6, 8)), ("b", (8,)), ("v", (8, 3))):
        graph.add_tensor(name, F, shape, rng.standard_normal(shape).astype(np.float32))
    graph.add_tensor("m", F, wide)
    graph.nodes.append(Node("matmul", ["x", "w"], ["m"], {}, "fc1"))
    h = _step(graph, "add", "m", "b", "biased", wide)
    e = _step(graph, "div", h, _scalar(graph, "root", np.sqrt(2)), "divided", wide)
    e = _step(graph, "erf", e, "", "erf", wide)
    e = _step(graph, "add", e, _scalar(graph, "one", 1), "shifted", wide)
    e = _step(graph, "mul", h, e, "gated", wide)
    e = _step(graph, "mul", e, _scalar(graph, "half", 0.5), "halved", wide)
    graph.add_tensor("y", F, (4, 3))
    graph.nodes.append(Node("matmul", [e, "v"], ["y"], {}, "fc2"))
    graph.outputs.append("y")
    better = optimize(graph)
    assert [(n.op, n.attrs.get("act", "none")) for n in better.nodes] == [("matmul", "gelu"), ("matmul", "none")]
    feeds: dict[str, Any] = {"x": rng.standard_normal((4, 6)).astype(np.float32)}
    expected = from_graph(graph, "numpy").run(feeds)["y"]
    np.testing.assert_allclose(from_graph(better, "native").run(feeds)["y"], expected, rtol=1e-5, atol=1e-5)


def test_dims_that_are_numbers_become_constants() -> None:
    graph = _graph((3, 5))
    graph.add_tensor("dims", DType.I64, (2,))
    graph.nodes.append(Node("shape", ["x"], ["dims"], {}, "shape"))
    graph.add_tensor("first", DType.I64, (1,))
    graph.nodes.append(Node("slice", ["dims"], ["first"], {"ranges": ((0, 0, 1, 1),)}, "slice"))
    graph.add_tensor("wide", F, (1,))
    graph.nodes.append(Node("elementwise", ["first"], ["wide"], {"program": (("cast", F, 0),)}, "cast"))
    _step(graph, "mul", "x", "wide", "y", (3, 5))
    graph.outputs.append("y")
    better = optimize(graph)
    assert [n.op for n in better.nodes] == ["elementwise"]
    x = np.ones((3, 5), np.float32)
    np.testing.assert_array_equal(from_graph(better, "numpy").run({"x": x})["y"], 3 * x)
