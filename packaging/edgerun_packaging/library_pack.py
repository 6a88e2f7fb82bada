"""A model as a C library: a folder with a shared library, a static library, and the header of both.

libmodel.so        runtime and model in one file (glibc 2.17 or newer); the model is mapped from the file itself
libedgerun.a       the runtime, for static linking
model.o            the model, for static linking
edgerun_model.h    ten functions
example.c          a program that runs the model once on zeros, with the commands that build it
"""

from __future__ import annotations

import shutil
from pathlib import Path

from edgerun.errors import InputOutputError
from edgerun.files import atomic_write
from edgerun.graph import Graph
from edgerun.packed import map_plan
from edgerun_packaging import stubs
from edgerun_packaging.budgets import Budgets
from edgerun_packaging.elf_object import data_object
from edgerun_packaging.pack import Options, Packed, pack
from edgerun_targets import Target

SOURCES = Path(__file__).parent / "library"
SYMBOL = "edgerun_plan"


def make_folder(folder: Path, names: set[str], force: bool) -> None:
    """Make the folder of a product, or accept one that holds files of these names alone.

    Raises InputOutputError when it holds others, or any and `force` is false.
    """
    present = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
    if present - names or (folder.exists() and not folder.is_dir()):
        raise InputOutputError(f"{folder} holds other files", hint="give the name of a new folder with -o")
    if present and not force:
        raise InputOutputError(f"{folder} exists already", hint="use --force to replace it, or -o for another name")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InputOutputError(f"cannot make the folder {folder}: {e.strerror}") from e


def pack_library(
    graph: Graph,
    target: Target,
    folder: Path,
    *,
    source: Path | None = None,
    budgets: Budgets | None = None,
    options: Options | None = None,
    force: bool = False,
) -> Packed:
    """Write the library folder for `target`. The description is that of the shared library.

    Raises what `pack` raises, and InputOutputError when the folder holds other files.
    """
    archive = stubs.find(target.arch, "static")
    make_folder(folder, {"libmodel.so", "libedgerun.a", "model.o", "edgerun_model.h", "example.c"}, force)
    shared = folder / "libmodel.so"
    result = pack(
        graph, target, shared, source=source, budgets=budgets, options=options, force=force, kind="shared"
    )  # fmt: skip
    with atomic_write(folder / "model.o", force=True) as file:
        for piece in data_object(target.arch, map_plan(shared), SYMBOL):
            file.write(piece)
    for origin, name in ((archive, "libedgerun.a"), (SOURCES / "edgerun_model.h", "edgerun_model.h")):
        shutil.copyfile(origin, folder / name)
    shutil.copyfile(SOURCES / "example" / "example.c", folder / "example.c")
    return result
