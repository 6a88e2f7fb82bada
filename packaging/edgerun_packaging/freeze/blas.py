"""A small stand-in for the BLAS library inside NumPy's wheel, built for the target: blas.c, and stubs of the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from edgerun_packaging.freeze.libraries import undefined_symbols
from edgerun_packaging.zig import build_plain_library

SOURCE = Path(__file__).with_name("blas.c")
PREFIX = "scipy_"


def library_name(needed: Iterable[str]) -> str | None:
    """The BLAS among the names of needed libraries, or None."""
    return next((n for n in needed if "openblas" in n), None)


def build(arch: str, extensions: Iterable[Path], name: str, work: Path) -> Path:
    """The stand-in called `name` for NumPy's `extensions`, in the folder `work`.

    Every function of the BLAS that they expect is in it; those that blas.c lacks end the program with a message.
    """
    wanted = {s for p in extensions for s in undefined_symbols(p) if s.startswith(PREFIX)}
    present = set()
    for pattern in re.findall(r"scipy_cblas_##p##\w+_(?=\()", SOURCE.read_text()):
        present |= {pattern.replace("##p##", p) for p in "sd"}
    source = work / "blas_with_stubs.c"
    lines = [SOURCE.read_text(), "#include <stdio.h>", "#include <stdlib.h>"]
    for symbol in sorted(wanted - present):
        text = f"edgerun: NumPy's {symbol} is not in this file; pack it with --backend numpy"
        lines.append(f'void {symbol}(void) {{ fputs("{text}\\n", stderr); exit(70); }}')
    source.write_text("\n".join(lines) + "\n")
    out = work / name
    build_plain_library(arch, source, out, name)
    return out
