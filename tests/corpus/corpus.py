"""Access to the corpus: `$EDGERUN_CORPUS/{INDEX.tsv, models/SET/NAME.onnx, io/SET__NAME.npz}`.

INDEX.tsv has a row per model; `ort_noise` there is how far two runs of one reference runtime differ, the floor of any
tolerance for quantised models. The npz holds `in__NAME` and `out__NN__NAME` arrays ("|" in a key stands for "/").
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TOLERANCE = 1e-3
"""For fp32 models, relative to the largest magnitude of the reference output."""
QUANTISED_TOLERANCE = 0.1


@dataclass(frozen=True)
class CorpusModel:
    """One model: file, reference inputs and outputs, tolerance relative to the output's maximum."""

    name: str
    path: Path
    io: Path
    tolerance: float

    def arrays(self) -> tuple[dict[str, np.ndarray], list[tuple[str, np.ndarray]]]:
        """(inputs by name, reference outputs in order)."""
        with np.load(self.io) as data:
            inputs = {k[4:].replace("|", "/"): data[k] for k in data.files if k.startswith("in__")}
            outputs = [
                (k.split("__", 2)[2].replace("|", "/"), data[k]) for k in sorted(data.files) if k.startswith("out__")
            ]
        return inputs, outputs


def folder() -> Path | None:
    """The corpus folder, or None where the variable is not set."""
    value = os.environ.get("EDGERUN_CORPUS")
    return Path(value) if value else None


def models() -> list[CorpusModel]:
    """Every model of the index that has reference data; empty without a corpus."""
    root = folder()
    if root is None:
        return []
    found = []
    with (root / "INDEX.tsv").open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            path = root / "models" / row["file"]
            io = root / "io" / (row["file"].removesuffix(".onnx").replace("/", "__") + ".npz")
            if not path.exists() or not io.exists():
                continue
            quantised = "quant" in row["flags"] or "fp16" in row["flags"]
            noise = float(row["ort_noise"] or 0)
            tolerance = max(QUANTISED_TOLERANCE, 1.01 * noise) if quantised else TOLERANCE
            if noise > TOLERANCE and not quantised:
                tolerance = 3 * noise
            found.append(CorpusModel(row["file"].removesuffix(".onnx"), path, io, tolerance))
    return found


def compare(model: CorpusModel, results: dict[str, np.ndarray]) -> float:
    """Largest error of any output relative to that output's maximum. Fails on wrong names, shapes or dtypes."""
    _, outputs = model.arrays()
    worst = 0.0
    for name, expected in outputs:
        assert name in results, f"output {name!r} is missing; there are {sorted(results)}"
        result = results[name]
        assert result.shape == expected.shape, f"{name}: shape {result.shape}, expected {expected.shape}"
        assert result.dtype == expected.dtype, f"{name}: dtype {result.dtype}, expected {expected.dtype}"
        a, b = result.astype(np.float64), expected.astype(np.float64)
        assert np.isfinite(a).all() or not np.isfinite(b).all(), f"{name}: not finite"
        scale = np.abs(b).max() if b.size else 0.0
        error = np.abs(a - b).max() / (scale or 1.0) if b.size else 0.0
        worst = max(worst, float(error))
    return worst
