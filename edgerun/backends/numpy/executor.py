"""Run a graph with the NumPy kernels, one node after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import find
from edgerun.dims import Dim, evaluate
from edgerun.dtypes import DType
from edgerun.errors import EdgerunError, ShapeError, UnsupportedError, UsageError
from edgerun.graph import Graph, Node, Tensor, captured, concrete_shape

Values = dict[str, Any]
Observer = Callable[[Node, Sequence[Any]], None]


class NumpyExecutor:
    """Executes one Graph. Values are arrays; sequences are lists; an absent optional is None.

    Raises UnsupportedError at construction, listing every op without a kernel.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        missing = sorted(_missing_kernels(graph))
        if missing:
            raise UnsupportedError("the NumPy backend lacks kernels for: " + "; ".join(missing), problems=missing)
        self._last_use = _last_uses(graph)
        self.states = {
            name: np.zeros(concrete_shape(graph.tensors[name]), graph.tensors[name].dtype.numpy)
            for name in graph.states
        }
        """Values of the graph's states; every run replaces them."""

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        *,
        observer: Observer | None = None,
    ) -> dict[str, Any]:
        """Feed arrays by input name; get arrays by output name. A state may be fed in place of the kept value.

        `observer(node, values)` is called after every node. Raises UsageError for missing, unknown or misshaped
        inputs, ShapeError from kernels.
        """
        wanted = list(outputs) if outputs is not None else self.graph.results
        after = {name: self.graph.outputs[index] for name, index in self.graph.states.items()}
        values: Values = {k: t.data for k, t in self.graph.tensors.items() if t.data is not None}
        given, symbols = check_inputs(self.graph, inputs, self.states)
        values.update(given)
        with np.errstate(all="ignore"):
            self.execute(values, symbols, keep={*wanted, *after.values()}, observer=observer)
        self.states = {name: values[made] for name, made in after.items()}
        return {name: values[name] for name in wanted}

    def execute(
        self, values: Values, symbols: dict[str, int], keep: set[str], observer: Observer | None = None
    ) -> None:
        """Run all nodes on `values` (edited in place; tensors no longer needed are dropped unless in `keep`)."""
        for index, node in enumerate(self.graph.nodes):
            results = self._run_node(node, values, symbols)
            for name, value in zip(node.outputs, results, strict=False):
                if name:
                    values[name] = value
                    _bind(self.graph.tensors[name], value, symbols)
            if observer is not None:
                observer(node, results)
            for name in self._last_use[index]:
                if name not in keep:
                    values.pop(name, None)

    def run_node(self, node: Node, values: Values) -> list[Any]:
        """One node alone, on the values of its inputs; every shape of the graph is a number."""
        with np.errstate(all="ignore"):
            return self._run_node(node, values, {})

    def _run_node(self, node: Node, values: Values, symbols: dict[str, int]) -> list[Any]:
        arrays = [values[i] if i else None for i in node.inputs]
        attrs = {k: self._attribute(v, values, symbols) for k, v in node.attrs.items()}
        try:
            result = find(node.op)(*arrays, **attrs)
        except EdgerunError as e:
            raise type(e)(f"node {node.name!r} ({node.op}): {e.message}", hint=e.hint) from e
        except (ValueError, IndexError, TypeError, OverflowError, ZeroDivisionError) as e:
            shapes = ", ".join(str(getattr(a, "shape", "-")) for a in arrays)
            raise ShapeError(f"node {node.name!r} ({node.op}) failed on inputs of shape {shapes}: {e}") from e
        if isinstance(result, tuple):
            return list(result)
        return [result]

    def _attribute(self, value: Any, values: Values, symbols: dict[str, int]) -> Any:
        if isinstance(value, Dim):
            return evaluate(value, symbols)
        if isinstance(value, tuple):
            return tuple(self._attribute(v, values, symbols) for v in value)
        if isinstance(value, Graph):
            return Subgraph(value, values, symbols)
        return value


