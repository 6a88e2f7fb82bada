"""The ledger: which cases are known not to pass, and why. Everything else must pass."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).with_name("expectations.toml")
STATUSES = ("fail", "unsupported", "error", "timeout", "random")
"""`random` is for cases whose expected values were drawn at random: they may pass or fail, but nothing else."""


@dataclass(frozen=True)
class Expectation:
    """Cases (names or shell patterns) that end with `status` on `backend`, for a stated reason."""

    backend: str
    cases: tuple[str, ...]
    status: str
    reason: str

    def covers(self, name: str) -> bool:
        """Whether one of the patterns is this case."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.cases)


def load(path: Path = PATH) -> list[Expectation]:
    """Read the ledger. Raises ValueError for an entry without a reason or with an unknown status."""
    found = []
    for row in tomllib.loads(path.read_text()).get("expect", []):
        entry = Expectation(row["backend"], tuple(row["cases"]), row["status"], row["reason"].strip())
        if entry.status not in STATUSES or not entry.reason or not entry.cases:
            raise ValueError(f"ledger entry {row} needs cases, a status of {STATUSES} and a reason")
        found.append(entry)
    return found


def expected(name: str, backend: str, entries: Iterable[Expectation]) -> str:
    """The status that the ledger expects: that of the first entry that covers the case, else "pass"."""
    return next((e.status for e in entries if e.backend == backend and e.covers(name)), "pass")


def agrees(status: str, expectation: str) -> bool:
    """Whether a verdict is what the ledger expects."""
    return status == expectation or (expectation == "random" and status in ("pass", "fail"))


def stale(names: Iterable[str], entries: Iterable[Expectation]) -> list[str]:
    """Patterns that name no case of the installed suite."""
    names = list(names)
    return [p for e in entries for p in e.cases if not fnmatch.filter(names, p)]
