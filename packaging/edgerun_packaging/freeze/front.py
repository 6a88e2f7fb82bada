"""The start of the file: front.c for the target, PyInstaller's bootloader, and the record that front.c reads."""

from __future__ import annotations

import struct
from pathlib import Path

from edgerun_packaging.zig import build_plain_executable

SOURCE = Path(__file__).with_name("front.c")
RECORD = struct.Struct("<8sQQII")
MAGIC = b"EDGEFRNT"
SEPARATE_ARCHIVE = b"MEI\x0d\x0b\x0a\x0b\x0e"
"""Behind a bootloader this allows an archive in another file, NAME.pkg (PyInstaller's EXE(append_pkg=False))."""


def build(arch: str, bootloader: bytes, unpacked_bytes: int, glibc: tuple[int, int], work: Path) -> bytes:
    """The stub of a file of engine python; `glibc` is the floor that it checks. `work`: a folder for the compiler.

    Raises BackendUnavailable without a compiler.
    """
    out = work / "front"
    build_plain_executable(arch, [SOURCE], out)
    bootloader += SEPARATE_ARCHIVE
    record = RECORD.pack(MAGIC, len(bootloader), unpacked_bytes, *glibc)
    return out.read_bytes() + bootloader + record
