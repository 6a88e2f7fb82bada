"""The shared libraries that extension modules need, and what all of them need of the board (the ELF audit)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgerun.errors import FileFormatError
from edgerun_packaging.elf import audit

PLATFORM = {
    "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1",
    "ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2",
}  # fmt: skip
"""glibc: never shipped, its version is what the floor is about."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the contents need of the board."""

    glibc: tuple[int, int]
    """The highest symbol version of any content: the declared floor."""
    glibc_by: str
    """The content that needs it."""
    libraries: tuple[str, ...]
    """Shared libraries that are neither shipped nor part of glibc."""

    @property
    def glibc_text(self) -> str:
        return f"{self.glibc[0]}.{self.glibc[1]}"


def closure(files: Iterable[Path], folders: Sequence[Path], replaced: Mapping[str, Path]) -> dict[str, Path]:
    """Libraries by name that `files` need, directly or not, looked up in `folders`; `replaced` come first.

    What is not found there must be on the board: `requirements` reports it.
    """
    found: dict[str, Path] = {}
    todo = list(files)
    while todo:
        for name in audit(todo.pop().read_bytes()).needed:
            if name in PLATFORM or name in found:
                continue
            path = replaced.get(name) or next((f / name for f in folders if (f / name).exists()), None)
            if path is not None:
                found[name] = path.resolve()
                todo.append(found[name])
    return found


def unresolved(path: Path, folders: Sequence[Path]) -> list[str]:
    """Libraries that an extension module needs and that no folder has: such modules (ssl, lzma) are left out.

    Python code that imports them where they are optional copes; a script of the user's is told at its import.
    """
    needed = [n for n in audit(path.read_bytes()).needed if n not in PLATFORM]
    return [n for n in needed if not any((f / n).exists() for f in folders)]


def requirements(contents: Mapping[str, Path], arch: str) -> Requirements:
    """Audit every content. Raises FileFormatError when one is for another architecture."""
    floor, by, needed = (2, 17), "", set()
    for name, path in contents.items():
        found = audit(path.read_bytes(), name)
        if found.machine != arch:
            raise FileFormatError(f"{name} is for {found.machine}, not for {arch}", hint="clear the cache of downloads")
        needed |= set(found.needed)
        major, _, minor = found.versions.get("GLIBC", "GLIBC_2.17").removeprefix("GLIBC_").partition(".")
        version = (int(major), int(minor.partition(".")[0]))
        if version > floor:
            floor, by = version, name
    shipped = {Path(name).name for name in contents}
    return Requirements(floor, by, tuple(sorted(needed - shipped - PLATFORM)))


_SHT_DYNSYM = 11


def undefined_symbols(path: Path) -> set[str]:
    """Names that a 64-bit ELF file expects from its libraries."""
    data = path.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    names = set()
    for section in sections:
        if section[1] != _SHT_DYNSYM:
            continue
        strings = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, index = struct.unpack_from("<IBBH", data, at)
            if index == 0 and name:
                names.add(data[strings + name : data.index(0, strings + name)].decode())
    return names
