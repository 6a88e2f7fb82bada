"""Put a plan into a WebAssembly module: a data segment above the initial memory, its place written into a slot.

WebAssembly Core Specification 2.0, chapter 5 (binary format). The module is the prebuilt library, whose
`library/own_memory.c` holds the slot. Only the memory, data-count and data sections change.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from edgerun.errors import FileFormatError

SLOT = b"edgerun: plan at"
PAGE = 65536
MOST_PAGES = 65536
_MEMORY, _DATA, _DATA_COUNT = 5, 11, 12
_I32_CONST, _END = b"\x41", b"\x0b"


def with_plan(module: bytes, plan: bytes | memoryview) -> bytes:
    """The module with the plan in its memory, 64-byte aligned.

    Raises FileFormatError when the module is not the prebuilt library, or when the plan does not fit into 4 GiB.
    """
    sections = list(_sections(module))
    pages = next((_pages(body) for kind, body in sections if kind == _MEMORY), None)
    if pages is None or module.count(SLOT) != 1:
        raise FileFormatError("the WebAssembly library is not one that plans are put into", hint="make stubs")
    address = pages[0] * PAGE
    total = pages[0] + -(-len(plan) // PAGE)
    if total > min(pages[1] or MOST_PAGES, MOST_PAGES):
        raise FileFormatError(f"the plan of {len(plan)} bytes does not fit into the memory of a WebAssembly module")
    out = [module[:8]]
    for kind, body in sections:
        if kind == _MEMORY:
            body = _with_pages(body, total)
        elif kind == _DATA_COUNT:
            body = _unsigned(_read(body, 0)[0] + 1)
        elif kind == _DATA:
            count, at = _read(body, 0)
            segments = body[at:].replace(SLOT + bytes(8), SLOT + struct.pack("<II", address, len(plan)))
            head = b"\0" + _I32_CONST + _signed(address) + _END + _unsigned(len(plan))
            body = b"".join([_unsigned(count + 1), segments, head, plan])
        out += [bytes([kind]), _unsigned(len(body)), body]
    return b"".join(out)


def memory_bytes(module: bytes) -> int:
    """The memory that a module has from the start, in bytes. Raises FileFormatError."""
    for kind, body in _sections(module):
        if kind == _MEMORY:
            return _pages(body)[0] * PAGE
    raise FileFormatError("the WebAssembly module has no memory")


def _sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    if module[:8] != b"\0asm\1\0\0\0":
        raise FileFormatError("this is not a WebAssembly module of version 1")
    at = 8
    while at < len(module):
        kind = module[at]
        size, at = _read(module, at + 1)
        if at + size > len(module):
            raise FileFormatError("a section lies outside the WebAssembly module")
        yield kind, module[at : at + size]
        at += size


def _pages(memory: bytes) -> tuple[int, int | None]:
    """Least and most pages of the only memory."""
    count, at = _read(memory, 0)
    flags, at = _read(memory, at)
    if count != 1 or flags > 1:
        raise FileFormatError("the WebAssembly module has no plain memory of its own")
    least, at = _read(memory, at)
    return least, _read(memory, at)[0] if flags else None


def _with_pages(memory: bytes, pages: int) -> bytes:
    most = _pages(memory)[1]
    return b"\1" + (b"\0" + _unsigned(pages) if most is None else b"\1" + _unsigned(pages) + _unsigned(most))


def _read(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number of at most 32 bits and the position behind it."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            break
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise FileFormatError("a number in the WebAssembly module is broken")


def _unsigned(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _signed(value: int) -> bytes:
    """Signed LEB128 of a 32-bit address (those above 2 GiB are negative)."""
    value -= (value >> 31) << 32
    out = bytearray()
    while not -64 <= value < 64:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value & 127])
