"""Builds of the runtime for tests: under sanitizers, with guard pages, by gcc.

`python -m tests.native.sanitize fuzz SECONDS [PLAN...]` fuzzes for longer than the test does; `pool` runs the thread
pool's stress test under the thread sanitizer.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgerun.backends.native.binding import host_arch
from edgerun.backends.native.table import CSRC
from edgerun.dims import minimum, symbol
from edgerun.dtypes import DType
from edgerun.plan import Plan, PlanNode, PlanTensor, Space, SymbolBounds, SymbolPlace, Weight, write
from edgerun_packaging import zig

SOURCES = Path(__file__).parent / "csrc"
_TRAPS = ("-fsanitize=undefined", "-fsanitize-trap=undefined", "-fno-sanitize=alignment")


def thread_sanitized_pool(out: Path) -> None:
    """The pool's stress test under the thread sanitizer of gcc, or of zig (which first compiles it: a minute)."""
    arguments = ["-std=gnu11", "-O1", "-g", "-fsanitize=thread", "-D__SANITIZE_THREAD__"]
    sources = [*_paths("pool_stress.c"), str(CSRC / "pool.c"), str(CSRC / "topology.c")]
    compiler = ["gcc"] if shutil.which("gcc") else [sys.executable, "-m", "ziglang", "cc"]
    subprocess.run([*compiler, *arguments, f"-I{CSRC}", *sources, "-lpthread", "-o", str(out)], check=True)


def plain_pool(out: Path) -> None:
    """The pool's stress test as it ships."""
    target = zig.host_target()
    arguments = ["-target", target.triple, *zig.FLAGS, "-D_GNU_SOURCE", f"-I{CSRC}"]
    _zig([*arguments, *_paths("pool_stress.c"), str(CSRC / "pool.c"), str(CSRC / "topology.c"), "-lpthread"], out)


def fuzzer(out: Path) -> None:
    """The plan fuzzer with all kernels: undefined behaviour traps, and plans and arenas end at guard pages."""
    target = replace(zig.host_target(), only_baseline=True)
    flags = ("-DER_ONLY_BASELINE", "-DER_GUARD_PAGES", "-D_GNU_SOURCE", *_TRAPS, "-O1", "-g")
    made = zig.objects(target, _sources("fuzz_plan.c"), flags)
    zig.link(target, made, out, ["-O1", "-lm", "-lpthread"])


def shipped_fuzzer(out: Path) -> None:
    """The plan fuzzer with the kernels of every level as they ship, on this CPU's best; guard pages only."""
    target = zig.host_target()
    made = zig.objects(target, _sources("fuzz_plan.c"), ("-DER_GUARD_PAGES", "-D_GNU_SOURCE"))
    zig.link(target, made, out, ["-O3", "-lm", "-lpthread"])


def gcc_fuzzer(out: Path) -> None:
    """The plan fuzzer with one kernel under gcc's address and undefined behaviour sanitizers."""
    _sanitized([*zig.runtime_sources(), *_sources("fuzz_plan.c")], out)


def gcc_launcher(out: Path) -> None:
    """The launcher with one kernel under the same sanitizers: a stub, but for being dynamic."""
    _sanitized([*zig.runtime_sources(), *sorted(zig.LAUNCHER.glob("*.c"))], out)


def _sanitized(sources: Sequence[Path], out: Path) -> None:
    baseline = next(iter(zig.levels()[host_arch()]))
    flags = [
        "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE=", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
        "-DER_ONLY_BASELINE", "-DER_BASELINE_CHECKS", f"-DER_ISA={baseline.symbol}", f'-DER_ISA_NAME="{baseline.name}"',
        '-DER_KERNEL_SOURCES="copy_kernels.c"', '-DER_KERNEL_TABLE="copy_kernels.def"', f"-I{CSRC}", f"-I{SOURCES}",
    ]  # fmt: skip
    files = [*sources, CSRC / "isa.c"]
    subprocess.run(["gcc", *flags, *map(str, files), "-o", str(out), "-lpthread", "-lm"], check=True)


