"""Graph invariants and editing."""

import numpy as np
import pytest

from edgerun.dtypes import DType
from edgerun.errors import EdgerunError
from edgerun.graph import Graph, Node, captured
from edgerun.ops.elementwise import single


def chain(count: int) -> Graph:
    graph = Graph(inputs=["x"])
    graph.add_tensor("x", DType.F32, (2,))
    previous = "x"
    for i in range(count):
        graph.add_tensor(f"t{i}", DType.F32, (2,))
        graph.nodes.append(Node("elementwise", [previous], [f"t{i}"], {"program": single("neg", DType.F32)}, f"n{i}"))
        previous = f"t{i}"
    graph.outputs = [previous]
    return graph


def test_check_accepts_a_chain_and_refuses_disorder():
    graph = chain(3)
    graph.check()
    graph.nodes.reverse()
    with pytest.raises(EdgerunError, match="before it is defined"):
        graph.check()
    graph.sort()
    graph.check()


def test_sort_reports_a_cycle():
    graph = chain(3)
    graph.nodes[0].inputs = ["t2"]
    with pytest.raises(EdgerunError, match="cycle"):
        graph.sort()


def test_sort_handles_deep_graphs():
    graph = chain(5000)
    graph.nodes.reverse()
    graph.sort()
    assert [n.name for n in graph.nodes[:2]] == ["n0", "n1"]


def test_prune_keeps_what_outputs_need():
    graph = chain(3)
    graph.add_constant(np.zeros(4, np.float32), "unused")
    graph.outputs = ["t1"]
    graph.prune()
    assert [n.name for n in graph.nodes] == ["n0", "n1"]
    assert set(graph.tensors) == {"x", "t0", "t1"}


def test_captures_count_as_uses():
    graph = chain(1)
    branch = Graph(outputs=["y"])
    branch.add_tensor("y", DType.F32, (2,))
    branch.nodes = [Node("elementwise", ["t0"], ["y"], {"program": single("abs", DType.F32)})]
    graph.add_tensor("c", DType.BOOL, ())
    graph.inputs.append("c")
    node = Node("if", ["c"], ["z"], {"then_branch": branch, "else_branch": branch.copy()})
    graph.add_tensor("z", DType.F32, (2,))
    graph.nodes.append(node)
    graph.outputs = ["z"]
    assert captured(node) == {"t0"}
    graph.prune()
    graph.check()
    graph.replace_uses("t0", "x")
    assert captured(node) == {"x"}


def test_a_name_is_defined_once():
    graph = chain(1)
    with pytest.raises(EdgerunError, match="twice"):
        graph.add_tensor("x", DType.F32, ())
