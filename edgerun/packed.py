"""The packed file: stub executable, padding, plan, footer. docs/packed-file-format.md is the specification.

stub (ELF) | zeros up to a page boundary | plan | footer (64 bytes)

A file of engine "python" has a bundle where the plan may be, and between that and the footer PyInstaller's archive: its
bootloader looks for the archive from the end of the file.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from edgerun.errors import FileFormatError, InputOutputError
from edgerun.plan.layout import HEADER, fnv1a

MAGIC = b"EDGEPACK"
VERSION = 1
PAGES = {"x86_64": 1 << 12, "aarch64": 1 << 16, "armv7": 1 << 12, "riscv64": 1 << 12}
"""The largest page size that kernels of each architecture use: the plan starts at a multiple of it, to be mapped."""
ARCH_CODES = {"x86_64": 1, "aarch64": 2, "armv7": 3, "riscv64": 4}

_LAYOUT = struct.Struct("<8sIIQQQQQQ")
FOOTER_BYTES = _LAYOUT.size
SIGNATURE_BYTES = 128


@dataclass(frozen=True, slots=True)
class Footer:
    """The last 64 bytes. Offsets and sizes in bytes."""

    arch: str
    plan_offset: int
    plan_bytes: int
    header_checksum: int
    """FNV-1a of the plan's 128-byte header (of a bundle: of its first 128 bytes)."""
    stub_bytes: int
    archive_bytes: int = 0
    """Between the plan and the footer. Engine native: 0, or the SIGNATURE_BYTES of `edgerun_packaging.signing`."""

    def encode(self) -> bytes:
        """The bytes to write."""
        code = ARCH_CODES[self.arch]
        head = _LAYOUT.pack(
            MAGIC, VERSION, code, self.plan_offset, self.plan_bytes, self.header_checksum, self.stub_bytes,
            self.archive_bytes, 0,
        )[:-8]  # fmt: skip
        return head + struct.pack("<Q", fnv1a(head))

    @staticmethod
    def decode(data: bytes, file_bytes: int, origin: str = "file") -> Footer:
        """Read and check a footer of a file of `file_bytes`. Raises FileFormatError."""
        magic, version, code, offset, size, header, stub, archive, checksum = _LAYOUT.unpack(data)
        if magic != MAGIC:
            raise FileFormatError(
                f"{origin} is an executable without a model", hint="pack it again, and do not strip it"
            )
        if checksum != fnv1a(data[:-8]):
            raise FileFormatError(f"the footer of {origin} is damaged (checksum)", hint="copy it again")
        if version != VERSION:
            raise FileFormatError(
                f"{origin} has packed-file version {version}, this reads {VERSION}", hint="pack it again"
            )
        names = {v: k for k, v in ARCH_CODES.items()}
        if code not in names:
            raise FileFormatError(f"{origin} names the unknown architecture {code}", hint="pack it again")
        if (
            offset % PAGES[names[code]]
            or offset < stub
            or size < HEADER.size
            or offset + size + archive + FOOTER_BYTES != file_bytes
        ):
            raise FileFormatError(f"the footer of {origin} does not fit its size", hint="copy it again")
        return Footer(names[code], offset, size, header, stub, archive)


def padding(stub_bytes: int, arch: str) -> int:
    """Zeros between the stub and the plan."""
    return -stub_bytes % PAGES[arch]


def assemble(stub: bytes, plan: bytes, arch: str, archive: bytes = b"") -> list[bytes]:
    """The pieces of a packed file, in order."""
    offset = len(stub) + padding(len(stub), arch)
    footer = Footer(arch, offset, len(plan), fnv1a(plan[: HEADER.size]), len(stub), len(archive))
    return [stub, bytes(offset - len(stub)), plan, archive, footer.encode()]


def read_footer(path: str | os.PathLike[str]) -> Footer:
    """The footer of a packed file. Raises FileFormatError when there is none, InputOutputError."""
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size < FOOTER_BYTES:
                raise FileFormatError(f"{path} is no packed file")
            file.seek(size - FOOTER_BYTES)
            return Footer.decode(file.read(FOOTER_BYTES), size, str(path))
    except OSError as e:
        raise InputOutputError(f"cannot read {path}: {e.strerror}") from e


def map_plan(path: str | os.PathLike[str]) -> memoryview:
    """The plan inside a packed file, or of a plan file, mapped read-only (64-byte aligned).

    Raises FileFormatError or InputOutputError.
    """
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size == 0:
                raise FileFormatError(f"{path} is empty")
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as e:
        raise InputOutputError(f"cannot read {path}: {e.strerror}") from e
    if data[:8] == b"EDGEPLAN":
        return data
    footer = read_footer(path)
    plan = data[footer.plan_offset : footer.plan_offset + footer.plan_bytes]
    if fnv1a(plan[: HEADER.size]) != footer.header_checksum:
        raise FileFormatError(f"the plan's header in {path} is damaged (checksum)", hint="copy it again")
    return plan


def is_packed(path: str | os.PathLike[str]) -> bool:
    """Whether the file ends in a footer (valid or not). A model folder does not."""
    if Path(path).is_dir():
        return False
    with Path(path).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < FOOTER_BYTES:
            return False
        file.seek(size - FOOTER_BYTES)
        return file.read(8) == MAGIC
