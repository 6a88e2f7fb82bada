"""`edgerun quantize`: weights of 8 or 4 bits, with what they cost and gain measured."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import click

from edgerun.cli.options import common, model_argument, parse_dims, parse_shapes, shape_options
from edgerun.report import Column, Report, Table, size_text

MODES = ("static", "dynamic", "int8-weights", "int4-weights")
METRICS = ("relative", "cosine", "top1")
BENCH_SECONDS = 2.0


@click.command("quantize")
@model_argument
@click.option(
    "--data", required=True, metavar="FILE|FOLDER|random", help="Samples: .npz by input name, or a folder of files."
)
@click.option("--mode", type=click.Choice(MODES), default="static", help="What becomes of the weights; see below.")
@click.option("--metric", type=click.Choice(METRICS), default="relative", help="How the loss is measured.")
@click.option("--max-drop", type=click.FloatRange(0), help="Leave out layers until the loss is at most this.")
@click.option(
    "--method", type=click.Choice(["minmax", "percentile", "mse"]), default="percentile",
    help="How ranges of activations are found (static).",
)  # fmt: skip
@click.option("--samples", type=click.IntRange(1), default=32, help="Samples to use at most.")
@click.option("--exclude", multiple=True, metavar="LAYER", help="A layer that stays as it is.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Default: MODEL with the ending .MODE.edge.")
@click.option("--no-bench", is_flag=True, help="Do not measure the speed of both models.")
@click.option("--force", is_flag=True, help="Replace the output when it exists.")
@shape_options
@common
def command(
    model: str,
    data: str,
    mode: str,
    metric: str,
    max_drop: float | None,
    method: str,
    samples: int,
    exclude: tuple[str, ...],
    output: str | None,
    no_bench: bool,
    force: bool,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
) -> tuple[Report, int]:
    """Make a float model smaller and faster, and say what that costs.

    \b
    $ edgerun quantize model.onnx --data calibration.npz
    $ edgerun quantize model.onnx --data photos/ --metric top1 --max-drop 0.01
    $ edgerun quantize model.edge --data random --mode int4-weights -o small.edge

    \b
    static        convolutions and products on 8-bit codes, ranges from the data
    dynamic       products on 8-bit codes, ranges found while running
    int8-weights  products by 8-bit weights in groups of 32; activations stay float
    int4-weights  the same with 4 bits

    The loss: `relative`, root mean square of the error over that of the outputs; `cosine`, 1 - the cosine between
    them; `top1`, accuracy lost (where an .npz has an array `label`), else the share of changed predictions. With
    --max-drop, layers are left out, worst signal to noise first. Exit status 1, and no file, when that is not enough.
    """
    from edgerun import bundle
    from edgerun.cli.progress import stage
    from edgerun.errors import InputOutputError
    from edgerun.session import from_graph, host, load_graph

    path = Path(output) if output else Path(model).with_suffix(f".{mode}.edge")
    if path.exists() and not force:
        raise InputOutputError(f"{path} exists already", hint="use --force to replace it, or -o for another name")
    bound = parse_shapes(shapes)
    with stage("importing and optimising"):
        graph = load_graph(model, shapes=bound, dims=parse_dims(dims))
    ports = from_graph(graph).inputs
    feeds, labels = _samples(data, ports, bound, samples)
    options = host("edgerun_converters.quantize", "Options")(mode, metric, max_drop, method, frozenset(exclude))
    with stage(f"quantising on {len(feeds)} samples"):
        result = host("edgerun_converters.quantize", "quantize")(graph, feeds, options, labels)
    document: dict[str, Any] = {
        "mode": mode, "samples": len(feeds), "metric": metric, "drop": result.drop, "max_drop": max_drop,
        "ok": result.ok, "layers": result.rows, "quantised": sum(r["quantised"] for r in result.rows),
        "tries": [{"left_out": n, "drop": d} for n, d in result.tried],
        "weight_bytes": {"before": graph.weight_bytes(), "after": result.graph.weight_bytes()},
    }  # fmt: skip
    ratio = result.graph.weight_bytes() / max(graph.weight_bytes(), 1)
    notes = [
        f"{document['quantised']} of {len(result.rows)} layers quantised; loss ({metric}) {result.drop:.4g}",
        f"weights {size_text(graph.weight_bytes())} -> {size_text(result.graph.weight_bytes())} ({ratio:.2f} x)",
    ]
    if data == "random":
        notes.append("random inputs: the loss on real ones, and the ranges they need, may be others")
    if result.ok:
        if not no_bench:
            with stage("measuring the speed of both"):
                document["bench"] = _bench(graph, result.graph, feeds[0])
            notes.append(_speed(document["bench"]))
        bundle.save(result.graph, path, force=force)
        document |= {"output": str(path), "bytes": path.stat().st_size}
        notes.append(f"{path}: {size_text(path.stat().st_size)}")
    else:
        notes.append(f"the loss stays above {max_drop:g}; nothing was written")
    columns = [
        Column("layer", left=True), Column("op", left=True), Column("weights", "{:,}".format),
        Column("snr_db", "{:.1f}".format), Column("quantised", lambda v: "yes" if v else "no", left=True),
    ]  # fmt: skip
    return Report(document, [Table(result.rows, columns)], notes), 0 if result.ok else 1


def _samples(data: str, ports: Any, shapes: dict[str, tuple[int, ...]], most: int) -> tuple[list[Any], Any]:
    if data == "random":
        from edgerun.cli.inputs import read_inputs

        return [read_inputs(ports, [], shapes=shapes, seed=1000 * i, default="random") for i in range(most)], None
    from edgerun.session import host

    samples, labels = host("edgerun_converters.quantize.data", "read_samples")(data, ports, shapes, most)
    return samples, labels


def _bench(before: Any, after: Any, feeds: Any) -> dict[str, Any]:
    """Median milliseconds of both on one thread, run in turns."""
    from edgerun.session import from_graph, host

    bound_to = host("edgerun_converters.quantize", "bound_to")
    sessions = [from_graph(bound_to(graph, feeds), "auto") for graph in (before, after)]
    times: list[list[float]] = [[], []]
    end = time.perf_counter() + BENCH_SECONDS
    while len(times[1]) < 5 or time.perf_counter() < end:
        for session, row in zip(sessions, times, strict=True):
            start = time.perf_counter()
            session.run(feeds)
            row.append((time.perf_counter() - start) * 1e3)
    ms = [statistics.median(row[1:]) for row in times]
    return {"before_ms": ms[0], "after_ms": ms[1], "speedup": ms[0] / ms[1], "backend": sessions[1].backend}


def _speed(bench: dict[str, Any]) -> str:
    what = "times as fast" if bench["speedup"] >= 1 else "times as fast: SLOWER than before on this machine"
    text = f"{bench['before_ms']:.3f} ms -> {bench['after_ms']:.3f} ms, one thread, {bench['backend']}"
    return f"{text}: {bench['speedup']:.2f} {what}"
