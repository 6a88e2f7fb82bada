"""What would help a model over its budgets: each remedy is tried, that is the model is planned anew with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from edgerun.errors import EdgerunError
from edgerun.graph import Graph
from edgerun_packaging.budgets import Footprint, Remedy
from edgerun_packaging.latency import Estimate, estimate
from edgerun_targets import Target

SMALLEST_IMAGE = 64
"""Images are not halved below this many rows or columns."""
MULTIPLE = 32
"""Halved images are rounded down to a multiple of this, which networks with five halvings need."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The choices of one way to pack, as far as remedies change them."""

    graph: Graph
    threads: int
    plan: Mapping[str, object]
    golden: bool


Predict = Callable[[Trial], Footprint]


def find(now: Trial, footprint: Footprint, target: Target, source: Path | None, predict: Predict) -> list[Remedy]:
    """Remedies with their gains beside `footprint` (the prediction for `now`). Trials that cannot be planned are left
    out. `predict` plans a trial; `source` is the file that the graph comes from, if it can be read again."""
    before = estimate(now.graph, target, now.threads)
    found = []
    for action, trial in _trials(now, source):
        try:
            after = predict(trial)
        except EdgerunError:
            continue
        found.append(_gain(action, footprint, after, before, estimate(trial.graph, target, trial.threads)))
    floats = sum(t.data.nbytes for t in now.graph.tensors.values() if t.data is not None and t.dtype.short == "f32")
    if floats:
        found.append(
            Remedy("int8 weights: edgerun quantize MODEL --data FOLDER", floats * 3 // 4, floats * 3 // 4, 0.0, False)
        )
    return found


def _gain(action: str, old: Footprint, new: Footprint, before: Estimate | None, after: Estimate | None) -> Remedy:
    seconds = before.seconds - after.seconds if before and after else 0.0
    return Remedy(action, old.size_bytes - new.size_bytes, old.ram_bytes - new.ram_bytes, seconds)


def _trials(now: Trial, source: Path | None) -> list[tuple[str, Trial]]:
    trials: list[tuple[str, Trial]] = []
    if now.threads > 1:
        trials.append((f"one thread instead of {now.threads}: --threads 1", replace(now, threads=1)))
    if now.golden:
        trials.append(("no golden vectors: --no-golden", replace(now, golden=False)))
    if now.plan.get("winograd", True) is not False:
        plan = {**now.plan, "winograd": False}
        trials.append(("no Winograd convolutions: --no-winograd", replace(now, plan=plan)))
    for symbol, (low, high) in now.graph.symbols.items():
        if symbol in now.graph.free_symbols() and high is not None and high // 2 >= max(low, 1):
            graph = now.graph.copy()
            graph.symbols[symbol] = (low, high // 2)
            trials.append(
                (f"half the bound of a dimension: --dim {symbol}={low}..{high // 2}", replace(now, graph=graph))
            )
    smaller = _smaller_image(now.graph, source)
    if smaller is not None:
        trials.append((smaller[0], replace(now, graph=smaller[1])))
    return trials


def _smaller_image(graph: Graph, source: Path | None) -> tuple[str, Graph] | None:
    """The model again with half the rows and columns of its first image input [N, C, H, W] or [N, H, W, C]."""
    from edgerun.session import load_graph

    if source is None:
        return None
    for name in graph.feeds:
        shape = graph.tensors[name].shape
        if shape is None or len(shape) != 4 or not all(isinstance(d, int) for d in shape):
            continue
        axes = [i for i, d in enumerate(shape) if isinstance(d, int) and d >= 2 * SMALLEST_IMAGE]
        if len(axes) != 2:
            continue
        half = [int(d) // 2 // MULTIPLE * MULTIPLE if i in axes else int(d) for i, d in enumerate(shape)]
        try:
            made = load_graph(source, shapes={name: half})
        except EdgerunError:
            return None
        return f"an input of half the size: --shape {name}={','.join(map(str, half))}", made
    return None
