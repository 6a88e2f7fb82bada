"""A random model of one op, and the four opinions about it that must agree.

The shape rule must tell the dtype and shape that the NumPy kernel gives: with sizes, with the elements too, with
symbols for all sizes, with unknown ranks. The native backend and onnxruntime must give the same values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from edgerun.backends.native.backend import compile_graph
from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.dims import Dim, evaluate, free_symbols
from edgerun.dtypes import from_numpy
from edgerun.errors import EdgerunError, PlanError, UnsupportedError
from edgerun.graph import Graph
from edgerun.ops.registry import OPS
from edgerun_converters.onnx.importer import import_model
from tests.ops import core_op
from tests.ops.single_node import assert_same

ROOM = 3
"""How much larger than the sizes at hand the native backend plans hidden sizes."""


@dataclass
class Case:
    """A model with the values to run it on; arrays, lists of arrays (sequences) or None (absent optionals)."""

    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    rtol: float = 1e-4
    atol: float = 1e-5
    steps: float = 0
    """How far integer results may be apart: 1 where a result is rounded from floats."""
    no_oracle: str = ""
    """Why onnxruntime is not asked about this very case."""
    values: bool = True
    """False for random numbers: only dtypes and shapes are compared."""
    sized: Sequence[str] = ()
    """Inputs whose sizes the importer must know (weights of convolutions that are computed)."""


def check(name: str, case: Case, *, oracle: bool, symbolic: bool) -> tuple[bool, bool]:
    """Assert that all agree about `case`; whether it imports to core op `name` at all, and whether it ran natively.

    `oracle`: onnxruntime has the op. `symbolic`: it imports with symbols for the sizes of all inputs.
    """
    graph = import_model(case.model)
    ops = {n.op for n in _nodes(graph)}
    results = _check_rules(graph, case.feeds)
    ran = False
    if symbolic:
        hidden = onnx.ModelProto()
        hidden.CopyFrom(case.model)
        _hide_sizes(hidden, case.sized)
        free = import_model(hidden)
        ops |= {n.op for n in _nodes(free)}
        compare_values(case, _check_rules(free, case.feeds), results)
        free.symbols.update({s: (0, size + ROOM) for s, size in _sizes(free, case.feeds).items()})
        ran = _check_native(free, case, results)
    if oracle and not case.no_oracle:
        compare_values(case, results, _reference(case))
    ran = _check_native(graph, case, results) or ran
    return name in ops, name in ops and ran


def _check_native(graph: Graph, case: Case, results: Sequence[Any]) -> bool:
    """Run natively and compare; False where the native backend refuses the graph."""
    try:
        native = compile_graph(graph, threads=2)
    except EdgerunError as e:
        # Sizes that the data decide may be planned for more than the memory holds.
        if isinstance(e, UnsupportedError | PlanError) or "arena" in e.message:
            return False
        raise
    found = native.run({k: case.feeds[k] for k in graph.inputs})
    compare_values(case, [found[o] for o in graph.outputs], results)
    return True


def _nodes(graph: Graph) -> list[Any]:
    return [n for node in graph.nodes for n in (node, *(m for g in node.subgraphs() for m in _nodes(g)))]


def _check_rules(graph: Graph, feeds: Mapping[str, Any]) -> list[Any]:
    """Run every node; compare what the graph declares, and what the rules say, with what comes out."""
    computed = [o for n in graph.nodes for o in n.outputs if o]
    wanted = list(dict.fromkeys([*computed, *graph.outputs]))
    values = NumpyExecutor(graph).run({k: feeds[k] for k in graph.inputs}, wanted)
    values |= {k: feeds[k] for k in graph.inputs} | {k: t.data for k, t in graph.tensors.items() if t.data is not None}
    sizes = _sizes(graph, feeds)
    for node in graph.nodes:
        for output in node.outputs:
            if output:
                _check_declared(node.op, graph.tensors[output], values[output], sizes)
        arrays = [values[i] if i else None for i in node.inputs]
        attributes = {k: _bound(v, sizes) for k, v in node.attrs.items()}
        kinds = {graph.tensors[i].kind for i in (*node.inputs, *node.outputs) if i}
        known = all(not isinstance(v, Graph) for v in attributes.values()) and not _has_symbols(attributes)
        if kinds <= {"tensor"} and known and OPS[node.op].pure and node.op != "fail":
            core_op.apply(node.op, *arrays, **attributes)
    return [values[o] for o in graph.outputs]


def _sizes(graph: Graph, feeds: Mapping[str, Any]) -> dict[str, int]:
    """The symbols in the shapes of the inputs, with their sizes."""
    sizes: dict[str, int] = {}
    for name in graph.inputs:
        if isinstance(feeds[name], np.ndarray):
            for dim, size in zip(graph.tensors[name].shape or (), feeds[name].shape, strict=True):
                if isinstance(dim, Dim) and dim.is_symbol:
                    sizes[str(dim)] = size
    return sizes


def _bound(value: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(value, Dim) and free_symbols(value) <= sizes.keys():
        return evaluate(value, dict(sizes))
    return tuple(_bound(v, sizes) for v in value) if isinstance(value, tuple) else value


def _has_symbols(value: Any) -> bool:
    if isinstance(value, dict | tuple):
        return any(_has_symbols(v) for v in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, Dim)


def _check_declared(op: str, tensor: Any, value: Any, sizes: Mapping[str, int]) -> None:
    if tensor.kind in ("sequence", "optional_sequence") and value is not None:
        assert isinstance(value, list), f"{op}: {type(value)} is no sequence"
        for element in value:
            if isinstance(element, np.ndarray):
                assert from_numpy(element.dtype) is tensor.dtype, (
                    f"{op}: elements of {element.dtype}, declared {tensor}"
                )
                assert tensor.shape is None or len(tensor.shape) == element.ndim, f"{op}: {element.shape}, {tensor}"
        return
    if value is None:
        assert tensor.kind.startswith("optional"), f"{op}: nothing for {tensor}"
        return
    assert isinstance(value, np.ndarray), f"{op}: {type(value)} is no tensor"
    assert from_numpy(value.dtype) is tensor.dtype, f"{op}: {value.dtype}, declared {tensor}"
    if tensor.shape is None:
        return
    assert len(tensor.shape) == value.ndim, f"{op}: shape {value.shape}, declared {tensor}"
    for dim, size in zip(tensor.shape, value.shape, strict=True):
        if free_symbols(dim) <= sizes.keys():
            assert evaluate(dim, dict(sizes)) == size, f"{op}: shape {value.shape}, declared {tensor} with {sizes}"


def _hide_sizes(model: onnx.ModelProto, sized: Sequence[str]) -> None:
    for port in model.graph.input:
        if port.name in sized:
            continue
        kind = port.type.WhichOneof("value")
        if kind == "tensor_type":
            for axis, dim in enumerate(port.type.tensor_type.shape.dim):
                dim.dim_param = f"{port.name}_{axis}"


def _reference(case: Case) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(case.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {p.name: case.feeds[p.name] for p in case.model.graph.input})


def compare_values(case: Case, actual: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        if isinstance(e, list) and e and isinstance(e[0], np.ndarray):
            assert_same(a, e, case.rtol, case.atol)
        elif not case.values:
            assert a.shape == e.shape and a.dtype == e.dtype
        elif case.steps and isinstance(e, np.ndarray) and e.dtype.kind in "iu":
            assert a.shape == e.shape and a.dtype == e.dtype
            assert not e.size or np.abs(a.astype(np.int64) - e.astype(np.int64)).max() <= case.steps
        else:
            assert_same([a], [e], case.rtol, case.atol)
