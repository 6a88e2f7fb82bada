"""What the bytes of a packed file are, part by part, and how two files differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgerun.packed import FOOTER_BYTES, SIGNATURE_BYTES, map_plan, read_footer
from edgerun.plan import PlanReader, Space
from edgerun.plan.layout import Section
from edgerun_packaging.elf import audit

LAYERS = 12
"""The largest weights are listed by layer, so many of them; the others are one row."""


def breakdown(path: Path) -> list[dict[str, Any]]:
    """Rows {part, bytes} that add up to the size of a packed file or plan file. Raises as `map_plan` does."""
    plan = PlanReader(map_plan(path))
    with path.open("rb") as file:
        packed = file.read(4) == b"\x7fELF"
    rows: list[dict[str, Any]] = []

    def add(part: str, size: int) -> None:
        if size:
            rows.append({"part": part, "bytes": size})

    if packed:
        footer = read_footer(path)
        with path.open("rb") as file:
            stub = audit(file.read(footer.stub_bytes), str(path))
        add("stub: code", stub.text_bytes)
        add("stub: constants", stub.rodata_bytes)
        add("stub: data", stub.data_bytes)
        add("stub: headers and tables", footer.stub_bytes - stub.text_bytes - stub.rodata_bytes - stub.data_bytes)
        add("padding", footer.plan_offset - footer.stub_bytes)
        add("signature" if footer.archive_bytes == SIGNATURE_BYTES else "archive", footer.archive_bytes)
        add("footer", FOOTER_BYTES)
    used = 0
    for kind, (_, _, size) in plan.sections.items():
        if kind != Section.WEIGHTS:
            add(f"plan: {Section(kind).name.lower()}", size)
            used += size
    add("plan: header and alignment", len(plan.data) - used - len(plan.weights))
    rows += _weights(plan)
    return rows


def _weights(plan: PlanReader) -> list[dict[str, Any]]:
    """Weights by the first node that reads them, the largest first; what no node reads counts as alignment."""
    owner: dict[int, str] = {}
    for node in plan.nodes:
        for number in node.inputs:
            if number >= 0 and plan.tensors[number].space == Space.WEIGHTS:
                owner.setdefault(plan.tensors[number].offset, f"weights: {node.name or node.kernel}")
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    for tensor in plan.tensors:
        if tensor.space == Space.WEIGHTS and tensor.offset in owner and tensor.offset not in seen:
            seen.add(tensor.offset)
            sizes[owner[tensor.offset]] = sizes.get(owner[tensor.offset], 0) + tensor.bytes
    ranked = sorted(sizes.items(), key=lambda item: -item[1])
    rows = [{"part": part, "bytes": size} for part, size in ranked[:LAYERS]]
    rest = sum(size for _, size in ranked[LAYERS:])
    if rest:
        rows.append({"part": f"weights: {len(ranked) - LAYERS} smaller layers", "bytes": rest})
    gap = len(plan.weights) - sum(sizes.values())
    return [*rows, {"part": "weights: alignment", "bytes": gap}] if gap else rows


def compare(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows {part, old, new, change} in bytes, the largest change first; parts that stay are left out."""
    before = {r["part"]: r["bytes"] for r in old}
    after = {r["part"]: r["bytes"] for r in new}
    rows = [
        {"part": part, "old": before.get(part, 0), "new": after.get(part, 0),
         "change": after.get(part, 0) - before.get(part, 0)}
        for part in dict.fromkeys([*before, *after])
    ]  # fmt: skip
    return sorted((r for r in rows if r["change"]), key=lambda r: -abs(r["change"]))


def isa_floor(arch: str) -> str:
    """The least instruction set that a stub of this architecture runs on; it finds better ones when it starts."""
    from edgerun.backends.native.table import levels

    found = levels()[arch]
    rest = ", ".join(level.name for level in found[1:])
    return f"{found[0].name} ({found[0].cpu})" + (f", at run time also {rest}" if rest else "")
