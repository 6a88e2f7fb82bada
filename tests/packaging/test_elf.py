"""The ELF reader, on this machine's files and on broken ones."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from edgerun.errors import FileFormatError
from edgerun_packaging.elf import audit

PYTHON = Path(sys.executable).resolve().read_bytes()


def test_a_dynamic_executable_names_its_needs() -> None:
    found = audit(PYTHON)
    assert not found.static
    assert found.interpreter is not None and found.interpreter.startswith("/")
    assert any(name.startswith("libc.so") for name in found.needed)
    assert found.versions["GLIBC"].startswith("GLIBC_2.")
    assert found.text_bytes > 0 and found.bits == 64


def test_not_elf() -> None:
    for data in (b"", b"MZ" * 100, b"\x7fELF"):
        with pytest.raises(FileFormatError):
            audit(data)


def test_mutations_give_errors_or_results_only() -> None:
    generator = random.Random(1)
    head = PYTHON[:4096]
    for _ in range(300):
        data = bytearray(head)
        for _ in range(generator.randrange(1, 8)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        try:
            audit(bytes(data[: generator.randrange(64, 4097)]))
        except FileFormatError:
            continue