class Subgraph:
    """A branch or body as the control-flow kernels see it: call it with its inputs, get a list of its outputs."""

    def __init__(self, graph: Graph, outer: Values, symbols: dict[str, int]) -> None:
        self.graph = graph
        self._outer = outer
        self.symbols = symbols
        self._executor = NumpyExecutor(graph)

    def __call__(self, *arguments: Any) -> list[Any]:
        values: Values = dict(self._outer)
        values.update({k: t.data for k, t in self.graph.tensors.items() if t.data is not None})
        values.update(zip(self.graph.inputs, arguments, strict=True))
        symbols = dict(self.symbols)
        for name, value in zip(self.graph.inputs, arguments, strict=True):
            _bind(self.graph.tensors[name], value, symbols)
        keep = set(self.graph.outputs) | set(self._outer)
        self._executor.execute(values, symbols, keep)
        return [values[o] for o in self.graph.outputs]


def _missing_kernels(graph: Graph) -> set[str]:
    missing = set()
    for node in graph.nodes:
        try:
            find(node.op)
        except UnsupportedError:
            missing.add(f"{node.op} (node {node.name!r})")
        for sub in node.subgraphs():
            missing |= _missing_kernels(sub)
    return missing


def _last_uses(graph: Graph) -> list[list[str]]:
    """For each node, the computed tensors that no later node reads."""
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        for name in [*node.inputs, *captured(node), *node.outputs]:
            if name and (name not in graph.tensors or graph.tensors[name].data is None):
                last[name] = index
    table: list[list[str]] = [[] for _ in graph.nodes]
    for name, index in last.items():
        if name in graph.tensors:
            table[index].append(name)
    return table


def check_inputs(
    graph: Graph, inputs: Mapping[str, Any], states: Mapping[str, Any] | None = None
) -> tuple[Values, dict[str, int]]:
    """The values of all inputs (states where they are not given), and the symbols that their shapes bind.

    Raises UsageError for missing, unknown or misshaped inputs.
    """
    states = states or {}
    values: Values = {}
    symbols: dict[str, int] = {}
    unknown = [k for k in inputs if k not in graph.inputs]
    if unknown:
        known = ", ".join(graph.feeds)
        raise UsageError(f"there is no input {unknown[0]!r}", hint=f"the model's inputs are: {known}")
    for name in graph.inputs:
        if name not in inputs and name not in states:
            raise UsageError(f"input {name!r} is missing")
        given = inputs[name] if name in inputs else states[name]
        values[name] = _check_input(graph.tensors[name], given, symbols)
    return values, symbols


def _check_input(tensor: Tensor, value: Any, symbols: dict[str, int]) -> Any:
    if tensor.kind != "tensor":
        return value
    array = np.asarray(value)
    if tensor.dtype is DType.STRING:
        if array.dtype.kind not in "OSUT":
            raise UsageError(f"input {tensor.name!r} takes strings, not {array.dtype}")
        array = array.astype(object)
    elif array.dtype != tensor.dtype.numpy:
        raise UsageError(f"input {tensor.name!r} takes {tensor.dtype.short}, not {array.dtype}")
    if tensor.shape is not None and array.ndim != len(tensor.shape):
        raise UsageError(f"input {tensor} got an array of shape {array.shape}")
    for axis, (dim, size) in enumerate(zip(tensor.shape or (), array.shape, strict=False)):
        known = symbols.get(str(dim)) if isinstance(dim, Dim) and dim.is_symbol else dim
        if isinstance(known, int) and known != size:
            raise UsageError(f"input {tensor} got an array of shape {array.shape}: axis {axis} must be {known}")
        if isinstance(dim, Dim) and dim.is_symbol:
            symbols[str(dim)] = size
    return array


def _bind(tensor: Tensor, value: Any, symbols: dict[str, int]) -> None:
    """Note the sizes of symbols that only become known while running (data-dependent shapes)."""
    if tensor.shape is None or not isinstance(value, np.ndarray):
        return
    for dim, size in zip(tensor.shape, value.shape, strict=False):
        if isinstance(dim, Dim) and dim.is_symbol:
            symbols.setdefault(str(dim), size)
