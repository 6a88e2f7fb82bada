"""`edgerun why`: which kernel each layer got, and why."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from edgerun.cli.options import common, model_argument, parse_dims, parse_shapes, shape_options
from edgerun.report import Column, Report, Table

if TYPE_CHECKING:
    from edgerun.backends.native.lowering import Lowering
    from edgerun.dims import DimLike


def _text(value: DimLike) -> int | str:
    """A size; one that depends on symbolic dimensions as its formula."""
    return value if isinstance(value, int) else str(value)


def _weight_bytes(lowering: Lowering, name: str) -> int:
    """Bytes of an input that lies in the plan."""
    data = lowering.tensor(name).data if name else None
    return 0 if data is None else data.nbytes


@click.command("why")
@model_argument
@click.argument("layer", required=False)
@click.option("--target", default="host", help="Board or architecture.")
@shape_options
@common
def command(
    model: str, layer: str | None, target: str, shapes: tuple[str, ...], dims: tuple[str, ...]
) -> tuple[Report, int]:
    """Explain which kernel each layer got, why, and what else was considered.

    \b
    $ edgerun why model.onnx --target rpi4
    $ edgerun why model.onnx conv1

    LAYER is the name of a node of the model or a part of it. relative_cost is the predicted time of another kernel,
    that of the chosen one being 1. threads: how many may work on the layer; small loops run on one anyway.
    """
    from edgerun.backends.native.lowering import Lowering
    from edgerun.errors import UsageError
    from edgerun.session import load_graph
    from edgerun_targets import load

    board = load(target)
    graph = load_graph(model, shapes=parse_shapes(shapes), dims=parse_dims(dims))
    lowering = Lowering(graph, board.arch)
    lowering.run()
    rows = []
    for index, node in enumerate(lowering.nodes):
        rows.append(
            {
                "index": index,
                "node": node.name,
                "op": node.op,
                "kernel": node.kernel,
                "macs": _text(node.macs),
                "packed_bytes": sum(_weight_bytes(lowering, name) for name in node.inputs),
                "scratch_bytes": _text(node.scratch),
                "thread_scratch_bytes": _text(node.thread_scratch),
                "threads": node.max_threads or "all",
                "why": node.why,
                "alternatives": [
                    {"kernel": a.kernel, "reason": a.reason, "relative_cost": a.relative_cost}
                    for a in node.alternatives
                ],
            }
        )
    if layer is not None:
        chosen = [r for r in rows if layer in str(r["node"])]
        if not chosen:
            near = difflib.get_close_matches(layer, [str(r["node"]) for r in rows], n=3, cutoff=0.4)
            raise UsageError(f"there is no layer {layer!r}", hint=f"did you mean {', '.join(near)}?" if near else "")
        rows = chosen
    columns = [Column("index"), *(Column(c, left=True) for c in ("node", "op", "kernel"))]
    columns += [
        Column("macs"),
        *(Column(c) for c in ("packed_bytes", "scratch_bytes", "thread_scratch_bytes", "threads")),
    ]
    tables = [Table(rows, [*columns, Column("why", left=True)])]
    if layer is not None:
        others = [{"node": r["node"], **a} for r in rows for a in r["alternatives"]]  # type: ignore[attr-defined]
        tables.append(
            Table(
                others,
                [
                    *(Column(c, left=True) for c in ("node", "kernel", "reason")),
                    Column("relative_cost", lambda v: f"{v:.2f}" if v else "-"),
                ],
                "also considered",
            )
        )
    return Report(rows, tables), 0
