"""`run`: one inference, or one for every record on standard input."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.board.common import inputs_of, memory_of, memory_text, open_file, show
from edgerun.board.options import Options
from edgerun.cli.inputs import more_on_standard_input
from edgerun.cli.outputs import is_standard_output, write_folder, write_outputs
from edgerun.dims import shape_text
from edgerun.dtypes import from_numpy
from edgerun.errors import UsageError
from edgerun.report import Report, plain


def command(file: Path, options: Options, started: float) -> int:
    """One inference, or a stream of them."""
    _check(options)
    model, hooks = open_file(file, options)
    load_ms = (time.perf_counter() - started) * 1e3
    count = 0
    while count == 0 or (options.stream and more_on_standard_input()):
        count += 1
        arrays = inputs_of(model, hooks, options)
        ready = time.perf_counter()
        results = {n: plain_array(v) for n, v in hooks.finish(model.run(hooks.prepare(arrays))).items()}
        run_ms = (time.perf_counter() - ready) * 1e3
        if options.output_dir is not None:
            write_folder(Path(options.output_dir), results, options.force)
        if options.output is not None:
            write_outputs(options.output, results, options.force)
        with_values = options.output is None and options.output_dir is None
        document = {
            "backend": "packed", "load_ms": load_ms, "run_ms": run_ms,
            "outputs": [output_of(n, v, with_values) for n, v in results.items()], "memory": memory_of(model),
        }  # fmt: skip
        if options.stream and options.output is None:
            print(json.dumps(plain(document)))
    if options.stream:
        print(f"{count} records", file=sys.stderr)
    elif options.json and not is_standard_output(options.output):
        show(Report(document), options)
    elif not is_standard_output(options.output):
        print(f"{'output':<24} {'dtype':<6} {'shape':<20} {'min':>12} {'max':>12} {'mean':>12} {'argmax':>10}")
        for name, array in results.items():
            print(_row(name, array))
        print(f"load {load_ms:.2f} ms, run {run_ms:.2f} ms\n{memory_text(memory_of(model))}")
    return 0


def _check(options: Options) -> None:
    if options.output and options.output_dir:
        raise UsageError("give --output or --output-dir, not both")
    if options.stream and not any(i == "-" or i.endswith(("=-", "raw:-")) for i in options.inputs):
        raise UsageError("--stream needs an input from standard input: --input NAME=- or --input NAME=raw:-")
    if options.stream and (options.output_dir or (options.output and not is_standard_output(options.output))):
        raise UsageError("--stream writes to standard output: give --output - or --output raw:-, or none of them")


def plain_array(value: Any) -> np.ndarray:
    """Texts as NumPy's own text type, which .npy files can hold."""
    array = np.asarray(value)
    return array.astype(str) if array.dtype == object else array


def output_of(name: str, array: np.ndarray, with_values: bool) -> dict[str, Any]:
    """An output as JSON."""
    row: dict[str, Any] = {"name": name, "dtype": _dtype(array), "shape": list(array.shape)}
    if with_values:
        row["values"] = array.ravel().tolist()
    return row


def _dtype(array: np.ndarray) -> str:
    return "string" if array.dtype.kind in "US" else from_numpy(array.dtype).short


def _row(name: str, array: np.ndarray) -> str:
    text = f"{name:<24} {_dtype(array):<6} {shape_text(array.shape):<20}"
    if array.dtype.kind in "US":
        return text + " " + " ".join(repr(str(v)) for v in array.ravel()[:4])
    if not array.size or array.dtype.kind == "c":
        return text
    values = array.astype(np.float64).ravel()
    bad = np.isnan(values)
    if not bad.all():
        known = values[~bad]
        text += f" {known.min():12.6g} {known.max():12.6g} {known.mean():12.6g} {int(np.nanargmax(values)):10d}"
    return text + (f"  {int(bad.sum())} NaN" if bad.any() else "")
