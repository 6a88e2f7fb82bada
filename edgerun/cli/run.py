"""`edgerun run`: one inference."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from edgerun.cli.options import common, input_options, model_argument, parse_dims, parse_shapes, shape_options
from edgerun.report import Column, Report, Table


@click.command("run")
@model_argument
@click.option("--backend", type=click.Choice(["auto", "native", "numpy"]), default="auto", help="What runs the model.")
@click.option("--threads", type=click.IntRange(1), default=1)
@input_options
@click.option("--output-dir", type=click.Path(file_okay=False), help="Write each output to DIR/NAME.npy.")
@click.option("--force", is_flag=True, help="Replace output files that exist.")
@shape_options
@common
def command(
    model: str,
    backend: str,
    threads: int,
    inputs: tuple[str, ...],
    seed: int,
    output_dir: str | None,
    force: bool,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
) -> Report:
    """Run a model once. MODEL is an ONNX file, a bundle, a plan or a packed file.

    \b
    $ edgerun run model.onnx --input image=photo.npy --output-dir results
    $ edgerun run model.onnx --input random --format json
    """
    from edgerun.cli.inputs import read_inputs
    from edgerun.cli.launch import run_packed
    from edgerun.machine import host_arch
    from edgerun.packed import is_packed, read_footer
    from edgerun.session import load

    if is_packed(model) and read_footer(model).arch != host_arch():
        arguments = [w for i in inputs for w in ("--input", i)] + [w for s in shapes for w in ("--shape", s)]
        arguments += ["--seed", str(seed), "--threads", str(threads)] + (["--force"] if force else [])
        arguments += ["--output-dir", output_dir] if output_dir else []
        return _report(run_packed(model, "run", arguments) | {"backend": "packed"})
    bound = parse_shapes(shapes)
    start = time.perf_counter()
    session = load(model, backend, threads=threads, shapes=bound, dims=parse_dims(dims))
    loaded = time.perf_counter()
    arrays = read_inputs(session.inputs, inputs, shapes=bound, seed=seed)
    ready = time.perf_counter()
    results = session.run(arrays)
    done = time.perf_counter()
    if output_dir is not None:
        _write(Path(output_dir), results, force)
    outputs = [_output(name, value, output_dir is None) for name, value in results.items()]
    document = {
        "backend": session.backend,
        "load_ms": (loaded - start) * 1e3,
        "run_ms": (done - ready) * 1e3,
        "outputs": outputs,
    }
    return _report(document)


def _report(document: dict[str, Any]) -> Report:
    rows = [_summary(o) for o in document["outputs"]]
    columns = [Column(n, left=n in ("name", "dtype", "shape")) for n in rows[0]] if rows else []
    timing = f"{document['backend']}: load {document['load_ms']:.2f} ms, run {document['run_ms']:.2f} ms"
    return Report(document, [Table(rows, columns)], [timing])


def _output(name: str, value: Any, with_values: bool) -> dict[str, Any]:
    import numpy as np

    array = np.asarray(value)
    row = {"name": name, "dtype": _dtype(array), "shape": list(array.shape)}
    if with_values:
        row["values"] = [str(v) for v in array.ravel()] if array.dtype == object else array.ravel().tolist()
    return row


def _dtype(array: Any) -> str:
    from edgerun.dtypes import from_numpy

    return from_numpy(array.dtype).short


def _summary(output: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    row: dict[str, Any] = {"name": output["name"], "dtype": output["dtype"], "shape": str(output["shape"])}
    row |= dict.fromkeys(("min", "max", "mean", "argmax"))
    values = output.get("values")
    if values and output["dtype"] not in ("string", "c64", "c128"):
        numbers = np.array(values, np.float64)
        known = numbers[~np.isnan(numbers)]
        if known.size:
            row |= {"min": float(known.min()), "max": float(known.max()), "mean": float(known.mean())}
            row["argmax"] = int(np.nanargmax(numbers))
    return row


def _write(folder: Path, results: dict[str, Any], force: bool) -> None:
    import numpy as np

    from edgerun.errors import InputOutputError
    from edgerun.files import atomic_write

    if not folder.is_dir():
        raise InputOutputError(f"the folder {folder} does not exist", hint=f"mkdir -p {folder}")
    for name, value in results.items():
        safe = name.replace("/", "_").replace("\\", "_")
        path = folder / f"{'_' + safe[1:] if safe.startswith('.') else safe}.npy"
        with atomic_write(path, force=force) as file:
            np.save(file, np.asarray(value), allow_pickle=False)
