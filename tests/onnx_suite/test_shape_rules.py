"""Every shape rule against its kernel, on every node of every case of the official suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.dtypes import from_numpy
from edgerun.errors import EdgerunError
from edgerun.graph import Graph, Node
from edgerun_converters.onnx.importer import import_model
from tests.onnx_suite import judge
from tests.onnx_suite.cases import inference_cases

SHARDS = 8


def contradictions(graph: Graph, node: Node, values: Sequence[Any]) -> list[str]:
    """Where computed values differ from the inferred types; symbols must be the same number in all places of a node."""
    problems = []
    symbols: dict[str, int] = {}
    for name, value in zip(node.outputs, values, strict=False):
        tensor = graph.tensors.get(name)
        if tensor is None or tensor.kind != "tensor" or not isinstance(value, np.ndarray):
            continue
        if from_numpy(value.dtype) is not tensor.dtype:
            problems.append(f"{node.op} {name}: {value.dtype}, inferred {tensor.dtype.short}")
        if tensor.shape is None:
            continue
        fits = len(tensor.shape) == value.ndim and all(
            d == n if isinstance(d, int) else symbols.setdefault(str(d), n) == n
            for d, n in zip(tensor.shape, value.shape, strict=True)
        )
        if not fits:
            problems.append(f"{node.op} {name}: shape {value.shape}, inferred {tensor}")
    return problems


@pytest.mark.parametrize("shard", range(SHARDS))
def test_inferred_types_are_the_computed_ones(shard: int):
    wrong: list[str] = []
    checked = 0
    for case in inference_cases()[shard::SHARDS]:
        try:
            graph = import_model(case.model)
        except EdgerunError:
            continue  # refused: the ledger test says whether that is right

        def check(node: Node, values: Sequence[Any], graph: Graph = graph, case: Any = case) -> None:
            wrong.extend(f"{case.name}: {p}" for p in contradictions(graph, node, values))

        for inputs, _ in case.data():
            given = dict(zip(graph.inputs, judge.given(case, inputs), strict=True))
            given = {
                k: np.asarray(v) if isinstance(v, np.generic | int | float | bool) else v for k, v in given.items()
            }
            NumpyExecutor(graph).run(given, observer=check)
            checked += 1
    assert not wrong, "\n".join(wrong[:40])
    assert checked > 100
