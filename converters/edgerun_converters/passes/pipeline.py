"""The one list of passes, in order."""

from __future__ import annotations

from dataclasses import dataclass

from edgerun.graph import Graph, Tensor
from edgerun_converters.passes.activations import recognise_activations
from edgerun_converters.passes.affine import fold_affine, fold_outputs
from edgerun_converters.passes.attention import recognise_attention
from edgerun_converters.passes.constants import fold_constants, merge_duplicates
from edgerun_converters.passes.editor import Pass
from edgerun_converters.passes.elementwise import fuse_elementwise
from edgerun_converters.passes.epilogue import fuse_epilogues
from edgerun_converters.passes.norms import recognise_norms
from edgerun_converters.passes.quantized import elementwise_scales, integer_layers, settle_dequantize
from edgerun_converters.passes.simplify import simplify
from edgerun_converters.passes.transposes import sink_transposes


@dataclass(frozen=True, slots=True)
class Stage:
    """Passes that run in turn until none changes anything, at most `rounds` times."""

    name: str
    passes: tuple[Pass, ...]
    rounds: int = 1


PIPELINE: tuple[Stage, ...] = (
    Stage("constants", (fold_constants, simplify, merge_duplicates), rounds=4),
    Stage("layout", (sink_transposes, simplify, fold_constants, merge_duplicates), rounds=4),
    Stage("quantised", (settle_dequantize, fold_constants, simplify), rounds=8),
    Stage("norms", (recognise_norms,), rounds=4),
    Stage("attention", (recognise_attention, simplify), rounds=2),
    Stage("biases", (fold_outputs, simplify, fold_constants), rounds=4),
    Stage("gates", (recognise_activations, simplify), rounds=2),
    Stage("affine", (fold_affine, simplify, fold_constants), rounds=4),
    Stage("activations", (recognise_activations, simplify), rounds=2),
    Stage("epilogues", (fuse_epilogues,), rounds=8),
    Stage("integers", (integer_layers, settle_dequantize, elementwise_scales), rounds=1),
    Stage("elementwise", (fuse_elementwise, merge_duplicates, fold_constants), rounds=2),
)


def optimize(graph: Graph, *, enabled: bool = True) -> Graph:
    """A better graph with the same values up to rounding. `enabled=False` only drops what no output needs.

    The argument is not changed.
    """
    result = graph.copy()
    result.prune()
    if enabled:
        _run(result, {})
    result.check()
    return result


def _run(graph: Graph, outer: dict[str, Tensor]) -> None:
    for stage in PIPELINE:
        for _ in range(stage.rounds):
            changed = [run(graph, outer) for run in stage.passes]
            if not any(changed):
                break
    scope = {**outer, **graph.tensors}
    for node in graph.nodes:
        for sub in node.subgraphs():
            _run(sub, scope)
