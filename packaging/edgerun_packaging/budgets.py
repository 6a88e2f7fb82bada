"""What a packed model needs, by named part, and whether it keeps its budgets.

A budget is a contract: a model over budget is not written. The error carries the table of parts and remedies ranked by
their predicted gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """Something the user can do, with what it gains: bytes of the file, bytes of RAM, seconds of a run."""

    action: str
    size: int
    ram: int
    latency: float = 0.0
    planned: bool = True
    """Whether the gain comes from a plan made with the remedy; else it is an estimate."""

    def gain(self, budget: str) -> float:
        """For the budget "size", "ram" or "latency"."""
        return {"size": self.size, "ram": self.ram, "latency": self.latency}[budget]


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

    @property
    def size_bytes(self) -> int:
        return sum(p.bytes for p in self.size)

    @property
    def ram_bytes(self) -> int:
        return sum(p.bytes for p in self.ram)


@dataclass(frozen=True, slots=True)
class Excess:
    """One budget that is not kept. `limit` and `needed` in bytes, or in seconds for the latency."""

    budget: str
    limit: float
    needed: float
    parts: Sequence[Part] = ()
    basis: str = ""


def check(footprint: Footprint, budgets: Budgets, latency: float | None = None, basis: str = "") -> list[Excess]:
    """The budgets that are not kept. `latency`: the estimate in seconds, which rests on `basis`."""
    found = []
    if budgets.max_size is not None and footprint.size_bytes > budgets.max_size:
        found.append(Excess("size", budgets.max_size, footprint.size_bytes, footprint.size))
    if budgets.max_ram is not None and footprint.ram_bytes > budgets.max_ram:
        found.append(Excess("ram", budgets.max_ram, footprint.ram_bytes, footprint.ram))
    if budgets.max_latency is not None and latency is not None and latency > budgets.max_latency:
        found.append(Excess("latency", budgets.max_latency, latency, basis=basis))
    return found


def describe(excess: Sequence[Excess], remedies: Sequence[Remedy]) -> str:
    """The message of BudgetExceeded: for each budget the parts, then what would help, the most helpful first."""
    lines = []
    for e in excess:
        show = _milliseconds if e.budget == "latency" else size_text
        allowed, over = show(e.limit), show(e.needed - e.limit)
        lines.append(f"{e.budget} budget exceeded: {show(e.needed)} needed, {allowed} allowed, {over} over")
        if e.basis:
            lines.append(f"  an estimate: {e.basis}")
        width = max((len(p.part) for p in e.parts), default=0)
        lines += [
            f"  {p.part:<{width}}  {size_text(p.bytes):>10}  {100 * p.bytes / max(e.needed, 1):5.1f} %"
            for p in sorted(e.parts, key=lambda p: -p.bytes)
        ]
        useful = sorted((r for r in remedies if r.gain(e.budget) > 0), key=lambda r: -r.gain(e.budget))
        if useful:
            lines.append(f"what would help the {e.budget}:")
        for r in useful:
            keeps = " (enough)" if e.needed - r.gain(e.budget) <= e.limit else ""
            guess = "" if r.planned else " (a guess)"
            lines.append(f"  {'-' + show(r.gain(e.budget)):>10}  {r.action}{guess}{keeps}")
    return "\n".join(lines)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"
