"""`edgerun plan`: how the memory is laid out, and where it peaks."""

from __future__ import annotations

from typing import Any

import click

from edgerun.cli.options import common, model_argument, parse_dims, parse_shapes, shape_options
from edgerun.report import Column, Report, Table, size_text

_BAR = 40


@click.command("plan")
@model_argument
@click.option("--target", default="host", help="Board or architecture.")
@click.option("--tensors", is_flag=True, help="Every tensor: offset, size, first and last step.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Also write the plan to this file.")
@click.option("--force", is_flag=True, help="Replace the output when it exists.")
@shape_options
@common
def command(
    model: str,
    target: str,
    tensors: bool,
    output: str | None,
    force: bool,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
) -> Report:
    """Show the memory plan: arena, lower bound, live bytes at every step, and the peak.

    \b
    $ edgerun plan model.onnx --target rpi4
    $ edgerun plan model.onnx --tensors --format csv
    """
    from edgerun.plan import PlanReader
    from edgerun_packaging.memory import arena_report

    report = arena_report(PlanReader(_plan_bytes(model, target, shapes, dims, output, force)))
    steps, peak = report["steps"], report["peak_step"]
    top = max((s["live_bytes"] for s in steps), default=0)
    for s in steps:
        s["chart"] = "#" * round(_BAR * s["live_bytes"] / max(top, 1)) + (" <- peak" if s["step"] == peak else "")
    step_columns = [Column("step"), Column("live_bytes", size_text)]
    step_table = Table(steps, [*step_columns, *(Column(c, left=True) for c in ("kernel", "node", "chart"))])
    tensor_columns = [Column("tensor", left=True), Column("offset"), Column("bytes"), Column("first"), Column("last")]
    tensor_table = Table(report["tensors"], tensor_columns)
    notes = [
        f"arena {size_text(report['arena_bytes'])}, lower bound {size_text(report['lower_bound_bytes'])} "
        f"(gap {report['gap_percent']:.1f} %), weights {size_text(report['weight_bytes'])}, "
        f"scratch {size_text(report['thread_scratch_bytes'])} for each thread"
    ]
    return Report(report, [tensor_table] if tensors else [step_table], notes)


def _plan_bytes(
    model: str, target: str, shapes: tuple[str, ...], dims: tuple[str, ...], output: str | None, force: bool
) -> Any:
    from pathlib import Path

    from edgerun.files import atomic_write
    from edgerun.packed import map_plan

    magic = b""
    if not Path(model).is_dir():
        with Path(model).open("rb") as file:
            magic = file.read(8)
    if magic == b"EDGEPLAN" or magic[:4] == b"\x7fELF":
        return map_plan(model)
    from edgerun.backends.native.backend import build_plan
    from edgerun.session import load_graph
    from edgerun_targets import load

    graph = load_graph(model, shapes=parse_shapes(shapes), dims=parse_dims(dims))
    plan = build_plan(graph, load(target).arch)
    if output is not None:
        with atomic_write(Path(output), force=force) as file:
            file.write(plan)
    return plan
