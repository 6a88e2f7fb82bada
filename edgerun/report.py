"""Results as text: one document, printed as table, JSON, JSON lines, CSV or Markdown with the same field names.

A report is a document (what `--format json` prints) and tables over lists inside it. The first table is the main one:
JSON lines and CSV print its rows. Numbers are never formatted in the machine formats.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMATS = ("table", "json", "jsonl", "csv", "md")


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the field's name, and how a person reads it."""

    name: str
    show: Callable[[Any], str] | None = None
    left: bool = False
    """Text columns are aligned left."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows (a list of dicts) with the columns to print."""

    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[Column]
    title: str = ""


@dataclass(slots=True)
class Report:
    """A result of a verb."""

    document: Any
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Lines printed after the tables, for people only."""


def render(report: Report, form: str = "table") -> str:
    """The report as text ending in a newline. `form` is one of FORMATS."""
    if form == "json":
        return json.dumps(plain(report.document), indent=2, ensure_ascii=False) + "\n"
    main = report.tables[0].rows if report.tables else [report.document]
    if form == "jsonl":
        return "".join(json.dumps(plain(row), ensure_ascii=False) + "\n" for row in main)
    if form == "csv":
        return _csv(main)
    blocks = [_markdown(t) if form == "md" else _aligned(t) for t in report.tables]
    if report.notes:
        blocks.append("\n".join(report.notes) + "\n")
    return "\n".join(b for b in blocks if b)


def plain(value: Any) -> Any:
    """`value` with only types that JSON has; NaN and infinities become the texts "nan", "inf" and "-inf"."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Iterable) and not hasattr(value, "tolist"):
        return [plain(v) for v in value]
    return plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def size_text(count: float | None) -> str:
    """Bytes in decimal units, as budgets are given."""
    if count is None:
        return "-"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= scale:
            return f"{count / scale:.2f} {unit}"
    return f"{count:.0f} B"


def number(digits: int) -> Callable[[Any], str]:
    """A formatter with a fixed number of decimals; None is a dash."""
    return lambda v: "-" if v is None else (f"{v:.{digits}f}" if isinstance(v, int | float) else str(v))


def _cell(column: Column, row: Mapping[str, Any]) -> str:
    value = row.get(column.name)
    if column.show is not None:
        return column.show(value)
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return " ".join(str(v) for v in value)
    return str(value)


def _aligned(table: Table) -> str:
    if not table.rows:
        return f"{table.title}: none\n" if table.title else ""
    cells = [[c.name for c in table.columns], *([_cell(c, row) for c in table.columns] for row in table.rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(table.columns))]
    lines = [table.title] if table.title else []
    for line in cells:
        parts = (
            text.ljust(w) if c.left else text.rjust(w) for text, w, c in zip(line, widths, table.columns, strict=True)
        )
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines) + "\n"


def _markdown(table: Table) -> str:
    lines = [f"### {table.title}", ""] if table.title else []
    lines.append("| " + " | ".join(c.name for c in table.columns) + " |")
    lines.append("|" + "|".join("---" if c.left else "---:" for c in table.columns) + "|")
    for row in table.rows:
        lines.append("| " + " | ".join(_cell(c, row).replace("|", "\\|") for c in table.columns) + " |")
    return "\n".join(lines) + "\n"


def _csv(rows: Sequence[Any]) -> str:
    names = list(dict.fromkeys(k for row in rows for k in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = [plain(row.get(n)) for n in names]
        writer.writerow([json.dumps(v) if isinstance(v, list | dict) else v for v in values])
    return text.getvalue()
