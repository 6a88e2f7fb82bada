"""Results as .npy files, as one .npz, or as a stream on standard output."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.errors import InputOutputError, UnsupportedError, UsageError
from edgerun.files import atomic_write


def is_standard_output(destination: str | None) -> bool:
    """Whether --output names standard output."""
    return destination in ("-", "raw:-")


def write_folder(folder: Path, results: Mapping[str, Any], force: bool) -> None:
    """NAME.npy for each output; makes the folder. Raises InputOutputError."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as e:
        raise InputOutputError(f"cannot make the folder {folder}: {e.strerror}") from e
    for name, value in results.items():
        with atomic_write(folder / f"{_safe(name)}.npy", force=force) as file:
            np.save(file, np.asarray(value), allow_pickle=False)


def write_outputs(destination: str, results: Mapping[str, Any], force: bool) -> None:
    """`-`: one .npy after another on standard output; `raw:-`: their bytes; else an .npz. Raises InputOutputError."""
    arrays = {name: np.ascontiguousarray(value) for name, value in results.items()}
    if not is_standard_output(destination):
        if not destination.endswith(".npz"):
            raise UsageError(f"--output {destination}", hint="write FILE.npz, - (npy on standard output) or raw:-")
        with atomic_write(Path(destination), force=force) as file:
            np.savez(file, allow_pickle=False, **{_safe(name): array for name, array in arrays.items()})
        return
    for name, array in arrays.items():
        if array.dtype == object:
            raise UnsupportedError(f"output {name!r} holds texts, which have no bytes to write")
        if destination == "-":
            record = io.BytesIO()  # numpy's own writing asks for the position, which a pipe does not have
            np.save(record, array, allow_pickle=False)
            sys.stdout.buffer.write(record.getbuffer())
        else:
            sys.stdout.buffer.write(array.tobytes())
    sys.stdout.buffer.flush()


def _safe(name: str) -> str:
    """Tensor names may hold slashes: keep them out of paths."""
    safe = name.replace("/", "_").replace("\\", "_")
    return "_" + safe[1:] if safe.startswith(".") else safe
