"""Calibration data: an .npz of arrays by input name, or a folder of samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.cli.inputs import read_inputs
from edgerun.errors import InputOutputError, UsageError
from edgerun.session import PortInfo

LABELS = ("label", "labels")


def read_samples(
    path: str | Path, ports: Sequence[PortInfo], shapes: dict[str, tuple[int, ...]], most: int
) -> tuple[list[dict[str, Any]], list[Any] | None]:
    """(at most `most` samples, labels where the .npz holds an array `label` or `labels`).

    .npz: the first axis of each array counts what the model's first axis does; an array with more of them than the
    model's batch is cut into samples, and one of exactly the model's shape is one sample. Folder: each file
    (.npy, .npz, image), in the order of names, is one sample. Raises UsageError and InputOutputError.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith("."))[:most]
        if not files:
            raise InputOutputError(f"{path} holds no files")
        return [read_inputs(ports, [str(f)], shapes=shapes) for f in files], None
    if path.suffix != ".npz":
        raise UsageError(f"{path} is neither a folder nor an .npz file")
    try:
        archive = np.load(path, allow_pickle=False)
        arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as e:
        raise InputOutputError(f"cannot read {path}: {e}") from e
    missing = [p.name for p in ports if p.name not in arrays]
    if missing:
        raise UsageError(f"{path} has no array for input {missing[0]!r}", hint="it has: " + ", ".join(arrays))
    parts = {p.name: _cut(p, arrays[p.name], shapes.get(p.name)) for p in ports}
    count = min(len(v) for v in parts.values())
    samples = [{name: v[i] for name, v in parts.items()} for i in range(count)]
    label = next((arrays[name] for name in LABELS if name in arrays and name not in parts), None)
    labels = None
    if label is not None:
        if len(label) % count:
            raise UsageError(f"{len(label)} labels for {count} samples")
        labels = np.split(label, count)[:most]
    return samples[:most], labels


def _cut(port: PortInfo, array: np.ndarray, shape: tuple[int, ...] | None) -> list[np.ndarray]:
    array = array.astype(port.dtype.numpy, copy=False)
    want = shape if shape is not None else port.shape
    if want is None or len(want) != array.ndim:
        raise UsageError(f"input {port} got an array of shape {array.shape}")
    if array.ndim == 0:
        return [array]
    batch = want[0] if isinstance(want[0], int) else 1
    if any(isinstance(d, int) and d != s for d, s in zip(want[1:], array.shape[1:], strict=True)):
        raise UsageError(f"input {port} got an array of shape {array.shape}")
    if batch < 1 or len(array) < batch:
        raise UsageError(f"input {port} takes {batch} a sample, the file holds {len(array)}")
    return [array[i : i + batch] for i in range(0, len(array) - batch + 1, batch)]
