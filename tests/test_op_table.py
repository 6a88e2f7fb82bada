"""docs/ops.md is what the code says, and what the code says is what the importer does."""

import re
from pathlib import Path

import onnx.defs
import pytest

from edgerun.graph import Graph
from edgerun_converters.onnx.functions import is_standard
from edgerun_converters.onnx.importer import import_model
from edgerun_converters.onnx.op_table import core_ops, table
from tests.onnx_suite.cases import inference_cases

OF_OUTPUTS = {"copy", "reshape"}
"""What the importer appends where an output of the model is another tensor by a second name."""
PAGE = Path(__file__).parents[1] / "docs" / "ops.md"


def test_the_page_is_up_to_date():
    text = PAGE.read_text()
    newest = re.search(r"newest opset of ai.onnx here is (\d+)", text)
    assert newest is not None
    if int(newest[1]) != onnx.defs.onnx_opset_version():
        pytest.skip(f"the page was written with opset {newest[1]}, onnx has {onnx.defs.onnx_opset_version()}")
    assert text == table(), "run: python -m edgerun_converters.onnx.op_table docs/ops.md"


@pytest.mark.parametrize(
    ("domain", "op_type", "expected"),
    [
        ("", "Relu", ["elementwise"]),
        ("", "LogSoftmax", ["reshape", "softmax"]),
        ("", "Hardmax", ["hardmax", "reshape"]),
        ("", "GRU", ["gru", "transpose"]),
        ("", "DepthToSpace", ["reshape", "transpose"]),
        ("", "Identity", []),
        ("com.microsoft", "Trilu", ["reshape", "trilu"]),
    ],
)
def test_core_ops(domain: str, op_type: str, expected: list[str]):
    assert core_ops(domain, op_type) == expected


def used(graph: Graph) -> set[str]:
    """Core ops of a graph and its sub-graphs."""
    found = {node.op for node in graph.nodes}
    return found.union(*(used(sub) for node in graph.nodes for sub in node.subgraphs()))


def test_the_official_suite_needs_no_other_core_ops():
    seen: dict[str, int] = {}
    for case in inference_cases():
        nodes = case.model.graph.node
        if case.group != "node" or len(nodes) != 1 or case.name.endswith("_expanded"):
            continue
        node = nodes[0]
        if any(a.HasField("g") for a in node.attribute) or seen.get(node.op_type, 0) >= 6:
            continue
        seen[node.op_type] = seen.get(node.op_type, 0) + 1
        opset = next(o.version for o in case.model.opset_import if o.domain == node.domain)
        if node.op_type == "Constant" or is_standard(node.domain, node.op_type, opset):
            continue  # no node, or perhaps the body that the standard gives
        listed = core_ops(node.domain, node.op_type)
        extra = used(import_model(case.model)) - set(listed) - OF_OUTPUTS
        assert not extra, f"{node.op_type} becomes {extra} in {case.name}; the table says {listed}"
    assert len(seen) > 140
