"""What the commands share: opening the model, reading inputs, printing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from edgerun import bench
from edgerun.board.hooks import Hooks
from edgerun.board.model import BoardModel, open_model
from edgerun.board.options import Options, count
from edgerun.cli.inputs import read_inputs
from edgerun.errors import BackendUnavailable, UsageError
from edgerun.report import Report, render


def open_file(file: Path, options: Options, threads: int | None = None) -> tuple[BoardModel, Hooks]:
    """The model of this file and the user's script. `threads` None: what --threads says, else one per big core."""
    if threads is None:
        threads = count(options.threads, "--threads", 1, 1024) if options.threads else 0
    model = open_model(file, threads=threads, isa=options.isa, allow_software=options.allow_software_adapter)
    if not options.no_memory_check:
        _check_memory(model)
    return model, Hooks.load(bool(model.manifest.get("script")))


def _check_memory(model: BoardModel) -> None:
    """Raise BackendUnavailable where the machine has less memory left than the prediction of pack time."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    needed = model.manifest.get("ram_bytes")
    if match and needed and int(match.group(1)) * 1024 < needed:
        raise BackendUnavailable(
            f"the model needs {needed / 1e6:.1f} MB, {int(match.group(1)) * 1024 / 1e6:.1f} MB are available",
            hint="--no-memory-check tries anyway",
        )


def shapes_of(options: Options) -> dict[str, tuple[int, ...]]:
    """What --shape says, by input name. Raises UsageError."""
    shapes = {}
    for text in options.shapes:
        name, _, dims = text.rpartition("=")
        if not name or not all(d.isdecimal() for d in dims.split(",")):
            raise UsageError(f"--shape takes numbers such as x=1,3,224,224, not '{text}'")
        shapes[name] = tuple(int(d) for d in dims.split(","))
    return shapes


def inputs_of(model: BoardModel, hooks: Hooks, options: Options, default: str | None = None) -> dict[str, Any]:
    """One array for each input, from --input; `default` ("random") serves those that no word names."""
    return read_inputs(
        hooks.inputs(model.inputs), options.inputs, shapes=shapes_of(options), seed=options.seed, default=default
    )


def show(report: Report, options: Options) -> None:
    """Print a result."""
    print(render(report, "json" if options.json else "table"), end="")


def memory_of(model: BoardModel) -> dict[str, Any]:
    """Memory of this process, beside the prediction of pack time: the fields of bench.MEMORY_FIELDS."""
    found = bench.memory()
    predicted, peak = model.manifest.get("ram_bytes"), found["rss_peak_bytes"]
    error = 100 * (predicted / peak - 1) if predicted and peak else None
    return found | {"ram_predicted_bytes": predicted, "ram_error_percent": error}


def memory_text(use: dict[str, Any]) -> str:
    """One line about memory."""
    peak, predicted, error = use["rss_peak_bytes"], use["ram_predicted_bytes"], use["ram_error_percent"]
    text = "peak RSS not measured (no /proc)" if peak is None else f"peak RSS {peak / 1e6:.2f} MB"
    text += f", predicted {predicted / 1e6:.2f} MB" if predicted is not None else ""
    return text + (f" ({error:+.1f} %)" if error is not None else "")
