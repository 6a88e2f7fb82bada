"""`edgerun bench`: latency and memory on this machine."""

from __future__ import annotations

from typing import Any

import click

from edgerun.cli.options import common, input_options, model_argument, parse_dims, parse_shapes, shape_options
from edgerun.report import Column, Report, Table, number, size_text


@click.command("bench")
@model_argument
@click.option("--backend", type=click.Choice(["auto", "native", "numpy"]), default="auto", help="What runs the model.")
@click.option("--threads", help="A number, a list such as 1,2,4, or `sweep`. Default: all cores.")
@click.option("--runs", type=click.IntRange(1), help="Timed runs. Default: as many as fit into --seconds.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=2.0, help="Time of the steady phase.")
@click.option("--warmup", type=click.IntRange(0), default=3, help="Untimed runs before it.")
@click.option("--layers", is_flag=True, help="Time of every layer (native backend).")
@input_options
@shape_options
@common
def command(
    model: str,
    backend: str,
    threads: str | None,
    runs: int | None,
    seconds: float,
    warmup: int,
    layers: bool,
    inputs: tuple[str, ...],
    seed: int,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
) -> Report:
    """Measure latency and memory on this machine; load, first run and steady runs apart.

    \b
    $ edgerun bench model.onnx
    $ edgerun bench model.onnx --threads sweep --layers --format json

    A packed file is measured as its own process, with the memory it really needs.
    """
    from edgerun.cli.launch import run_packed
    from edgerun.packed import is_packed

    if is_packed(model):
        arguments = ["--seconds", str(seconds), "--warmup", str(warmup), "--seed", str(seed)]
        arguments += ["--runs", str(runs)] if runs else []
        arguments += ["--threads", threads] if threads else []
        arguments += ["--layers"] if layers else []
        arguments += [word for i in inputs for word in ("--input", i)] + [
            word for s in shapes for word in ("--shape", s)
        ]
        return _report(run_packed(model, "bench", arguments))
    return _report(_measure(model, backend, threads, runs, seconds, warmup, layers, inputs, seed, shapes, dims))


def _measure(
    model: str,
    backend: str,
    threads: str | None,
    runs: int | None,
    seconds: float,
    warmup: int,
    layers: bool,
    inputs: tuple[str, ...],
    seed: int,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
) -> dict[str, Any]:
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
        opened[:] = [load(model, backend, threads=count, shapes=bound, dims=parse_dims(dims))]
        return opened[0]

    def feed(session: Session) -> dict[str, Any]:
        return read_inputs(session.inputs, inputs, shapes=bound, seed=seed, default="random")

    if backend == "numpy":
        counts = counts[:1]
    rows = bench.measure(open_session, feed, counts, bench.Settings(runs, seconds, warmup))
    document: dict[str, Any] = {"rows": rows, "memory": bench.memory()}
    if layers:
        session = opened[0]
        if session.backend != "native":
            raise UsageError("--layers needs the native backend")
        document["layers"] = session.runner.profile(feed(session), 20)  # type: ignore[attr-defined]
    return document


def _report(document: dict[str, Any]) -> Report:
    ms = number(3)
    columns = [
        Column("threads"), Column("runs"), Column("cold_ms", ms), Column("first_ms", ms), Column("min_ms", ms),
        Column("p50_ms", ms), Column("p90_ms", ms), Column("p99_ms", ms), Column("max_ms", ms), Column("mean_ms", ms),
        Column("sd_ms", ms), Column("per_second", number(1)), Column("isa", left=True),
    ]  # fmt: skip
    tables = [Table(document["rows"], columns)]
    if "layers" in document:
        layer = [Column("index"), Column("us", number(2)), Column("percent", number(2))]
        tables.append(Table(document["layers"], [*layer, Column("kernel", left=True), Column("node", left=True)]))
    use = document["memory"]
    peak, predicted = use["rss_peak_bytes"], use["ram_predicted_bytes"]
    text = "peak RSS " + ("not measured (no /proc)" if peak is None else size_text(peak))
    if predicted is not None:
        text += f", predicted {size_text(predicted)}"
    return Report(document, tables, [text])
