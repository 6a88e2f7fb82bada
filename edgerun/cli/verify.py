"""`edgerun verify`: is the answer right, and if not, which layer is wrong?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from edgerun.cli.options import (
    Backend,
    backend_option,
    common,
    input_options,
    model_argument,
    parse_dims,
    parse_shapes,
    shape_options,
)
from edgerun.report import Column, Report, Table

_SMALL = "{:.3g}".format


@click.command("verify")
@model_argument
@backend_option("native", "numpy", "wgpu", "cuda")
@click.option(
    "--against",
    type=click.Choice(["numpy", "onnxruntime"]),
    default="numpy",
    help="The reference: the NumPy kernels, or onnxruntime on the original ONNX file.",
)
@click.option("--rtol", type=click.FloatRange(0), default=1e-3, help="Relative to the largest output magnitude.")
@click.option("--atol", type=click.FloatRange(0), default=1e-6)
@click.option("--layers", is_flag=True, help="Each layer alone, on reference inputs; names the first wrong one.")
@click.option("--flow", is_flag=True, help="Does every weight influence an output? Is a layer dead or not finite?")
@click.option(
    "--reduce", "reduced", type=click.Path(dir_okay=False), help="Write the smallest failing piece here (.edge)."
)
@click.option("--force", is_flag=True, help="Replace the file of --reduce.")
@input_options
@shape_options
@common
def command(
    model: str,
    backend: Backend,
    against: str,
    rtol: float,
    atol: float,
    layers: bool,
    flow: bool,
    reduced: str | None,
    force: bool,
    inputs: tuple[str, ...],
    seed: int,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
) -> tuple[Report, int]:
    """Compare a backend with the reference, layer by layer. A packed file runs its own self-test.

    \b
    $ edgerun verify model.onnx
    $ edgerun verify model.onnx --layers --input image=photo.npy
    $ edgerun verify model.onnx --against onnxruntime
    $ edgerun verify ./packed-model

    Exit status 1 when an output differs.
    """
    from edgerun.packed import is_packed

    if is_packed(model):
        return _selftest(model)
    from edgerun.cli.inputs import read_inputs
    from edgerun.session import from_graph, load_graph
    from edgerun.verify import Tolerance

    bound = parse_shapes(shapes)
    graph = load_graph(model, shapes=bound, dims=parse_dims(dims))
    tolerance = Tolerance(rtol, atol)
    session = from_graph(graph, backend.name, **backend.options)
    arrays = read_inputs(session.inputs, inputs, shapes=bound, seed=seed, default="random")
    reference = _reference(model, graph, against)
    document: dict[str, Any] = {"model": model, "backend": backend.name, "against": against}
    rows = _differences(session.run(arrays), reference(arrays), tolerance)
    document |= {"outputs": rows, "ok": all(r["ok"] for r in rows)}
    columns = [
        Column("tensor", left=True), Column("max_error", _SMALL), Column("mean_error", _SMALL),
        Column("snr_db", _SMALL), Column("ok", left=True), Column("note", left=True),
    ]  # fmt: skip
    tables = [Table(rows, columns)]

    def run_piece(piece: Any, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return from_graph(piece, backend.name, **backend.options).run(feeds)

    notes = []
    if layers:
        from edgerun.verify import isolate_layers

        found = [dataclasses.asdict(d) for d in isolate_layers(graph, arrays, run_piece, tolerance)]
        document["layers"] = found
        document["ok"] = document["ok"] and all(d["ok"] for d in found)
        extra = [Column("node", left=True), Column("op", left=True)]
        tables.append(Table(found, [*extra, *columns], "layers, each alone on reference inputs"))
        wrong = next((d for d in found if not d["ok"]), None)
        notes.append(f"first wrong layer: {wrong['node']} ({wrong['op']})" if wrong else "every layer alone is right")
    if flow:
        tables += _flow(graph, session, arrays, seed, document)
    if reduced is not None:
        notes.append(_reduce(graph, arrays, run_piece, tolerance, Path(reduced), force))
    notes.append(f"{backend.name} {'agrees with' if document['ok'] else 'DIFFERS from'} {against}")
    return Report(document, tables, notes), 0 if document["ok"] else 1


def _reference(model: str, graph: Any, against: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    if against == "numpy":
        from edgerun.backends.numpy.executor import NumpyExecutor

        return NumpyExecutor(graph).run
    from edgerun.errors import BackendUnavailable, UsageError

    if not model.endswith(".onnx"):
        raise UsageError("--against onnxruntime needs the original .onnx file")
    try:
        import onnxruntime
    except ModuleNotFoundError as e:
        raise BackendUnavailable("onnxruntime is not installed", hint="pip install 'edgerun[bench]'") from e
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feeds: dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(feeds)), strict=True))


def _differences(results: Mapping[str, Any], expected: Mapping[str, Any], tolerance: Any) -> list[dict[str, Any]]:
    import numpy as np

    from edgerun.verify import difference

    pairs = zip(results.items(), expected.values(), strict=True)
    found = [difference(np.asarray(got), np.asarray(want), tolerance, tensor=name) for (name, got), want in pairs]
    return [dataclasses.asdict(d) for d in found]


def _flow(graph: Any, session: Any, arrays: Mapping[str, Any], seed: int, document: dict[str, Any]) -> list[Table]:
    from edgerun.samples import random_values
    from edgerun.verify import weight_flow

    ports = {p.name: p for p in session.inputs}
    other = {k: random_values(ports[k].dtype, v.shape, seed + 1000 + i) for i, (k, v) in enumerate(arrays.items())}
    report = weight_flow(graph, arrays, other, seed)
    weights = [dataclasses.asdict(w) for w in report.weights]
    suspicious = [dataclasses.asdict(layer) for layer in report.layers]
    document["flow"] = {"ok": report.ok, "weights": weights, "layers": suspicious}
    document["ok"] = document["ok"] and report.ok
    idle = [w for w in weights if not w["reached"] or not w["influence"] > 0]
    return [
        Table(idle, [Column("name", left=True), Column("elements"), Column("note", left=True)], "idle weights"),
        Table(suspicious, [Column(c, left=True) for c in ("node", "op", "tensor", "problem")], "suspicious layers"),
    ]


def _reduce(graph: Any, arrays: Any, run_piece: Any, tolerance: Any, path: Path, force: bool) -> str:
    import numpy as np

    from edgerun import bundle
    from edgerun.files import atomic_write
    from edgerun.verify import reduce_failure

    found = reduce_failure(graph, arrays, run_piece, tolerance)
    if found is None:
        return "nothing to reduce: the whole graph agrees"
    piece: Any = found[0]
    feeds: dict[str, Any] = found[1]
    bundle.save(piece, path, force=force)
    with atomic_write(path.with_suffix(".npz"), force=force) as file:
        np.savez(file, **feeds)
    return f"smallest failing piece: {len(piece.nodes)} node(s) in {path}, inputs in {path.with_suffix('.npz')}"


def _selftest(model: str) -> tuple[Report, int]:
    from edgerun.cli.launch import run_packed

    document = run_packed(model, "selftest", [])
    columns = [Column(k, left=k == "isa") for k in document]
    return Report(document, [Table([document], columns)]), 0 if document["ok"] else 1
