"""Adding golden vectors and a manifest to a plan."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from edgerun.errors import PlanError
from edgerun.packed import fnv1a
from edgerun_packaging.golden import tolerance
from edgerun_packaging.tables import GOLDEN, GOLDENS, HEADER, MANIFEST, SECTION, WEIGHTS, Tables, Vector

WORDS = b"12345678" * 3


def _plan(weights: bytes = b"w" * 64) -> bytes:
    """A plan of a WORDS and a WEIGHTS section."""
    start = 192
    body = WORDS + bytes(-len(WORDS) % 64)
    table = SECTION.pack(2, 6, start, len(WORDS)) + SECTION.pack(WEIGHTS, 1, start + len(body), len(weights))
    head = table + bytes(start - 128 - len(table))
    total = start + len(body) + len(weights)
    header = HEADER.pack(b"EDGEPLAN", 1, 1, total, 1000, 10, 0, 2, fnv1a(head + body), 7, 1, 1)
    return header + head + body + weights


def test_sections_are_kept_and_weights_stay_last() -> None:
    vectors = [Vector(0, 0, b"abc", 0.0, 0.0), Vector(0, 1, bytes(100), 1e-3, 1e-2)]
    plan = Tables(_plan()).with_extras(b"{}", vectors)
    again = Tables(plan)
    assert again.sections[2] == (6, WORDS)
    assert again.sections[MANIFEST] == (1, b"{}")
    assert again.sections[WEIGHTS] == (1, b"w" * 64)
    assert plan.endswith(b"w" * 64)
    assert (again.arena_bytes, again.thread_scratch_bytes, again.weight_bytes) == (1000, 10, 64)


def test_checksum_covers_all_but_header_and_weights() -> None:
    plan = Tables(_plan()).with_extras(b'{"a":1}', [Vector(0, 0, b"abcd", 0.0, 0.0)])
    assert HEADER.unpack(plan[:128])[8] == fnv1a(plan[128:-64])
    assert HEADER.unpack(plan[:128])[9] == 7


def test_golden_offsets_point_at_their_data() -> None:
    vectors = [Vector(0, 0, b"abc", 0.0, 0.0), Vector(1, 1, b"x" * 70, 1e-3, 1e-2)]
    plan = Tables(_plan()).with_extras(b"{}", vectors)
    count, data = Tables(plan).sections[GOLDENS]
    assert count == 2
    for index, v in enumerate(vectors):
        number, io, offset, size, atol, rtol = GOLDEN.unpack_from(data, index * GOLDEN.size)
        assert (number, io) == (v.set, v.io) and plan[offset : offset + size] == v.data
        assert offset % 64 == 0 and (atol, rtol) == pytest.approx((v.atol, v.rtol))


def test_extras_can_be_replaced() -> None:
    once = Tables(_plan()).with_extras(b"{}", [Vector(0, 0, b"abc", 0.0, 0.0)])
    assert Tables(once).with_extras(b"{}", [Vector(0, 0, b"abc", 0.0, 0.0)]) == once
    assert GOLDENS not in Tables(Tables(once).with_extras(b"{}", [])).sections


def test_unsound_plans_are_refused() -> None:
    plan = _plan()
    for broken in (b"", plan[:100], plan[:-1], b"X" + plan[1:]):
        with pytest.raises(PlanError):
            Tables(broken)
    outside = bytearray(plan)
    struct.pack_into("<Q", outside, 128 + 8, 1 << 40)
    with pytest.raises(PlanError):
        Tables(bytes(outside))


def test_tolerances_by_dtype() -> None:
    assert tolerance(np.array([1, 2], np.int64)) == (0.0, 0.0)
    assert tolerance(np.array([1, 2], np.uint8)) == (1.0, 0.0)
    atol, rtol = tolerance(np.array([0.0, -50.0, np.inf], np.float32))
    assert atol == pytest.approx(5e-3, rel=1e-3) and rtol == pytest.approx(1e-3)
    assert tolerance(np.array([1], np.float16))[0] > tolerance(np.array([1], np.float32))[0]
