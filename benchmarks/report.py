"""Results of a comparison as a table and as a drawing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIFFERENCE = 0.2
"""Relative difference of outputs above which an arm computes something else; quantised rows differ by up to a tenth."""


@dataclass
class Result:
    """One arm's summary; times in milliseconds."""

    model: str
    peer: str
    threads: int
    median: float
    best: float
    p90: float
    samples: int
    load: float
    first: float
    rss_mib: float
    difference: float = 0.0
    """Largest difference from the reference arm's outputs, relative to their largest value."""
    error: str = ""

    @property
    def right(self) -> bool:
        """Whether the arm ran and its outputs are the reference's."""
        return not self.error and self.difference <= DIFFERENCE


def table(results: list[Result], peers: list[str]) -> str:
    """Rows of model x threads as a Markdown table, and the geometric means below it."""
    others = [p for p in peers if p != "edgerun"]
    lines = [
        "| model | threads | " + " | ".join(f"{p} ms" for p in peers) + " | "
        + " | ".join(f"{p} / edgerun" for p in others) + " |",
        "|" + "---|" * (2 + len(peers) + len(others)),
    ]  # fmt: skip
    ratios: dict[tuple[str, int], list[float]] = {}
    for (model, threads), row in _rows(results):
        cells = [_milliseconds(row.get(p)) for p in peers]
        found = {p: r for p in others if (r := ratio(row, p)) is not None}
        cells += [f"{found[p]:.2f}" if p in found else "-" for p in others]
        lines.append(f"| {model} | {threads} | " + " | ".join(cells) + " |")
        for peer, value in found.items():
            ratios.setdefault((peer, threads), []).append(value)
        if len(others) > 1 and found:
            ratios.setdefault(("best peer of each row", threads), []).append(min(found.values()))
    if any(r.error == "" and not r.right for r in results):
        lines.append("\n`*` the outputs differ from the reference; left out of ratios and means")
    lines.append("\ngeometric means, time of the peer / time of edgerun:\n")
    for (peer, threads), values in sorted(ratios.items(), key=lambda item: item[0][1]):
        mean = math.exp(statistics.fmean(math.log(v) for v in values))
        lines.append(f"- {peer}, {threads} thread{'s' if threads > 1 else ''}: {mean:.3f} over {len(values)} rows")
    return "\n".join(lines)


def ratio(row: dict[str, Result], peer: str) -> float | None:
    """The peer's median divided by edgerun's (above 1: edgerun is faster); None unless both ran and were right."""
    ours, other = row.get("edgerun"), row.get(peer)
    if ours is None or other is None or not ours.right or not other.right:
        return None
    return other.median / ours.median


def plot(results: list[Result], peers: list[str], file: Path, machine: dict[str, Any]) -> None:
    """Draws each peer's ratio to edgerun, one panel per thread count, on a logarithmic axis.

    Raises:
        SystemExit: matplotlib is not installed.
    """
    try:
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install 'edgerun[bench]'") from None
    others = [p for p in peers if p != "edgerun"]
    counts = sorted({r.threads for r in results})
    models = list(dict.fromkeys(r.model for r in results))
    figure, axes = plt.subplots(
        1, len(counts), figsize=(5 * len(counts) + 1, 0.36 * len(models) + 1.6), sharey=True, squeeze=False
    )
    for axis, threads in zip(axes[0], counts, strict=True):
        rows = dict(_rows(r for r in results if r.threads == threads))
        for peer, marker in zip(others, "os^Dvx", strict=False):
            points = [(value, y) for y, m in enumerate(models) if (value := ratio(rows.get((m, threads), {}), peer))]
            axis.plot([x for x, _ in points], [y for _, y in points], marker, label=peer)
        axis.axvline(1, color="black", linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set_title(f"{threads} thread{'s' if threads > 1 else ''}")
        axis.set_xlabel("time of the peer / time of edgerun")
        axis.grid(axis="x", alpha=0.3)
    axes[0][0].set_yticks(range(len(models)), models)
    axes[0][0].invert_yaxis()
    axes[0][-1].legend(loc="best", fontsize="small")
    figure.suptitle(f"{machine['cpu']}, {machine['date']}", fontsize="small")
    figure.tight_layout()
    figure.savefig(file)
    plt.close(figure)


def _rows(results: Iterable[Result]) -> list[tuple[tuple[str, int], dict[str, Result]]]:
    rows: dict[tuple[str, int], dict[str, Result]] = {}
    for result in results:
        rows.setdefault((result.model, result.threads), {})[result.peer] = result
    return list(rows.items())


def _milliseconds(result: Result | None) -> str:
    if result is None or result.error:
        return "-"
    return f"{result.median:.3f}{'' if result.right else '*'}"
