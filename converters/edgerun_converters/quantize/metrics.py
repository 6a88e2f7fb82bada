"""How far the outputs of a quantised model are from those of the original, as one number: 0 is no loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgerun.errors import UsageError

Outputs = Sequence[Mapping[str, Any]]
"""Outputs by name, one mapping a sample."""


def _floats(expected: Outputs, actual: Outputs) -> tuple[np.ndarray, np.ndarray]:
    pairs = [
        (np.asarray(e[name], np.float64).ravel(), np.asarray(a[name], np.float64).ravel())
        for e, a in zip(expected, actual, strict=True)
        for name in e
        if np.asarray(e[name]).dtype.kind == "f"
    ]
    if not pairs:
        raise UsageError("the model has no float outputs to compare")
    return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])


def relative(expected: Outputs, actual: Outputs, labels: Sequence[Any] | None = None) -> float:
    """Root mean square of the error over that of the outputs."""
    e, a = _floats(expected, actual)
    signal = float((e**2).sum())
    return math.sqrt(float(((e - a) ** 2).sum()) / signal) if signal else float((e != a).any())


def cosine(expected: Outputs, actual: Outputs, labels: Sequence[Any] | None = None) -> float:
    """1 - the cosine of the angle between the outputs."""
    e, a = _floats(expected, actual)
    length = float(np.linalg.norm(e) * np.linalg.norm(a))
    return 1 - float(e @ a) / length if length else float((e != a).any())


def top1(expected: Outputs, actual: Outputs, labels: Sequence[Any] | None = None) -> float:
    """Accuracy lost against `labels`, or else the share of samples whose largest output is another one."""

    def best(outputs: Outputs) -> np.ndarray:
        return np.concatenate([np.asarray(next(iter(o.values()))).argmax(-1).ravel() for o in outputs])

    e, a = best(expected), best(actual)
    if labels is None:
        return float((e != a).mean())
    true = np.concatenate([np.asarray(v).ravel() for v in labels])
    if true.shape != e.shape:
        raise UsageError(f"{true.size} labels for {e.size} predictions")
    return float((e == true).mean() - (a == true).mean())


METRICS: dict[str, Callable[[Outputs, Outputs, Sequence[Any] | None], float]] = {
    "relative": relative,
    "cosine": cosine,
    "top1": top1,
}


def snr_db(expected: np.ndarray, actual: np.ndarray) -> float:
    """Signal to noise of a tensor in decibels; infinite when equal."""
    e = expected.astype(np.float64)
    noise = float(((e - actual) ** 2).sum())
    signal = float((e**2).sum())
    return math.inf if noise == 0 else 10 * math.log10(signal / noise) if signal else -math.inf
