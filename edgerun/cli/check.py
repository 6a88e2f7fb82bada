"""`edgerun check`: everything that would keep a model from running, at once."""

from __future__ import annotations

from typing import Any

import click

from edgerun.cli.options import common, model_argument, parse_dims, parse_shapes, shape_options
from edgerun.report import Column, Report, Table, size_text


@click.command("check")
@model_argument
@click.option("--target", default="host", help="Board or architecture to check for.")
@shape_options
@common
def command(model: str, target: str, shapes: tuple[str, ...], dims: tuple[str, ...]) -> tuple[Report, int]:
    """List everything that would keep a model from running, all at once.

    \b
    $ edgerun check model.onnx
    $ edgerun check model.onnx --target rpi4 --dim batch=1

    Exit status 1 when something stands in the way of packing for the target.
    """
    from edgerun.errors import EdgerunError, FileFormatError, InputOutputError, UnsupportedError, UsageError
    from edgerun.session import load_graph
    from edgerun_targets import load

    board = load(target)
    problems: list[dict[str, Any]] = []

    def collect(stage: str, error: EdgerunError) -> None:
        listed = getattr(error, "problems", None) or [error.message]
        problems.extend({"stage": stage, "problem": p, "next": error.hint} for p in listed)

    graph = None
    try:
        graph = load_graph(model, shapes=parse_shapes(shapes), dims=parse_dims(dims))
    except (UsageError, InputOutputError):
        raise
    except EdgerunError as e:
        if isinstance(e, FileFormatError) and not getattr(e, "problems", None):
            raise
        collect("import", e)
    if graph is not None:
        from edgerun.backends.native.backend import build_plan
        from edgerun.backends.native.lowering import Lowering
        from edgerun_packaging.pack import require_bounds

        try:
            Lowering(graph, board.arch).run()
            require_bounds(graph)
            build_plan(graph, board.arch)
        except EdgerunError as e:
            collect("native", e)
        try:
            from edgerun.backends.numpy.executor import NumpyExecutor

            NumpyExecutor(graph)
        except UnsupportedError as e:
            collect("numpy", e)
    summary: dict[str, Any] = {
        "model": model,
        "target": board.name,
        "ok": not any(p["stage"] != "numpy" for p in problems),
        "problems": problems,
        "inputs": [str(graph.tensors[i]) for i in graph.feeds] if graph else [],
        "outputs": [str(graph.tensors[o]) for o in graph.results] if graph else [],
        "weight_bytes": graph.weight_bytes() if graph else None,
        "nodes": len(graph.nodes) if graph else None,
    }
    columns = [Column("stage", left=True), Column("problem", left=True), Column("next", left=True)]
    notes = []
    if graph is not None:
        size = size_text(graph.weight_bytes())
        notes.append(f"{len(graph.nodes)} nodes after optimising, weights {size}")
        notes += [f"input  {i}" for i in summary["inputs"]] + [f"output {o}" for o in summary["outputs"]]
    notes.append(f"{model}: {'ready for ' if summary['ok'] else 'NOT ready for '}{board.name}")
    return Report(summary, [Table(problems, columns)] if problems else [], notes), 0 if summary["ok"] else 1
