"""The kernel table and the ISA levels, read from the C sources that define them (kernels.def, levels.def)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from edgerun.errors import EdgerunError

CSRC = Path(str(files("edgerun.backends.native") / "csrc"))
_KERNEL = re.compile(r'^ER_KERNEL(_DOT|_WIDE)?\((\w+),\s*(\w+),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)', re.MULTILINE)
_LEVEL = re.compile(r'^ER_(\w+?)\((\w+), "([^"]+)", "([^"]+)", (-?\d+), (\w+), (FULL|WIDE|DOT)\)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One line of kernels.def. `contract`: what it computes, inputs -> outputs; parameters."""

    name: str
    file: str
    contract: str
    extra: str
    """"dot": the integer dot-product levels compile it once more; "wide": those with wider vectors; "": neither."""


@dataclass(frozen=True, slots=True)
class Level:
    """One ISA level. `extends` is the index of the level whose kernels serve where this one has none.

    `extent`: "FULL" = all kernels, "WIDE" and "DOT" = only those marked so.
    """

    symbol: str
    name: str
    cpu: str
    extends: int
    extent: str


@lru_cache(maxsize=1)
def kernels() -> tuple[Kernel, ...]:
    """All kernels, in the order of the C tables."""
    text = (CSRC / "kernels.def").read_text()
    found = []
    for extra, name, file, contract in _KERNEL.findall(text):
        words = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', contract))
        found.append(Kernel(name, file, words, extra.strip("_").lower()))
    return tuple(found)


@lru_cache(maxsize=1)
def levels() -> dict[str, tuple[Level, ...]]:
    """The ISA levels of each architecture, weakest first."""
    found: dict[str, list[Level]] = {}
    for arch, symbol, name, cpu, extends, _, extent in _LEVEL.findall((CSRC / "levels.def").read_text()):
        found.setdefault(arch.lower(), []).append(Level(symbol, name, cpu, int(extends), extent))
    if not found:
        raise EdgerunError(f"{CSRC / 'levels.def'} holds no levels")
    return {arch: tuple(rows) for arch, rows in found.items()}


def markdown() -> str:
    """docs/kernels.md: one table of all kernels."""
    lines = [
        "# Native kernels",
        "",
        "Made from `kernels.def` by `python -m edgerun.backends.native.table`.",
        "",
        "| kernel | source | contract |",
        "|---|---|---|",
    ]
    lines += [f"| `{k.name}` | {k.file}.c | {k.contract} |" for k in kernels()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