def copy_plans(folder: Path) -> list[Path]:
    """Plans that use every part of the format, with the kernel copy_bytes and those of control flow."""
    n = symbol("N")
    arch = host_arch()
    f32 = DType.F32
    fixed = Plan(
        arch,
        tensors=[
            PlanTensor("x", f32, (2, 3), Space.ARENA, 0, 24),
            PlanTensor("y", DType.U8, (24,), Space.ARENA, 64, 24),
            PlanTensor("view", DType.I16, (12,), Space.ARENA, 64, 24, view=True),
            PlanTensor("z", f32, (6,), Space.ARENA, 0, 24),
            PlanTensor("w", f32, (4,), Space.WEIGHTS, 64, 16),
            PlanTensor("c", f32, (2, 2), Space.ARENA, 128, 16),
        ],
        nodes=[
            PlanNode("copy_bytes", (0,), (1,), (1, 2.5), "first"),
            PlanNode("copy_bytes", (2,), (3,), (), "second", 192, 128, 3),
            PlanNode("copy_bytes", (4,), (5,), (), "third"),
        ],
        inputs=[(0, "x")],
        outputs=[(3, "z"), (5, "c")],
        weights=[Weight(0, np.zeros(3, np.float32)), Weight(64, np.ones(4, np.float32))],
        arena_bytes=320,
        thread_scratch_bytes=128,
        manifest={"a": [1, 2]},
    )
    free = Plan(
        arch,
        symbols=[SymbolBounds("N", 0, 9), SymbolBounds("M", 1, 9)],
        tensors=[
            PlanTensor("x", f32, (n, symbol("M"), 3), Space.ARENA, 0, 4 * 243),
            PlanTensor("y", f32, (3 * n, symbol("M")), Space.ARENA, 1024, 4 * 243),
            PlanTensor("z", f32, (symbol("M") * n * 3 // 1,), Space.ARENA, 2048, 4 * 243),
        ],
        nodes=[
            PlanNode("copy_bytes", (0,), (1,), (n, (n + 5) // 2, n % 4), "a"),
            PlanNode("copy_bytes", (1,), (2,), (), "b"),
        ],
        inputs=[(0, "x")],
        outputs=[(2, "z"), (0, "same")],
        arena_bytes=4096,
    )
    branches = Plan(
        arch,
        tensors=[
            PlanTensor("flag", DType.BOOL, (1,), Space.ARENA, 0, 1),
            PlanTensor("bad", DType.BOOL, (), Space.ARENA, 64, 1),
            PlanTensor("x", f32, (2, 3), Space.ARENA, 128, 24),
            PlanTensor("a", f32, (6,), Space.ARENA, 192, 24),
            PlanTensor("b", f32, (6,), Space.ARENA, 256, 24),
            PlanTensor("y", f32, (6,), Space.ARENA, 192, 24),
        ],
        nodes=[
            PlanNode("skip_unless", (1,), (), (1, 1), "guard"),
            PlanNode("fail", (), (), ("nothing fits",), "stop"),
            PlanNode("skip_unless", (0,), (), (1, 1), "then"),
            PlanNode("copy_bytes", (2,), (3,), (), "first"),
            PlanNode("skip_unless", (0,), (), (0, 1), "else"),
            PlanNode("copy_bytes", (2,), (4,), (), "second"),
            PlanNode("select", (0, 3, 4), (5,), (), "either"),
        ],
        inputs=[(0, "flag"), (1, "bad"), (2, "x")],
        outputs=[(5, "y")],
        arena_bytes=320,
    )
    kept, rows = symbol("kept"), symbol("rows")
    sized = Plan(
        arch,
        symbols=[SymbolBounds("N", 0, 9), SymbolBounds("kept", 0, 6), SymbolBounds("rows", 0, 3)],
        tensors=[
            PlanTensor("x", f32, (n, 6), Space.ARENA, 0, 216),
            PlanTensor("sizes", DType.I64, (2,), Space.ARENA, 256, 16),
            PlanTensor("flag", DType.BOOL, (), Space.ARENA, 320, 1),
            PlanTensor("a", f32, (rows, kept), Space.ARENA, 384, 72),
            PlanTensor("b", f32, (rows * kept,), Space.ARENA, 512, 72),
            PlanTensor("head", f32, (rows, kept), Space.ARENA, 0, 72, view=True),
        ],
        nodes=[
            PlanNode("bind_sizes", (1,), (), (1, 2, SymbolPlace("kept"), SymbolPlace("rows")), "sizes"),
            PlanNode("expect", (), (), (minimum(rows, n), rows), "fits"),
            PlanNode("skip_unless", (2,), (), (1, 1), "guard"),
            PlanNode("copy_bytes", (5,), (3,), (), "head"),
            PlanNode("copy_bytes", (3,), (4,), (), "flat"),
        ],
        inputs=[(0, "x"), (1, "sizes"), (2, "flag")],
        outputs=[(4, "b")],
        arena_bytes=640,
    )
    paths = []
    for name, plan in (("fixed", fixed), ("free", free), ("branches", branches), ("sized", sized)):
        path = folder / f"{name}.plan"
        path.write_bytes(write(plan))
        paths.append(path)
    return paths


def _sources(*names: str) -> list[Path]:
    return [SOURCES / n for n in names]


def _paths(*names: str) -> list[str]:
    return [str(p) for p in _sources(*names)]


def _zig(arguments: Sequence[str], out: Path) -> None:
    subprocess.run([sys.executable, "-m", "ziglang", "cc", *arguments, "-o", str(out)], check=True)


def main(arguments: Sequence[str]) -> int:
    """See the module's description."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments[0] == "pool":
            thread_sanitized_pool(folder / "pool")
            return subprocess.run([str(folder / "pool"), "4", "100000"]).returncode
        seconds, plans = arguments[1], list(arguments[2:]) or [str(p) for p in copy_plans(folder)]
        for build in (fuzzer, shipped_fuzzer):
            build(folder / "fuzz")
            status = subprocess.run([str(folder / "fuzz"), "1", seconds, *plans]).returncode
            if status:
                return status
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
