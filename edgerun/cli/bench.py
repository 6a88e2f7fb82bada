"""`edgerun bench`: latency and memory on this machine, or on a board over ssh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgerun import __version__
from edgerun.cli.options import (
    Backend,
    PercentType,
    backend_option,
    common,
    input_options,
    model_argument,
    parse_dims,
    parse_shapes,
    shape_options,
)
from edgerun.report import Column, Report, Table, number, size_text


@click.command("bench")
@model_argument
@backend_option("auto", "native", "numpy", "wgpu", "cuda")
@click.option("--threads", help="A number, a list such as 1,2,4, or `sweep`. Default: all cores.")
@click.option("--runs", type=click.IntRange(1), help="Timed runs. Default: as many as fit into --seconds.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=2.0, help="Time of the steady phase.")
@click.option("--warmup", type=click.IntRange(0), default=3, help="Untimed runs before it.")
@click.option("--layers", is_flag=True, help="Time of every layer (native backend).")
@click.option("--allow-throttled", is_flag=True, help="Accept runs during which the CPU was throttled.")
@click.option("--ssh", "host", metavar="USER@BOARD", help="Measure there: pack when needed, copy, run, remove.")
@click.option("--target", help="What to pack for with --ssh. Default: the architecture the board names.")
@click.option("--remote-dir", default="/tmp", show_default=True, help="Folder on the board for the copy.")
@click.option("--compare", "old", type=click.Path(), help="Result of an earlier `bench --json`; exit 1 when slower.")
@click.option("--tolerance", type=PercentType(), default="5%", show_default=True, help="What --compare lets pass.")
@input_options
@shape_options
@common
def command(
    model: str,
    backend: Backend,
    threads: str | None,
    runs: int | None,
    seconds: float,
    warmup: int,
    layers: bool,
    allow_throttled: bool,
    host: str | None,
    target: str | None,
    remote_dir: str,
    old: str | None,
    tolerance: float,
    inputs: tuple[str, ...],
    seed: int,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
) -> tuple[Report, int]:
    """Measure latency and memory on this machine or on a board; load, first run and steady runs apart.

    \b
    $ edgerun bench model.onnx
    $ edgerun bench model.onnx --threads sweep --layers --format json
    $ edgerun bench model.onnx --ssh pi@board --compare last-week.json

    Of a language model a run is one token after 64 others. A packed file is measured as its own process, with the
    memory it really needs. Exit status 1 when the result is worse than the old one, or the CPU was throttled.
    """
    from edgerun.cli.launch import run_packed
    from edgerun.packed import is_packed
    from edgerun.regression import read_document

    before = read_document(Path(old)) if old is not None else None
    if host is None and not is_packed(model):
        document = _measure(
            model, backend, threads, runs, seconds, warmup, layers, allow_throttled, inputs, seed, shapes, dims
        )
        return _report(document, before, tolerance)
    arguments = ["--seconds", str(seconds), "--warmup", str(warmup), "--seed", str(seed)]
    arguments += ["--runs", str(runs)] if runs else []
    arguments += ["--threads", threads] if threads else []
    arguments += ["--layers"] if layers else []
    arguments += ["--allow-throttled"] if allow_throttled else []
    arguments += [word for i in inputs for word in ("--input", i)] + [word for s in shapes for word in ("--shape", s)]
    if host is None:
        document = run_packed(model, "bench", arguments)
    else:
        document = _on_board(host, model, target, remote_dir, arguments, inputs, shapes, dims)
    return _report(document, before, tolerance)


def _on_board(
    host: str,
    model: str,
    target: str | None,
    folder: str,
    arguments: list[str],
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
) -> dict[str, Any]:
    import tempfile

    from edgerun.cli import remote
    from edgerun.errors import UsageError
    from edgerun.packed import is_packed

    files = [i for i in inputs if i.rpartition("=")[2] not in ("random", "zeros")]
    if files:
        raise UsageError(f"--input {files[0]}: files are not copied to the board", hint="use random or zeros")
    if is_packed(model):
        return remote.bench(host, Path(model), arguments, folder=folder)
    from edgerun.session import load_graph
    from edgerun_packaging.pack import Options, pack
    from edgerun_targets import load as load_target

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model"
        graph = load_graph(model, shapes=parse_shapes(shapes), dims=parse_dims(dims))
        board = load_target(target or remote.architecture(host))
        pack(graph, board, path, source=Path(model), options=Options(golden=False))
        return remote.bench(host, path, arguments, folder=folder)


def _measure(
    model: str,
    backend: Backend,
    threads: str | None,
    runs: int | None,
    seconds: float,
    warmup: int,
    layers: bool,
    allow_throttled: bool,
    inputs: tuple[str, ...],
    seed: int,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
) -> dict[str, Any]:
    import numpy as np

    from edgerun import bench
    from edgerun.cli.inputs import read_inputs
    from edgerun.errors import UsageError
    from edgerun.session import Session, load

    try:
        counts = bench.thread_counts(threads)
    except ValueError as e:
        raise UsageError(f"--threads {threads}: {e}", hint="write a number, a list such as 1,2,4, or sweep") from e
    bound = parse_shapes(shapes)
    opened: list[Session] = []

    def open_session(count: int) -> Session:
        opened[:] = [
            load(model, backend.name, threads=count, shapes=bound, dims=parse_dims(dims), options=backend.options)
        ]
        return opened[0]

    def feed(session: Session) -> dict[str, Any]:
        if "text" in session.meta and not inputs and not shapes:
            return {name: np.array([64 * (name == "position")]) for name in ("tokens", "position")}
        return read_inputs(session.inputs, inputs, shapes=bound, seed=seed, default="random")

    if backend.name in ("numpy", "wgpu", "cuda"):
        counts = counts[:1]
    rows = bench.measure(open_session, feed, counts, bench.Settings(runs, seconds, warmup, allow_throttled))
    session = opened[0]
    document: dict[str, Any] = {
        "version": __version__,
        "model": session.graph.name if session.graph else Path(model).stem,
        "sha256": session.graph.meta.get("sha256") if session.graph else None,
        "machine": bench.machine(),
        "rows": rows,
        "memory": bench.memory(),
    }
    if layers:
        if session.backend != "native":
            raise UsageError("--layers needs the native backend")
        document["layers"] = session.runner.profile(feed(session), 20)  # type: ignore[attr-defined]
    return document


def _report(document: dict[str, Any], before: dict[str, Any] | None, tolerance: float) -> tuple[Report, int]:
    """Report and exit status: 1 for a throttled row or a regression."""
    ms = number(3)
    columns = [
        Column("threads"), Column("runs"), Column("cold_ms", ms), Column("first_ms", ms), Column("min_ms", ms),
        Column("p50_ms", ms), Column("p90_ms", ms), Column("p99_ms", ms), Column("max_ms", ms), Column("mean_ms", ms),
        Column("sd_ms", ms), Column("per_second", number(1)), Column("isa", left=True),
    ]  # fmt: skip
    rows = document["rows"]
    for name in ("mhz_min", "mhz_max", "celsius_max"):
        columns += [Column(name, number(0))] if any(row.get(name) is not None for row in rows) else []
    tables = [Table(rows, columns)]
    if "layers" in document:
        layer = [Column("index"), Column("us", number(2)), Column("percent", number(2))]
        tables.append(Table(document["layers"], [*layer, Column("kernel", left=True), Column("node", left=True)]))
    notes = [_memory_text(document["memory"])]
    parts = [p for p in document["memory"]["parts"] if p["measured_bytes"] is not None]
    for p in parts:
        measured, predicted = size_text(p["measured_bytes"]), size_text(p["predicted_bytes"])
        notes.append(f"  {p['part']:<32} {measured:>10}, predicted {predicted:>10}")
    rejected = [row for row in rows if row.get("rejected")]
    for row in rejected:
        notes.append(
            f"REJECTED with {row['threads']} thread(s), the CPU was throttled: " + ", ".join(row["throttle_reasons"])
        )
    if before is None:
        return Report(document, tables, notes), int(bool(rejected))
    from edgerun.regression import compare, differences

    changes = compare(before, document, tolerance)
    document["changes"] = changes
    shown = [Column("field", left=True), Column("threads"), Column("old", _value), Column("new", _value)]
    tables.append(Table(changes, [*shown, Column("change_percent", number(1)), Column("ok")], "compared"))
    worse = [c for c in changes if not c["ok"]]
    notes += differences(before, document)
    notes.append(f"{len(worse)} of {len(changes)} values are worse by more than {100 * tolerance:g} %")
    return Report(document, tables, notes), int(bool(rejected or worse))


def _memory_text(use: dict[str, Any]) -> str:
    peak, predicted, error = use["rss_peak_bytes"], use["ram_predicted_bytes"], use["ram_error_percent"]
    text = "peak RSS " + ("not measured (no /proc, or an emulator)" if peak is None else size_text(peak))
    if predicted is not None:
        text += f", predicted {size_text(predicted)}" + (" at most" if error is None else f" ({error:+.1f} %)")
    return text


def _value(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
