"""Find the layer that is wrong: compare two executions tensor by tensor, reduce a failure, and trace every weight.

`compare_layers` runs the NumPy kernels as the reference and compares any other source of intermediate values with them.
`reduce_failure` cuts out the smallest piece of the graph that still fails. `weight_flow` answers whether each weight
reaches an output, influences it, and whether a layer is dead (constant), or not finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.graph import Graph, Node
from edgerun.subgraph import downstream, extract

Arrays = dict[str, np.ndarray]
RunGraph = Callable[[Graph, Mapping[str, Any]], dict[str, Any]]
"""Runs a graph on the backend under test: inputs by name to outputs by name."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How one tensor differs from the reference. Errors are relative to the reference's largest magnitude."""

    tensor: str
    node: str
    op: str
    max_error: float
    mean_error: float
    snr_db: float
    """Signal-to-noise ratio; infinite when equal."""
    ok: bool
    note: str = ""
    """Why it is not comparable, if it is not: shapes, NaN in one only."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """|a - b| <= atol + rtol * max|b|, over a whole tensor."""

    rtol: float = 1e-3
    atol: float = 1e-6


def difference(
    result: np.ndarray, expected: np.ndarray, tolerance: Tolerance, *, tensor: str = "", node: str = "", op: str = ""
) -> Difference:
    """Compare two arrays. NaN equals NaN, an infinity equals itself."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        note = f"{result.dtype}{list(result.shape)} instead of {expected.dtype}{list(expected.shape)}"
        return Difference(tensor, node, op, math.inf, math.inf, -math.inf, False, note)
    if expected.dtype == object or expected.size == 0:
        equal = bool((result == expected).all()) if expected.size else True
        return Difference(tensor, node, op, 0.0 if equal else math.inf, 0.0, math.inf, equal)
    a, b = result.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    if not (same | finite).all():
        count = int((~(same | finite)).sum())
        note = f"{count} of {a.size} elements are NaN or infinite on one side only"
        return Difference(tensor, node, op, math.inf, math.inf, -math.inf, False, note)
    error = np.where(same, 0.0, np.abs(a - b))
    magnitude = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    scale = magnitude or 1.0
    noise = float((error**2).sum())
    signal = float((b[np.isfinite(b)] ** 2).sum())
    snr = math.inf if noise == 0 else 10 * math.log10(signal / noise) if signal else -math.inf
    worst = float(error.max())
    ok = worst <= tolerance.atol + tolerance.rtol * magnitude
    return Difference(tensor, node, op, worst / scale, float(error.mean()) / scale, snr, ok)


