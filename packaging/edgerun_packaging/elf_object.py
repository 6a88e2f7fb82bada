"""A relocatable ELF file that holds data alone: how a plan is linked into a user's program without a compiler.

System V gABI, chapter 4. The file has a read-only section with the data and two global symbols: the data, and its size
as a 64-bit number behind it.
"""

from __future__ import annotations

import struct

from edgerun.errors import UsageError

# architecture -> ELF class (1: 32 bit), machine, flags. Arm: EABI version 5. RISC-V: compressed, double floats.
_MACHINES = {"x86_64": (2, 62, 0), "aarch64": (2, 183, 0), "armv7": (1, 40, 0x05000000), "riscv64": (2, 243, 0x5)}
_ALIGNMENT = 64
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOC = 2


def data_object(arch: str, data: bytes | memoryview, symbol: str) -> list[bytes | memoryview]:
    """The pieces of an object file with `symbol` (the data, 64-byte aligned) and `symbol`_bytes (uint64_t).

    Raises UsageError for an architecture without ELF.
    """
    if arch not in _MACHINES:
        raise UsageError(f"there are no object files for {arch}")
    bits, machine, flags = _MACHINES[arch]
    wide = bits == 2
    size_at = len(data) + -len(data) % 8
    names = b"\0" + symbol.encode() + b"\0" + f"{symbol}_bytes".encode() + b"\0"
    section_names = b"\0.rodata\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack\0"
    symbols = _symbol(wide, 0, 0, 0, 0, 0)
    symbols += _symbol(wide, 1, 0, len(data), 1, 1)
    symbols += _symbol(wide, 2 + len(symbol), size_at, 8, 1, 1)

    head = 64 if wide else 52
    content_at = head + -head % _ALIGNMENT
    content_bytes = size_at + 8
    symbols_at = content_at + content_bytes
    names_at = symbols_at + len(symbols)
    section_names_at = names_at + len(names)
    table_at = section_names_at + len(section_names)
    table_at += -table_at % 8

    rows = [
        _section(wide, 0, 0, 0, 0, 0),
        _section(wide, 1, _PROGBITS, content_at, content_bytes, _ALIGNMENT, flags=_ALLOC),
        _section(wide, 9, _SYMTAB, symbols_at, len(symbols), 8, link=3, info=1, entry=24 if wide else 16),
        _section(wide, 17, _STRTAB, names_at, len(names), 1),
        _section(wide, 25, _STRTAB, section_names_at, len(section_names), 1),
        _section(wide, 35, _PROGBITS, section_names_at, 0, 1),  # no executable stack
    ]
    ident = b"\x7fELF" + bytes([bits, 1, 1]) + bytes(9)
    form = "<16sHHIQQQIHHHHHH" if wide else "<16sHHIIIIIHHHHHH"
    entry = 64 if wide else 40
    header = struct.pack(form, ident, 1, machine, 1, 0, 0, table_at, flags, head, 0, 0, entry, len(rows), 4)
    before = header + bytes(content_at - head)
    after = bytes(size_at - len(data)) + struct.pack("<Q", len(data)) + symbols + names + section_names
    gap = bytes(table_at - section_names_at - len(section_names))
    return [before, data, after, gap + b"".join(rows)]


def _symbol(wide: bool, name: int, value: int, size: int, section: int, kind: int) -> bytes:
    """A symbol table entry; kind 1: a global object, 0: the empty first entry."""
    info = 0x10 | kind if kind else 0
    if wide:
        return struct.pack("<IBBHQQ", name, info, 0, section, value, size)
    return struct.pack("<IIIBBH", name, value, size, info, 0, section)


def _section(
    wide: bool, name: int, kind: int, at: int, size: int, align: int, *, flags: int = 0, link: int = 0, info: int = 0,
    entry: int = 0,
) -> bytes:  # fmt: skip
    form = "<IIQQQQIIQQ" if wide else "<IIIIIIIIII"
    return struct.pack(form, name, kind, flags, 0, at, size, link, info, align, entry)
