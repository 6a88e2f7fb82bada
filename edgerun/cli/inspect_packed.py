"""`edgerun inspect` of a packed file or a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgerun.errors import UnsupportedError
from edgerun.report import Column, Report, Table, size_text

BAR, ROWS = 40, 20
"""Width of the terminal's memory chart in characters, and its most rows: many steps share one, the highest counts."""


def packed_report(path: Path, old: Path | None, chart: Path | None, force: bool) -> Report:
    """Manifest, needs, sizes and memory of a packed file or plan; with `old` how its sizes differ from that file's.

    `chart`: where to draw the memory. Raises FileFormatError, InputOutputError, PlanError.
    """
    from edgerun.packed import map_plan, read_footer
    from edgerun.plan import PlanReader
    from edgerun_packaging.breakdown import breakdown, compare, isa_floor
    from edgerun_packaging.elf import audit
    from edgerun_packaging.memory import arena_report
    from edgerun_packaging.signing import signature_of

    content = map_plan(path)
    if content[:8] != b"EDGEPLAN":
        raise UnsupportedError(
            f"{path} holds a bundle and Python, no plan", hint="inspect the .edge file it was made of"
        )
    plan = PlanReader(content)
    sizes, memory = breakdown(path), arena_report(plan)
    document: dict[str, Any] = {
        "file": str(path),
        "bytes": path.stat().st_size,
        "plan_bytes": len(plan.data),
        "manifest": plan.manifest,
        "isa_floor": isa_floor(plan.arch),
        "sizes": sizes,
        "memory": {k: v for k, v in memory.items() if k not in ("steps", "tensors")},
    }
    notes = [
        f"arena {size_text(memory['arena_bytes'])}, lower bound {size_text(memory['lower_bound_bytes'])} "
        f"(gap {memory['gap_percent']:.1f} %)",
        f"needs at least {document['isa_floor']}",
    ]
    with path.open("rb") as file:
        head = file.read(4)
    if head == b"\x7fELF":
        footer = read_footer(path)
        with path.open("rb") as file:
            stub = audit(file.read(footer.stub_bytes), str(path))
        document["elf"] = stub.as_dict()
        needs = "static, needs only a Linux kernel" if stub.static else "needs " + ", ".join(stub.needed)
        notes.append(f"stub {size_text(footer.stub_bytes)} for {stub.machine}: {needs}")
        found = signature_of(path)
        if found is not None:
            document["signature"] = {"key": found.fingerprint, "required": found.required}
            when = "at every start" if found.required else "by selftest"
            notes.append(f"signed by the key {found.fingerprint}, verified {when}")
    if chart is not None:
        from edgerun_packaging.chart import draw

        draw(memory, chart, path.name, force=force)
        notes.append(f"drawn: {chart}")
    tables = []
    if old is not None:
        document["old"], document["diff"] = str(old), compare(breakdown(old), sizes)
        show = [Column("old", size_text), Column("new", size_text), Column("change", _signed)]
        tables.append(Table(document["diff"], [Column("part", left=True), *show], f"since {old}"))
        change = path.stat().st_size - old.stat().st_size
        notes.insert(0, f"{size_text(path.stat().st_size)}, {_signed(change)} since {old}")
        return Report(document, tables, notes)
    rows = _flatten(document["manifest"])
    if rows:
        tables.append(Table(rows, [Column("field", left=True), Column("value", left=True)], "manifest"))
    total = sum(r["bytes"] for r in sizes)
    for row in sizes:
        row["percent"] = round(100 * row["bytes"] / total, 1)
    tables.append(Table(sizes, [Column("part", left=True), Column("bytes", size_text), Column("percent")], "file"))
    tables.append(Table(timeline(memory), [Column("steps", left=True), Column("live", size_text),
                                           Column("chart", left=True)], "memory over time"))  # fmt: skip
    return Report(document, tables, notes)


def timeline(memory: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows {steps, live, chart} for a terminal: at most ROWS, each with the most live bytes of its steps."""
    steps = memory["steps"]
    top = max(memory["arena_bytes"], 1)
    each = -(-len(steps) // ROWS) or 1
    rows = []
    for start in range(0, len(steps), each):
        part = steps[start : start + each]
        live = max(s["live_bytes"] for s in part)
        peak = " <- peak" if any(s["step"] == memory["peak_step"] for s in part) else ""
        name = f"{start}" if each == 1 else f"{start}-{start + len(part) - 1}"
        rows.append({"steps": name, "live": live, "chart": "#" * round(BAR * live / top) + peak})
    return rows


def _signed(count: float | None) -> str:
    return "-" if count is None else ("+" if count >= 0 else "-") + size_text(abs(count))


def _flatten(value: Any, prefix: str = "") -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [row for k, v in value.items() for row in _flatten(v, f"{prefix}.{k}" if prefix else str(k))]
    if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        return [row for i, v in enumerate(value) for row in _flatten(v, f"{prefix}.{i}")]
    return [{"field": prefix, "value": str(value)}]
