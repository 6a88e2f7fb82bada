"""Adding golden vectors and a manifest to a plan."""

from __future__ import annotations

import numpy as np
import pytest

from edgerun.errors import PlanError
from edgerun.plan import PlanReader
from edgerun.plan.layout import GOLDEN, HEADER, IO, SECTION, TENSOR, Section, aligned, fnv1a
from edgerun_packaging.extras import Vector, with_extras
from edgerun_packaging.golden import tolerance

WORDS = b"12345678" * 3


def _plan(weights: bytes = b"w" * 64) -> bytes:
    """A plan of WORDS, STRINGS and WEIGHTS, with two empty tensors as input and output."""
    bodies = {Section.WORDS: (6, WORDS), Section.STRINGS: (1, b"\0x\0")}
    bodies[Section.TENSORS] = (1, TENSOR.pack(1, 0, 1, 0, 1, 0, 0, 0, 4))
    bodies[Section.IO] = (2, IO.pack(0, 1) + IO.pack(0, 1))
    start = aligned(HEADER.size + (len(bodies) + 1) * SECTION.size)
    table, body = b"", b""
    for kind, (count, data) in bodies.items():
        table += SECTION.pack(kind, count, start + len(body), len(data))
        body += data + bytes(-len(data) % 64)
    table += SECTION.pack(Section.WEIGHTS, 1, start + len(body), len(weights))
    head = table + bytes(start - HEADER.size - len(table))
    total = start + len(body) + len(weights)
    header = HEADER.pack(b"EDGEPLAN", 1, 1, total, 1024, 64, 0, len(bodies) + 1, fnv1a(head + body), 7, 1, 1)
    return header + head + body + weights


def _section(plan: bytes, kind: Section) -> tuple[int, bytes]:
    count, offset, size = PlanReader(plan).sections[kind]
    return count, plan[offset : offset + size]


def test_sections_are_kept_and_weights_stay_last() -> None:
    vectors = [Vector(0, 0, b"abc", 0.0, 0.0), Vector(0, 1, bytes(100), 1e-3, 1e-2)]
    plan = with_extras(_plan(), b"{}", vectors)
    again = PlanReader(plan)
    assert _section(plan, Section.WORDS) == (6, WORDS)
    assert _section(plan, Section.MANIFEST) == (1, b"{}")
    assert plan.endswith(b"w" * 64) and bytes(again.weights) == b"w" * 64
    assert (again.arena_bytes, again.thread_scratch_bytes) == (1024, 64)


def test_checksum_covers_all_but_header_and_weights() -> None:
    plan = with_extras(_plan(), b'{"a":1}', [Vector(0, 0, b"abcd", 0.0, 0.0)])
    assert HEADER.unpack(plan[:128])[8] == fnv1a(plan[128:-64])
    assert HEADER.unpack(plan[:128])[9] == 7


def test_golden_offsets_point_at_their_data() -> None:
    vectors = [Vector(0, 0, b"abc", 0.0, 0.0), Vector(1, 1, b"x" * 70, 1e-3, 1e-2)]
    plan = with_extras(_plan(), b"{}", vectors)
    count, data = _section(plan, Section.GOLDEN)
    assert count == 2
    for index, v in enumerate(vectors):
        number, io, offset, size, atol, rtol = GOLDEN.unpack_from(data, index * GOLDEN.size)
        assert (number, io) == (v.set, v.io) and plan[offset : offset + size] == v.data
        assert offset % 64 == 0 and (atol, rtol) == pytest.approx((v.atol, v.rtol))


def test_extras_can_be_replaced() -> None:
    once = with_extras(_plan(), b"{}", [Vector(0, 0, b"abc", 0.0, 0.0)])
    assert with_extras(once, b"{}", [Vector(0, 0, b"abc", 0.0, 0.0)]) == once
    assert Section.GOLDEN not in PlanReader(with_extras(once, b"{}", [])).sections


def test_unsound_plans_are_refused() -> None:
    plan = _plan()
    for broken in (b"", plan[:100], plan[:-1], b"X" + plan[1:]):
        with pytest.raises(PlanError):
            with_extras(broken, b"{}", [])


def test_tolerances_by_dtype() -> None:
    assert tolerance(np.array([1, 2], np.int64)) == (0.0, 0.0)
    assert tolerance(np.array([1, 2], np.uint8)) == (1.0, 0.0)
    atol, rtol = tolerance(np.array([0.0, -50.0, np.inf], np.float32))
    assert atol == pytest.approx(5e-3, rel=1e-3) and rtol == pytest.approx(1e-3)
    assert tolerance(np.array([1], np.float16))[0] > tolerance(np.array([1], np.float32))[0]
