"""The whole of it: choose layers, calibrate, rewrite, measure, leave out layers until the loss is small enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgerun.errors import UsageError
from edgerun.graph import Graph, Node
from edgerun.session import from_graph
from edgerun_converters.passes.bind import bind
from edgerun_converters.quantize import rewrite, sensitivity
from edgerun_converters.quantize.calibrate import ranges
from edgerun_converters.quantize.layers import is_layer, unfuse
from edgerun_converters.quantize.metrics import METRICS
from edgerun_converters.quantize.weights import GROUP

MODES = {
    "static": "convolutions and products on 8-bit codes, ranges from the data",
    "dynamic": "products on 8-bit codes, ranges found while running",
    "int8-weights": "products by 8-bit weights in groups of 32",
    "int4-weights": "products by 4-bit weights in groups of 32",
}


@dataclass(frozen=True, slots=True)
class Options:
    """`max_drop`: the loss by `metric` that is allowed; None: any. `exclude`: names of layers that stay as they are."""

    mode: str = "static"
    metric: str = "relative"
    max_drop: float | None = None
    method: str = "percentile"
    exclude: frozenset[str] = frozenset()


@dataclass(slots=True)
class Result:
    """`rows`: the table of sensitivity.table with `quantised` added; `drop`: the loss by the chosen metric."""

    graph: Graph
    rows: list[dict[str, Any]]
    drop: float
    ok: bool
    tried: list[tuple[int, float]] = field(default_factory=list)
    """(layers left out, loss) of every try."""


def quantize(
    graph: Graph, samples: Sequence[Mapping[str, Any]], options: Options, labels: Sequence[Any] | None = None
) -> Result:
    """Quantise an optimised float graph. `samples`: inputs by name, at least one.

    Layers are left out in the order of their signal to noise, worst first, until the loss is at most
    `options.max_drop`; `ok` says whether it is. Raises UsageError when nothing can be quantised.
    """
    if options.mode not in MODES:
        raise UsageError(f"there is no mode {options.mode!r}", hint="one of " + ", ".join(MODES))
    if not samples:
        raise UsageError("there is no data", hint="give at least one sample with --data")
    plain = unfuse(graph, keep_clamps=options.mode == "static")
    layers = [n for n in plain.nodes if _takes(plain, n, options.mode) and n.name not in options.exclude]
    unknown = options.exclude - {n.name for n in plain.nodes}
    if unknown:
        raise UsageError(f"there is no layer {sorted(unknown)[0]!r}", hint="`edgerun inspect --nodes` lists them")
    if not layers:
        raise UsageError(f"no layer can be quantised in the mode {options.mode}", hint="see `edgerun quantize --help`")
    found = {}
    if options.mode == "static":
        wanted = rewrite.activations_of(plain, {n.outputs[0] for n in layers})
        found = ranges(plain, wanted, samples, options.method)
    rows = sensitivity.table(plain, layers, samples, options.mode, found)
    order = [r["output"] for r in sorted(rows, key=lambda r: r["snr_db"])]
    expected = _outputs(graph, samples)
    tried: list[tuple[int, float]] = []

    def attempt(left_out: int) -> tuple[Graph, float]:
        made = _rewritten(plain, set(order[left_out:]), options.mode, found)
        drop = METRICS[options.metric](expected, _outputs(made, samples), labels)
        tried.append((left_out, drop))
        return made, drop

    limit = np.inf if options.max_drop is None else options.max_drop
    left_out, (made, drop) = 0, attempt(0)
    low, step = 0, 1
    while not drop <= limit and left_out < len(order) - 1:  # double, then halve the gap
        low, left_out = left_out, min(left_out + step, len(order) - 1)
        step *= 2
        made, drop = attempt(left_out)
    while drop <= limit and left_out - low > 1:
        middle = (low + left_out) // 2
        other, loss = attempt(middle)
        if loss <= limit:
            left_out, made, drop = middle, other, loss
        else:
            low = middle
    kept = set(order[left_out:])
    for row in rows:
        row["quantised"] = row.pop("output") in kept
    made.meta["quantized"] = {"mode": options.mode, "layers": len(kept), "metric": options.metric, "drop": drop}
    return Result(made, rows, drop, bool(drop <= limit), tried)


def _takes(graph: Graph, node: Node, mode: str) -> bool:
    """Whether the mode can quantise the node."""
    if not is_layer(graph, node) or (node.op == "conv" and mode != "static"):
        return False
    data = graph.tensors[node.inputs[1]].data
    assert data is not None
    if len(graph.tensors[node.inputs[0]].shape or ()) < 2:
        return False
    inner = data.shape[-1] if node.attrs.get("trans_b") else data.shape[0]
    return not mode.endswith("weights") or inner % GROUP == 0


def _rewritten(graph: Graph, chosen: set[str], mode: str, found: rewrite.Ranges) -> Graph:
    if mode == "static":
        return rewrite.static(graph, chosen, found)
    if mode == "dynamic":
        return rewrite.dynamic(graph, chosen)
    return rewrite.grouped(graph, chosen, 8 if mode == "int8-weights" else 4)


def bound_to(graph: Graph, sample: Mapping[str, Any]) -> Graph:
    """The graph for inputs of the shapes of `sample`, which the native backend then plans for."""
    return bind(graph, {name: np.shape(value) for name, value in sample.items()}, {})


def _outputs(graph: Graph, samples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Outputs for each sample, by the native backend where all samples have one shape and it covers the graph."""
    shapes = [{name: np.shape(value) for name, value in s.items()} for s in samples]
    same = all(s == shapes[0] for s in shapes)
    session = from_graph(bound_to(graph, samples[0]) if same else graph, "auto")
    return [{k: np.array(v) for k, v in session.run(s).items()} for s in samples]
