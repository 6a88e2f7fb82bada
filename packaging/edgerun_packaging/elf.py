"""A small ELF reader: what an executable needs from the machine it runs on, and how large its parts are.

Reads ELF32 and ELF64, little-endian (System V gABI, chapters 4 and 5). Sizes in bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from edgerun.errors import FileFormatError

_MACHINES = {3: "i386", 40: "armv7", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _PT_GNU_STACK = 1, 2, 3, 0x6474E551
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ = 1, 5, 10


@dataclass(frozen=True, slots=True)
class Segment:
    """A loaded piece of the file. `flags`: 4 read, 2 write, 1 execute."""

    kind: int
    flags: int
    offset: int
    address: int
    file_bytes: int
    memory_bytes: int


@dataclass(slots=True)
class Audit:
    """What the file is and needs."""

    machine: str
    bits: int
    static: bool
    interpreter: str | None
    needed: list[str]
    versions: dict[str, str] = field(default_factory=dict)
    """Highest required symbol version of each family, such as {"GLIBC": "GLIBC_2.34"}."""
    executable_stack: bool = False
    text_bytes: int = 0
    rodata_bytes: int = 0
    data_bytes: int = 0
    bss_bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The fields for reports."""
        return {name: getattr(self, name) for name in self.__slots__}


def audit(data: bytes, origin: str = "file") -> Audit:
    """Examine an executable or library. Raises FileFormatError for anything that is not a sound ELF file."""
    try:
        return _audit(data, origin)
    except (struct.error, IndexError, ValueError, OverflowError) as e:
        raise FileFormatError(f"{origin} is a broken ELF file: {e}") from e


def _audit(data: bytes, origin: str) -> Audit:
    if data[:4] != b"\x7fELF" or data[4] not in (1, 2) or data[5] != 1:
        raise FileFormatError(f"{origin} is not a little-endian ELF file")
    wide = data[4] == 2
    (machine,) = struct.unpack_from("<H", data, 18)
    segments = list(_segments(data, wide))
    result = Audit(_MACHINES.get(machine, str(machine)), 64 if wide else 32, True, None, [])
    for s in segments:
        if s.kind == _PT_INTERP:
            result.interpreter = data[s.offset : s.offset + s.file_bytes].rstrip(b"\0").decode()
        elif s.kind == _PT_GNU_STACK:
            result.executable_stack = bool(s.flags & 1)
        elif s.kind == _PT_DYNAMIC:
            result.needed = _needed(data, s, segments, wide)
        elif s.kind == _PT_LOAD:
            if s.flags & 1:
                result.text_bytes += s.file_bytes
            elif s.flags & 2:
                result.data_bytes += s.file_bytes
                result.bss_bytes += s.memory_bytes - s.file_bytes
            else:
                result.rodata_bytes += s.file_bytes
    result.static = result.interpreter is None and not result.needed
    if not result.static:
        result.versions = _versions(data)
    return result


def _segments(data: bytes, wide: bool) -> Iterable[Segment]:
    start = struct.unpack_from("<Q" if wide else "<I", data, 32 if wide else 28)[0]
    entry, count = struct.unpack_from("<HH", data, 54 if wide else 42)
    for i in range(count):
        at = start + i * entry
        if wide:
            kind, flags, offset, address, _, file_bytes, memory = struct.unpack_from("<IIQQQQQ", data, at)
        else:
            kind, offset, address, _, file_bytes, memory, flags = struct.unpack_from("<IIIIIII", data, at)
        if offset + file_bytes > len(data):
            raise FileFormatError("a segment lies outside the ELF file")
        yield Segment(kind, flags, offset, address, file_bytes, memory)


def _needed(data: bytes, dynamic: Segment, segments: list[Segment], wide: bool) -> list[str]:
    form, size = ("<qQ", 16) if wide else ("<iI", 8)
    entries = [struct.unpack_from(form, data, dynamic.offset + i) for i in range(0, dynamic.file_bytes, size)]
    table = dict(entries)
    address = table.get(_DT_STRTAB, 0)
    base = next(
        (
            s.offset + address - s.address
            for s in segments
            if s.kind == _PT_LOAD and s.address <= address < s.address + s.file_bytes
        ),
        None,
    )
    if base is None:
        return []
    strings = data[base : base + table.get(_DT_STRSZ, 0)]
    return [strings[v : strings.index(0, v)].decode() for tag, v in entries if tag == _DT_NEEDED]


def _versions(data: bytes) -> dict[str, str]:
    """Highest version names that appear in the file's string tables."""
    best: dict[str, tuple[int, ...]] = {}
    for family, digits in re.findall(rb"\0(GLIBC|GLIBCXX|GCC)_(\d+(?:\.\d+)+)(?=\0)", data):
        number = tuple(int(d) for d in digits.split(b"."))
        best[family.decode()] = max(best.get(family.decode(), (0,)), number)
    return {family: f"{family}_{'.'.join(map(str, number))}" for family, number in best.items()}
