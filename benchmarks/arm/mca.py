"""Static throughput of the hottest loops on AArch64 cores, by llvm-mca 16 or newer (Debian package `llvm-16`).

    python -m benchmarks.arm.mca

The kernels are compiled as for the stub; of each function the basic block with the most multiply-adds is taken. A row
says how many cycles llvm's model of the core needs for the block when all data is in the first-level cache, and how
much of the core's multiply-add peak that is. It is a model's figure, not a measurement: caches, TLB and the
neighbouring blocks are not in it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from edgerun.backends.native.table import CSRC, levels
from edgerun_packaging.zig import FLAGS, TRIPLES

CORES = {"cortex-a53": 1.0, "cortex-a72": 1.0, "neoverse-n2": 2.0}
"""llvm's model -> the 128-bit multiply-adds a cycle it allows. The model of the Cortex-A72 is that of the A57, and llvm
has none of the Cortex-A76: the Neoverse N2 stands for the wide cores."""
LEVELS = {"neon": 12, "neon-dotprod": 2}
"""ISA level -> how many loops are looked at."""
MANY = 8
"""Multiply-adds that make a block worth a row."""
PRODUCTS = re.compile(r"\s(fmla|fmls|[su]dot|smlal2?|[us]mmla)\s")
ITERATIONS = 200


@dataclass(frozen=True, slots=True)
class Loop:
    """The hottest block of a function."""

    function: str
    lines: tuple[str, ...]

    @property
    def products(self) -> int:
        return sum(bool(PRODUCTS.search(line)) for line in self.lines)

    @property
    def density(self) -> float:
        """Share of the instructions that multiply and add."""
        return self.products / max(len(self.lines), 1)

    @property
    def memory(self) -> int:
        return sum(bool(re.match(r"\s+(ld|st)", line)) for line in self.lines)


def assembly(level: str) -> str:
    """The kernels of one AArch64 ISA level as assembly text."""
    found = next(entry for entry in levels()["aarch64"] if entry.name == level)
    extent = [] if found.extent == "FULL" else [f"-DER_{found.extent}_ONLY"]
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "kernels.s"
        command = [
            sys.executable, "-m", "ziglang", "cc", "-target", TRIPLES["aarch64"], *FLAGS, "-w",
            f"-I{CSRC}", "-S", "-g0",
            f"-mcpu={found.cpu}", f"-DER_ISA={found.symbol}", f'-DER_ISA_NAME="{level}"', *extent, str(CSRC / "isa.c"),
            "-o", str(out),
        ]  # fmt: skip
        subprocess.run(command, check=True)
        return out.read_text()


def loops(text: str) -> list[Loop]:
    """The basic block with the most multiply-adds of every function, those that do little else first."""
    found = []
    for part in re.split(r"^\t\.type\t(?=\w+,@function)", text, flags=re.MULTILINE)[1:]:
        blocks: list[list[str]] = [[]]
        for line in part.split("\t.size\t")[0].splitlines()[1:]:
            if re.match(r"^\S+:", line):
                blocks.append([])
            elif line.startswith("\t") and not line.strip().startswith((".", "//")):
                blocks[-1].append(line.split("//")[0].rstrip())
                if re.match(r"\s+(b(\.\w+)?|cbn?z|tbn?z)\s", line):
                    blocks.append([])
        hottest = max((Loop(part.split(",")[0], tuple(b)) for b in blocks), key=lambda loop: loop.products)
        if hottest.products >= MANY:
            found.append(hottest)
    return sorted(found, key=lambda loop: -loop.density)


@cache
def program() -> str:
    """The newest llvm-mca on the path. Raises SystemExit without one that knows the Neoverse N2."""
    for version in range(30, 15, -1):
        if found := shutil.which(f"llvm-mca-{version}"):
            return found
    raise SystemExit("llvm-mca 16 or newer is not installed: sudo apt install llvm-16")


def cycles(loop: Loop, core: str) -> float:
    """Cycles of one pass through the block on llvm's model of the core.

    Raises:
        RuntimeError: llvm-mca does not take the block.
    """
    command = [program(), "-march=aarch64", f"-mcpu={core}", "-mattr=+dotprod,+fullfp16", f"-iterations={ITERATIONS}"]
    done = subprocess.run(command, input="\n".join(loop.lines) + "\n", capture_output=True, text=True, check=False)
    total = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if not total:
        raise RuntimeError((done.stderr.strip() or "no answer").splitlines()[0][:200])
    return int(total.group(1)) / ITERATIONS


def main() -> None:
    program()
    print("| loop | products | loads, stores | instructions | core | cycles | of the peak |")
    print("|---|---|---|---|---|---|---|")
    for level, many in LEVELS.items():
        for loop in loops(assembly(level))[:many]:
            for core, width in CORES.items():
                if level != "neon" and core != "neoverse-n2":
                    continue
                time = cycles(loop, core)
                print(
                    f"| {level} {loop.function} | {loop.products} | {loop.memory} | {len(loop.lines)} | {core} "
                    f"| {time:.0f} | {loop.products / width / time:.0%} |"
                )


if __name__ == "__main__":
    main()