def reference_values(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Every intermediate tensor as the NumPy kernels compute it, graph inputs included."""
    values: dict[str, Any] = dict(inputs)

    def keep(node: Node, results: Any) -> None:
        values.update((name, value) for name, value in zip(node.outputs, results, strict=False) if name)

    NumpyExecutor(graph).run(inputs, observer=keep)
    return values


def compare_layers(
    graph: Graph, inputs: Mapping[str, Any], candidate: Mapping[str, Any], tolerance: Tolerance | None = None
) -> Iterator[Difference]:
    """Differences of the candidate's tensors (by name) from the NumPy reference, in execution order.

    Tensors that the candidate does not have (fused away) are passed over.
    """
    expected = reference_values(graph, inputs)
    for node in graph.nodes:
        for name in node.outputs:
            if name in candidate and isinstance(expected.get(name), np.ndarray):
                yield difference(
                    np.asarray(candidate[name]), expected[name], tolerance or Tolerance(),
                    tensor=name, node=node.name, op=node.op,
                )  # fmt: skip


def isolate_layers(
    graph: Graph, inputs: Mapping[str, Any], run: RunGraph, tolerance: Tolerance | None = None
) -> Iterator[Difference]:
    """Each node alone on the backend under test, fed with reference values: tells a wrong layer from a wrong input.

    A node that the backend refuses gives a Difference whose note is the message.
    """
    expected = reference_values(graph, inputs)
    for node in graph.nodes:
        piece = extract(graph, [node], [o for o in node.outputs if o])
        try:
            results = run(piece, {i: expected[i] for i in piece.inputs})
        except Exception as e:  # a report goes on over whatever a backend under test raises
            yield Difference(node.outputs[0], node.name, node.op, math.inf, math.inf, -math.inf, False, str(e)[:300])
            continue
        for name, value in results.items():
            if isinstance(expected[name], np.ndarray):
                yield difference(
                    np.asarray(value), expected[name], tolerance or Tolerance(), tensor=name, node=node.name, op=node.op
                )


def reduce_failure(
    graph: Graph, inputs: Mapping[str, Any], run: RunGraph, tolerance: Tolerance | None = None
) -> tuple[Graph, Arrays] | None:
    """The smallest piece found that still differs, with its inputs; None when the whole graph agrees.

    First every node alone; if all of these agree, the shortest run of consecutive nodes that ends at the first wrong
    output of the whole and fails by itself.
    """
    expected = reference_values(graph, inputs)

    def fails(nodes: list[Node], outputs: list[str]) -> tuple[Graph, Arrays] | None:
        piece = extract(graph, nodes, outputs)
        feeds = {i: expected[i] for i in piece.inputs}
        results = run(piece, feeds)
        wrong = any(
            not difference(np.asarray(results[o]), expected[o], tolerance or Tolerance()).ok for o in piece.outputs
        )
        return (piece, feeds) if wrong else None

    for node in graph.nodes:
        found = fails([node], [o for o in node.outputs if o])
        if found is not None:
            return found
    low, high = 1, len(graph.nodes)
    whole = fails(graph.nodes, list(graph.outputs))
    if whole is None:
        return None
    while low < high:  # shortest prefix whose boundary is wrong
        middle = (low + high) // 2
        low, high = (low, middle) if fails(graph.nodes[:middle], []) else (middle + 1, high)
    end = low
    start = end - 1
    step = 1
    while start > 0:
        found = fails(graph.nodes[start:end], [])
        if found is not None:
            return found
        start, step = max(0, start - step), step * 2
    return fails(graph.nodes[:end], []) or whole


@dataclass(frozen=True, slots=True)
class WeightReport:
    """What one weight does. `influence`: largest relative change of any output when the weight is disturbed."""

    name: str
    elements: int
    reached: bool
    influence: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class LayerReport:
    """A layer worth a look: its output does not depend on the input, or is not finite."""

    node: str
    op: str
    tensor: str
    problem: str


@dataclass(frozen=True, slots=True)
class FlowReport:
    """The verdict over a whole model."""

    weights: list[WeightReport]
    layers: list[LayerReport]

    @property
    def ok(self) -> bool:
        return not self.layers and all(w.reached and w.influence > 0 for w in self.weights)


def weight_flow(graph: Graph, inputs: Mapping[str, Any], other_inputs: Mapping[str, Any], seed: int = 0) -> FlowReport:
    """Disturb each weight and see whether an output moves; run two inputs and see which layers stay constant.

    A weight is disturbed by noise of its own spread (floats), or by shifting its elements by one place (integers,
    bools). Only what depends on it is computed again.
    """
    generator = np.random.default_rng(seed)
    base = reference_values(graph, inputs)
    other = reference_values(graph, other_inputs)
    weights = []
    for name, tensor in graph.tensors.items():
        if tensor.data is None or tensor.data.dtype == object:
            continue
        affected = downstream(graph, {name})
        outputs = [o for n in affected for o in n.outputs if o in graph.outputs]
        if not outputs:
            weights.append(WeightReport(name, tensor.data.size, False, 0.0, "no output depends on it"))
            continue
        disturbed = _disturb(tensor.data, generator)
        influence, note = _influence(graph, base, affected, outputs, {name: disturbed})
        weights.append(WeightReport(name, tensor.data.size, True, influence, note))
    return FlowReport(weights, list(_suspicious_layers(graph, base, other)))


def _disturb(data: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    if data.dtype.kind == "f":
        spread = float(data.std()) or float(np.abs(data).max(initial=0.0)) or 1.0
        return (data + 0.5 * spread * generator.standard_normal(data.shape)).astype(data.dtype)
    if data.dtype.kind == "b":
        return ~data
    return np.roll(data.ravel(), 1).reshape(data.shape) if data.size > 1 else (data + 1).astype(data.dtype)


def _influence(
    graph: Graph, base: dict[str, Any], affected: list[Node], outputs: list[str], changed: Arrays
) -> tuple[float, str]:
    piece = extract(graph, affected, outputs)
    for name, value in changed.items():
        piece.tensors[name].data = value
    try:
        results = NumpyExecutor(piece).run({i: base[i] for i in piece.inputs})
    except Exception as e:  # a disturbed index or shape may be out of range: that is influence too
        return math.inf, f"disturbing it fails: {str(e)[:120]}"
    worst = 0.0
    for name in outputs:
        if not isinstance(results[name], np.ndarray) or results[name].shape != base[name].shape:
            return math.inf, ""
        d = difference(results[name], base[name], Tolerance())
        worst = max(worst, d.max_error)
    return worst, "" if worst > 0 else "no output changes when it is disturbed"


def _suspicious_layers(graph: Graph, base: dict[str, Any], other: dict[str, Any]) -> Iterator[LayerReport]:
    depends = {o for n in downstream(graph, set(graph.inputs)) for o in n.outputs}
    for node in graph.nodes:
        for name in node.outputs:
            value, second = base.get(name), other.get(name)
            if not isinstance(value, np.ndarray) or not isinstance(second, np.ndarray) or value.dtype.kind != "f":
                continue
            if not np.isfinite(value).all():
                yield LayerReport(node.name, node.op, name, "not finite")
            elif name in depends and value.size and value.shape == second.shape and (value == second).all():
                yield LayerReport(node.name, node.op, name, "constant: two different inputs give the same values")
