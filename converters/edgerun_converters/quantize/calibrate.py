"""Ranges of activations over calibration data: what 8-bit codes have to cover."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.errors import UsageError
from edgerun.graph import Graph, Node

METHODS = ("minmax", "percentile", "mse")
BINS = 2048
OUTSIDE = 1e-4
"""Share of the values that `percentile` leaves outside, half on each side."""


@dataclass(slots=True)
class Histogram:
    """Counts of the values of one tensor in BINS equal bins over [low, high], which 0 belongs to."""

    low: float = 0.0
    high: float = 0.0
    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def widen(self, values: np.ndarray) -> None:
        """First pass. Raises UsageError when a value is not finite."""
        if values.size == 0:
            return
        low, high = float(values.min()), float(values.max())
        if not np.isfinite([low, high]).all():
            raise UsageError("an activation is not finite on the calibration data")
        self.low, self.high = min(self.low, low), max(self.high, high)

    def count(self, values: np.ndarray) -> None:
        """Second pass, after all values were seen by `widen`."""
        if self.high > self.low:
            self.counts += np.histogram(values, BINS, (self.low, self.high))[0]

    def range(self, method: str) -> tuple[float, float]:
        """(low, high) with low <= 0 <= high."""
        if method == "minmax" or self.counts.sum() == 0:
            return self.low, self.high
        edges = np.linspace(self.low, self.high, BINS + 1)
        if method == "percentile":
            share = np.cumsum(self.counts) / self.counts.sum()
            first = int(np.searchsorted(share, OUTSIDE / 2))
            last = int(np.searchsorted(share, 1 - OUTSIDE / 2))
            return min(0.0, float(edges[first])), max(0.0, float(edges[min(last + 1, BINS)]))
        return self._least_error(edges)

    def _least_error(self, edges: np.ndarray) -> tuple[float, float]:
        """The range, among the full one shrunk in 40 steps, with the least squared error of 8-bit codes."""
        centres = (edges[1:] + edges[:-1]) / 2
        best, chosen = np.inf, (self.low, self.high)
        for step in range(40):
            low, high = self.low * (1 - step / 50), self.high * (1 - step / 50)
            scale = (high - low) / 255
            codes = np.clip(np.rint((centres - low) / scale), 0, 255) * scale + low
            error = float((self.counts * (codes - centres) ** 2).sum())
            if error < best:
                best, chosen = error, (low, high)
        return chosen


def ranges(
    graph: Graph, tensors: Iterable[str], samples: Sequence[Mapping[str, Any]], method: str
) -> dict[str, tuple[float, float]]:
    """Range of each of `tensors` over the samples. Runs the NumPy kernels once a sample, twice but for minmax."""
    wanted = {name: Histogram() for name in tensors}
    executor = NumpyExecutor(graph)

    def walk(visit: str) -> None:
        for sample in samples:

            def see(node: Node, results: Any) -> None:
                for name, value in zip(node.outputs, results, strict=False):
                    if name in wanted:
                        getattr(wanted[name], visit)(np.asarray(value))

            for name in sample:
                if name in wanted:
                    getattr(wanted[name], visit)(np.asarray(sample[name]))
            executor.run(sample, observer=see)

    walk("widen")
    if method != "minmax":
        walk("count")
    return {name: h.range(method) for name, h in wanted.items()}
