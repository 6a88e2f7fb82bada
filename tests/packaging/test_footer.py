"""The packed-file footer: encode, decode, refuse."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from edgerun.errors import FileFormatError, InputOutputError
from edgerun.packed import FOOTER_BYTES, PAGES, Footer, assemble, is_packed, map_plan, read_footer
from edgerun.plan.layout import fnv1a

PAGE = PAGES["aarch64"]
PLAN = b"EDGEPLAN" + bytes(120) + b"tables and weights"


def _write(path: Path, stub: bytes = b"\x7fELF" + bytes(1000)) -> bytes:
    data = b"".join(assemble(stub, PLAN, "aarch64"))
    path.write_bytes(data)
    return data


def test_fnv1a_of_known_texts() -> None:
    """Values from the FNV reference test suite."""
    assert fnv1a(b"") == 0xCBF29CE484222325
    assert fnv1a(b"a") == 0xAF63DC4C8601EC8C
    assert fnv1a(b"foobar") == 0x85944171F73967E8


def test_layout(tmp_path: Path) -> None:
    path = tmp_path / "packed"
    data = _write(path)
    footer = read_footer(path)
    assert footer == Footer("aarch64", PAGE, len(PLAN), fnv1a(PLAN[:128]), 1004)
    assert len(data) == PAGE + len(PLAN) + FOOTER_BYTES
    assert bytes(map_plan(path)) == PLAN
    assert is_packed(path)


def test_a_plan_file_maps_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "model.plan"
    path.write_bytes(PLAN)
    assert bytes(map_plan(path)) == PLAN
    assert not is_packed(path)


@pytest.mark.parametrize("position", range(64))
def test_every_changed_footer_byte_is_noticed(tmp_path: Path, position: int) -> None:
    path = tmp_path / "packed"
    data = bytearray(_write(path))
    data[len(data) - 64 + position] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(FileFormatError):
        map_plan(path)


def test_a_changed_plan_header_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "packed"
    data = bytearray(_write(path))
    data[PAGE + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match="header"):
        map_plan(path)


@pytest.mark.parametrize("keep", [0, 1, 63, 64, 1000, PAGE, PAGE + 50])
def test_truncation_is_noticed(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "packed"
    path.write_bytes(_write(path)[:keep])
    with pytest.raises(FileFormatError):
        map_plan(path)


def test_hostile_offsets_with_a_right_checksum(tmp_path: Path) -> None:
    path = tmp_path / "packed"
    data = _write(path)
    for field, value in ((16, 2**63), (16, 1), (24, 2**64 - 1), (40, 2**40), (12, 77)):
        footer = bytearray(data[-64:])
        struct.pack_into("<I" if field == 12 else "<Q", footer, field, value)
        footer[56:] = struct.pack("<Q", fnv1a(bytes(footer[:56])))
        path.write_bytes(data[:-64] + footer)
        with pytest.raises(FileFormatError):
            map_plan(path)


def test_missing_file() -> None:
    with pytest.raises(InputOutputError):
        read_footer("/nowhere/model")
