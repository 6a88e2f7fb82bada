"""`edgerun run`: one inference, or one for each record of a stream."""

from __future__ import annotations

import json
import time
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
from edgerun.errors import UsageError
from edgerun.report import Column, Report, Table, plain


@click.command("run")
@model_argument
@backend_option("auto", "native", "numpy", "wgpu", "cuda")
@click.option("--threads", type=click.IntRange(1), default=1)
@input_options
@click.option("--stream", is_flag=True, help="Go on until standard input, which holds record after record, ends.")
@click.option("--output", metavar="DEST", help="FILE.npz, or standard output: - (npy), raw:- (plain bytes).")
@click.option("--output-dir", type=click.Path(file_okay=False), help="Write each output to DIR/NAME.npy.")
@click.option("--force", is_flag=True, help="Replace output files that exist.")
@shape_options
@common
def command(
    model: str,
    backend: Backend,
    threads: int,
    inputs: tuple[str, ...],
    seed: int,
    stream: bool,
    output: str | None,
    output_dir: str | None,
    force: bool,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
) -> Report | None:
    """Run a model once, or for every record on standard input. MODEL is an ONNX file, bundle, plan or packed file.

    \b
    $ edgerun run model.onnx --input image=photo.npy --output-dir results
    $ edgerun run model.onnx --input random --format json
    $ cat *.npy | edgerun run model.onnx --stream --input - --output - > results.npys

    A stream without --output prints one JSON document a line.
    """
    from edgerun.bench import memory
    from edgerun.cli.inputs import more_on_standard_input, read_inputs
    from edgerun.cli.launch import run_packed
    from edgerun.cli.outputs import is_standard_output, write_folder, write_outputs
    from edgerun.machine import host_arch
    from edgerun.packed import is_packed, read_footer
    from edgerun.session import load

    _check(inputs, stream, output, output_dir)
    if is_packed(model) and ((footer := read_footer(model)).arch != host_arch() or footer.archive_bytes):
        if stream or output:
            raise UsageError(
                "--stream and --output are for files of engine native of this architecture", hint="call the file itself"
            )
        arguments = [w for i in inputs for w in ("--input", i)] + [w for s in shapes for w in ("--shape", s)]
        arguments += ["--seed", str(seed), "--threads", str(threads)] + (["--force"] if force else [])
        arguments += ["--output-dir", output_dir] if output_dir else []
        return _report(run_packed(model, "run", arguments))
    bound = parse_shapes(shapes)
    start = time.perf_counter()
    session = load(model, backend.name, threads=threads, shapes=bound, dims=parse_dims(dims), options=backend.options)
    load_ms = (time.perf_counter() - start) * 1e3
    first = True
    while first or (stream and more_on_standard_input()):
        first = False
        arrays = read_inputs(session.inputs, inputs, shapes=bound, seed=seed)
        ready = time.perf_counter()
        results = session.run(arrays)
        run_ms = (time.perf_counter() - ready) * 1e3
        if output_dir is not None:
            write_folder(Path(output_dir), results, force)
        if output is not None:
            write_outputs(output, results, force)
        with_values = output is None and output_dir is None
        outputs = [_output(name, value, with_values) for name, value in results.items()]
        document = {"backend": session.backend, "load_ms": load_ms, "run_ms": run_ms, "outputs": outputs}
        if stream and output is None:
            click.echo(json.dumps(plain(document | {"memory": memory()})))
    return None if stream or is_standard_output(output) else _report(document | {"memory": memory()})


def _check(inputs: tuple[str, ...], stream: bool, output: str | None, output_dir: str | None) -> None:
    from edgerun.cli.outputs import is_standard_output

    if output and output_dir:
        raise UsageError("give --output or --output-dir, not both")
    if stream and not any(i == "-" or i.endswith(("=-", "raw:-")) for i in inputs):
        raise UsageError("--stream needs an input from standard input", hint="--input NAME=- or --input NAME=raw:-")
    if stream and (output_dir or (output and not is_standard_output(output))):
        raise UsageError(
            "--stream writes to standard output", hint="give --output - or --output raw:-, or none of them"
        )


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
