"""Adding a manifest and golden vectors to a finished plan: what they hold depends on the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgerun.plan import PlanReader
from edgerun.plan.layout import ALIGNMENT, GOLDEN, HEADER, SECTION, Section, aligned, fnv1a

_TOTAL, _SECTIONS, _CHECKSUM = 3, 7, 8
"""Positions of these fields in the header."""


@dataclass(frozen=True, slots=True)
class Vector:
    """A golden vector before it has a place. `io`: number among inputs, then outputs; GOLDEN_LAYER | node otherwise."""

    set: int
    io: int
    data: bytes
    atol: float
    rtol: float


def with_extras(plan: bytes | memoryview, manifest: bytes, golden: Sequence[Vector]) -> bytes:
    """The plan with its MANIFEST and GOLDEN sections replaced by these, and the checksum renewed; WEIGHTS stay last.

    Raises PlanError when `plan` is not sound.
    """
    reader = PlanReader(plan)
    sections = {
        kind: (count, bytes(reader.data[offset : offset + size]))
        for kind, (count, offset, size) in reader.sections.items()
        if kind not in (Section.MANIFEST, Section.GOLDEN, Section.WEIGHTS)
    }
    sections[Section.MANIFEST] = (1, manifest)
    if golden:
        sections[Section.GOLDEN] = (len(golden), b"")  # its bytes need their own offset: filled in below
    if Section.WEIGHTS in reader.sections:
        sections[Section.WEIGHTS] = (reader.sections[Section.WEIGHTS][0], bytes(reader.weights))
    start = aligned(HEADER.size + len(sections) * SECTION.size)
    table, body, covered = b"", bytearray(), 0
    for kind, (count, data) in sections.items():
        offset = start + len(body)
        if kind == Section.GOLDEN:
            data = _encode(golden, offset)
        table += SECTION.pack(kind, count, offset, len(data))
        body += data
        if kind != Section.WEIGHTS:
            body += bytes(-len(body) % ALIGNMENT)
            covered = len(body)
    table += bytes(start - HEADER.size - len(table))
    header = list(HEADER.unpack(reader.data[: HEADER.size]))
    header[_TOTAL], header[_SECTIONS] = start + len(body), len(sections)
    header[_CHECKSUM] = fnv1a(table + bytes(body[:covered]))
    return HEADER.pack(*header) + table + bytes(body)


def _encode(golden: Sequence[Vector], offset: int) -> bytes:
    """Records, then their data, each 64-byte aligned in the file (`offset`, the section's own, is)."""
    records, data = b"", bytearray()
    start = aligned(len(golden) * GOLDEN.size)
    for v in golden:
        records += GOLDEN.pack(v.set, v.io, offset + start + len(data), len(v.data), v.atol, v.rtol)
        data += v.data + bytes(-len(v.data) % ALIGNMENT)
    return records + bytes(start - len(records)) + bytes(data)
