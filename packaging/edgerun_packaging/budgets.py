"""What a packed model needs, by named part, and whether it keeps its budgets.

A budget is a contract: a model over budget is not written. The error carries the table of parts and remedies ranked by
their predicted gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from edgerun.report import size_text


@dataclass(frozen=True, slots=True)
class Part:
    """A named share of the file or of RAM, in bytes."""

    part: str
    bytes: int

    def as_dict(self) -> dict[str, object]:
        return {"part": self.part, "bytes": self.bytes}


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something the user can do, with the predicted gain in bytes."""

    action: str
    gain: int


@dataclass(frozen=True, slots=True)
class Budgets:
    """Limits; None means no limit. Sizes in bytes, latency in seconds (median of steady runs)."""

    max_size: int | None = None
    max_ram: int | None = None
    max_latency: float | None = None

    def as_dict(self) -> dict[str, float | int | None]:
        """As stored in the manifest."""
        milliseconds = None if self.max_latency is None else self.max_latency * 1e3
        return {"max_size": self.max_size, "max_ram": self.max_ram, "max_latency_ms": milliseconds}


@dataclass(frozen=True, slots=True)
class Footprint:
    """Predicted sizes. `ram` adds up to the peak resident set of the process while it runs."""

    size: list[Part]
    ram: list[Part]
    remedies: list[Remedy] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(p.bytes for p in self.size)

    @property
    def ram_bytes(self) -> int:
        return sum(p.bytes for p in self.ram)


@dataclass(frozen=True, slots=True)
class Excess:
    """One budget that is not kept."""

    budget: str
    limit: int
    needed: int
    parts: Sequence[Part]


def check(footprint: Footprint, budgets: Budgets) -> list[Excess]:
    """The budgets on bytes that are not kept."""
    found = []
    if budgets.max_size is not None and footprint.size_bytes > budgets.max_size:
        found.append(Excess("size", budgets.max_size, footprint.size_bytes, footprint.size))
    if budgets.max_ram is not None and footprint.ram_bytes > budgets.max_ram:
        found.append(Excess("ram", budgets.max_ram, footprint.ram_bytes, footprint.ram))
    return found


def describe(excess: Sequence[Excess], remedies: Sequence[Remedy]) -> str:
    """The message of BudgetExceeded: for each budget the parts, then what would help."""
    lines = []
    for e in excess:
        over = size_text(e.needed - e.limit)
        lines.append(
            f"{e.budget} budget exceeded: {size_text(e.needed)} needed, {size_text(e.limit)} allowed, {over} over"
        )
        width = max(len(p.part) for p in e.parts)
        lines += [
            f"  {p.part:<{width}}  {size_text(p.bytes):>10}  {100 * p.bytes / max(e.needed, 1):5.1f} %"
            for p in sorted(e.parts, key=lambda p: -p.bytes)
        ]
    useful = sorted((r for r in remedies if r.gain > 0), key=lambda r: -r.gain)
    if useful:
        lines.append("what would help:")
        lines += [f"  {'-' + size_text(r.gain):>10}  {r.action}" for r in useful]
    return "\n".join(lines)
