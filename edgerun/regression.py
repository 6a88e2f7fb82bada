"""Two documents of `bench` beside each other: has the model become slower or larger?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgerun.errors import FileFormatError, InputOutputError, UsageError


def read_document(path: Path) -> dict[str, Any]:
    """What `bench --json` wrote. Raises InputOutputError, FileFormatError."""
    try:
        document = json.loads(path.read_text())
    except OSError as e:
        raise InputOutputError(f"cannot read {path}: {e.strerror or e}") from e
    except ValueError as e:
        raise FileFormatError(f"{path} is no JSON: {e}", hint="write it with `edgerun bench --json`") from e
    rows = document.get("rows") if isinstance(document, dict) else None
    numbers = isinstance(rows, list) and all(
        isinstance(r, dict) and isinstance(r.get("threads"), int) and isinstance(r.get("p50_ms"), int | float)
        for r in rows
    )
    if not numbers or not isinstance(document.get("memory", {}), dict):
        raise FileFormatError(f"{path} is no result of bench", hint="write it with `edgerun bench --json`")
    return document


def compare(old: dict[str, Any], new: dict[str, Any], tolerance: float) -> list[dict[str, Any]]:
    """One row for the median of each thread count that both have, and one for the peak of memory where both know it.

    A value is a regression (`ok` false) when it is larger than the old one by more than `tolerance` (0.05: 5 %).
    Raises UsageError when there is nothing to compare.
    """
    before = {row["threads"]: row["p50_ms"] for row in old["rows"]}
    rows = [
        _row("p50_ms", row["threads"], before[row["threads"]], row["p50_ms"], tolerance)
        for row in new["rows"]
        if row["threads"] in before
    ]
    if not rows:
        raise UsageError(
            "the two results have no thread count in common",
            hint="the old one has --threads " + ",".join(map(str, sorted(before))),
        )
    peak_before, peak = ((d.get("memory") or {}).get("rss_peak_bytes") for d in (old, new))
    if isinstance(peak_before, int) and isinstance(peak, int):
        rows.append(_row("rss_peak_bytes", None, peak_before, peak, tolerance))
    return rows


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What makes the comparison doubtful: another machine, model or instruction set."""
    notes = []
    for label, a, b in (
        ("machine", *((d.get("machine") or {}).get("name") for d in (old, new))),
        ("model", *(d.get("sha256") for d in (old, new))),
        ("instruction set", *(next((r.get("isa") for r in d["rows"]), None) for d in (old, new))),
    ):
        if a != b:
            notes.append(f"note: another {label}: {a} then, {b} now")
    return notes


def _row(field: str, threads: int | None, old: float, new: float, tolerance: float) -> dict[str, Any]:
    return {
        "field": field,
        "threads": threads,
        "old": old,
        "new": new,
        "change_percent": 100 * (new / old - 1) if old else None,
        "ok": new <= old * (1 + tolerance),
    }
