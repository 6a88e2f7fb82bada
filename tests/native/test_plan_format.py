"""Writing plans, reading them back, and refusing damaged ones: the same in Python and in C."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.backends.native.binding import NativeModel, host_arch, library
from edgerun.dims import DimLike, ceildiv, evaluate, floordiv, maximum, minimum, modulo, symbol
from edgerun.dtypes import DType
from edgerun.errors import EdgerunError, PlanError, UnsupportedError
from edgerun.plan import (
    Plan,
    PlanNode,
    PlanReader,
    PlanTensor,
    Space,
    SymbolBounds,
    Weight,
    layout,
    read_manifest,
    write,
)
from edgerun.plan.layout import Section
from tests.native.sanitize import copy_plans

F32 = DType.F32


def tiny() -> Plan:
    """x -> copy -> y, a weight -> copy -> z."""
    return Plan(
        host_arch(),
        tensors=[
            PlanTensor("x", F32, (2, 3), Space.ARENA, 0, 24),
            PlanTensor("y", F32, (6,), Space.ARENA, 64, 24),
            PlanTensor("w", F32, (4,), Space.WEIGHTS, 0, 16),
            PlanTensor("z", F32, (2, 2), Space.ARENA, 128, 16),
        ],
        nodes=[PlanNode("copy_bytes", (0,), (1,), (), "first"), PlanNode("copy_bytes", (2,), (3,), (), "second")],
        inputs=[(0, "x")],
        outputs=[(1, "y"), (3, "z")],
        weights=[Weight(0, np.arange(4, dtype=np.float32))],
        arena_bytes=192,
    )


def repaired(plan: bytes) -> bytes:
    """The plan with a right checksum and size."""
    data = bytearray(plan)
    count = struct.unpack_from("<I", data, 44)[0]
    covered = len(data)
    for i in range(min(count, 10)):
        kind, _, offset, _ = layout.SECTION.unpack_from(data, layout.HEADER.size + i * layout.SECTION.size)
        if kind == Section.WEIGHTS and layout.HEADER.size <= offset <= len(data):
            covered = offset
    struct.pack_into("<Q", data, 48, layout.fnv1a(bytes(data[layout.HEADER.size : covered])))
    return bytes(data)


def section(plan: bytes, kind: Section) -> int:
    """File offset of a section."""
    return PlanReader(plan).sections[kind][1]


def test_round_trip() -> None:
    plan = tiny()
    plan.manifest = {"name": "tiny"}
    data = write(plan)
    reader = PlanReader(data)
    assert data == write(plan)
    assert [t.name for t in reader.tensors] == ["x", "y", "w", "z"]
    assert [(n.name, n.kernel, n.inputs, n.outputs) for n in reader.nodes] == [
        ("first", "copy_bytes", (0,), (1,)),
        ("second", "copy_bytes", (2,), (3,)),
    ]
    assert reader.inputs == [(0, "x")] and reader.outputs == [(1, "y"), (3, "z")]
    assert reader.shape(0) == (2, 3) and reader.manifest == read_manifest(data) == {"name": "tiny"}
    assert bytes(reader.weights) == np.arange(4, dtype=np.float32).tobytes()
    assert reader.weights_checksum == layout.fnv1a_words(reader.weights)
    outputs = NativeModel(data).run({"x": np.arange(6, dtype=np.float32).reshape(2, 3)})
    assert outputs["y"].tolist() == [0, 1, 2, 3, 4, 5] and outputs["z"].tolist() == [[0, 1], [2, 3]]


def test_checksums_agree_with_c() -> None:
    lib = library()
    for size in (0, 1, 7, 8, 9, 4096, 5001):
        data = random.Random(size).randbytes(size)
        array = np.frombuffer(data, np.uint8)
        assert lib.er_fnv1a_words(array.ctypes.data if size else None, size) == layout.fnv1a_words(data)


N, M = symbol("N"), symbol("M")
numbers = st.integers(-20, 20)
expressions: st.SearchStrategy[DimLike] = st.recursive(
    st.sampled_from([N, M, 1, 2, 3, 7]),
    lambda inner: st.one_of(
        st.tuples(
            st.sampled_from([lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, minimum, maximum]),
            inner,
            inner,
        ).map(lambda t: t[0](t[1], t[2])),
        st.tuples(st.sampled_from([floordiv, ceildiv, modulo]), inner, st.sampled_from([1, 2, 3, 5])).map(
            lambda t: t[0](t[1], t[2])
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(expressions, st.integers(0, 9), st.integers(0, 9))
def test_dim_expressions_have_their_value_in_both_readers(d: DimLike, n: int, m: int) -> None:
    """The expression goes in as a parameter; the value comes out through a patched one-element fill."""
    want = evaluate(d, {"N": n, "M": m})
    plan = Plan(
        host_arch(),
        symbols=[SymbolBounds("N", 0, 9), SymbolBounds("M", 0, 9)],
        tensors=[
            PlanTensor("x", DType.U8, (N, M), Space.ARENA, 0, 81),
            PlanTensor("y", DType.I64, (1,), Space.ARENA, 128, 8),
        ],
        nodes=[PlanNode("fill_integers", (), (1,), (d,), "fill")],
        inputs=[(0, "x")],
        outputs=[(1, "y")],
        arena_bytes=192,
    )
    data = write(plan)
    reader = PlanReader(data)
    values = reader.dim_values({"N": n, "M": m})
    if reader.nodes[0].patches:
        assert values[reader.nodes[0].patches[0][1]] == want
    got = NativeModel(data).run({"x": np.zeros((n, m), np.uint8)})["y"]
    assert got.tolist() == [want]


def test_the_writer_refuses_what_the_format_cannot_hold() -> None:
    broken = tiny()
    broken.tensors[0] = PlanTensor("x", DType.STRING, (2,), Space.ARENA, 0, 0)
    with pytest.raises(PlanError, match="'x'"):
        write(broken)
    broken = tiny()
    broken.tensors[0] = PlanTensor("x", F32, (1,) * 9, Space.ARENA, 0, 4)
    with pytest.raises(PlanError, match="rank 9"):
        write(broken)
    broken = tiny()
    broken.nodes[0] = PlanNode("copy_bytes", (0,), (1,), (1 << 40,), "first")
    with pytest.raises(PlanError, match="'first'"):
        write(broken)
    broken = tiny()
    broken.tensors[0] = PlanTensor("x", F32, (N,), Space.ARENA, 0, 4)
    with pytest.raises(PlanError, match="N"):
        write(broken)
    with pytest.raises(PlanError, match="pdp11"):
        write(Plan("pdp11"))


# -- refusals


def refusals() -> dict[str, bytes]:
    """Named plans that both readers must refuse."""
    good = write(tiny())
    found: dict[str, bytes] = {
        "empty": b"",
        "short": good[:100],
        "truncated": good[:-1],
        "longer": good + b"\0",
        "magic": b"X" + good[1:],
        "flipped bit": good[:200] + bytes([good[200] ^ 1]) + good[201:],
    }

    def patch(name: str, at: int, code: str, value: int) -> None:
        data = bytearray(good)
        struct.pack_into("<" + code, data, at, value)
        found[name] = repaired(bytes(data))

    sections, tensors, nodes = layout.HEADER.size, section(good, Section.TENSORS), section(good, Section.NODES)
    words, io = section(good, Section.WORDS), section(good, Section.IO)
    patch("version", 8, "I", 2)
    patch("architecture", 12, "I", 77)
    patch("arena smaller than its tensors", 24, "Q", 64)
    patch("odd thread scratch", 32, "Q", 1)
    patch("symbols without dims", 40, "I", 1)
    patch("number of sections", 44, "I", 9999)
    patch("number of inputs", 64, "I", 4)
    patch("number of inputs and outputs wraps", 64, "I", 0xFFFFFFFF)
    patch("section kind", sections, "I", 42)
    patch("section twice", sections, "I", 2)
    patch("section count", sections + 4, "I", 1 << 30)
    patch("section offset", sections + 8, "Q", 1 << 60)
    patch("section offset unaligned", sections + 8, "Q", 513)
    patch("section bytes wrap", sections + 16, "Q", (1 << 64) - 64)
    patch("tensor type", tensors, "B", 99)
    patch("tensor rank", tensors + 1, "B", 9)
    patch("tensor space", tensors + 2, "B", 3)
    patch("tensor flags", tensors + 3, "B", 128)
    patch("tensor name", tensors + 4, "I", 1 << 30)
    patch("tensor dims", tensors + 8, "I", 0xFFFFFFFF)
    patch("tensor row stride", tensors + 12, "I", 1000)
    patch("tensor offset", tensors + 16, "Q", 1 << 40)
    patch("tensor offset unaligned", tensors + 16, "Q", 2)
    patch("tensor offset wraps", tensors + 16, "Q", (1 << 64) - 64)
    patch("tensor bytes", tensors + 24, "Q", 1 << 40)
    patch("weight unaligned", tensors + 2 * 32 + 16, "Q", 4)
    patch("node kernel", nodes, "H", 5)
    patch("node inputs", nodes + 4, "H", 60000)
    patch("node io", nodes + 8, "I", 0xFFFFFFF0)
    patch("node params", nodes + 16, "I", 0xFFFFFFF0)
    patch("node patches", nodes + 24, "I", 7)
    patch("node name", nodes + 28, "I", 1 << 30)
    patch("node scratch", nodes + 32, "Q", 1 << 40)
    patch("node scratch unaligned", nodes + 32, "Q", 1)
    patch("node scratch bytes", nodes + 40, "Q", 1 << 40)
    first = words + 4 * struct.unpack_from("<I", good, nodes + 8)[0]
    patch("node reads nothing known", first, "i", 9)
    patch("node reads a later tensor", first, "i", 3)
    patch("node writes its input", first + 4, "i", 0)
    patch("node writes a weight", first + 4, "i", 2)
    patch("output never computed", first + 4, "i", -1)
    patch("negative tensor", first, "i", -2)
    patch("io tensor", io, "I", 100)
    patch("input is a weight", io, "I", 2)
    patch("io name", io + 4, "I", 1 << 30)
    return found


REFUSALS = refusals()


@pytest.mark.parametrize("name", REFUSALS)
def test_both_readers_refuse(name: str) -> None:
    with pytest.raises(PlanError):
        PlanReader(REFUSALS[name])
    with pytest.raises((PlanError, UnsupportedError)) as caught:
        NativeModel(REFUSALS[name])
    assert len(str(caught.value)) > 20


def test_the_runtime_refuses_shapes_beyond_reserved_bytes_and_overlaps() -> None:
    plan = tiny()
    plan.tensors[1] = PlanTensor("y", F32, (7,), Space.ARENA, 64, 24)
    with pytest.raises(EdgerunError, match="'y' needs more than the 24 bytes"):
        NativeModel(write(plan))
    plan = tiny()
    plan.tensors[1] = PlanTensor("y", F32, (6,), Space.ARENA, 16, 24)
    with pytest.raises(PlanError, match="'first' overlaps"):
        NativeModel(write(plan))
    plan = tiny()
    plan.nodes[0] = PlanNode("copy_bytes", (0,), (1,), (), "first", scratch=64, scratch_bytes=8)
    with pytest.raises(PlanError, match="'first' overlaps"):
        NativeModel(write(plan))
    plan = tiny()
    plan.nodes[1] = PlanNode("copy_bytes", (2,), (3,), (), "second")
    plan.tensors[3] = PlanTensor("z", F32, (3, 1), Space.ARENA, 128, 16)
    with pytest.raises(PlanError, match=r"'second' \(copy_bytes\): .* from 16 to 12 bytes"):
        NativeModel(write(plan))
    plan = tiny()
    plan.nodes[0] = PlanNode("no_such_kernel", (0,), (1,), (), "first")
    with pytest.raises(UnsupportedError, match="no_such_kernel"):
        NativeModel(write(plan))


def test_memory_is_not_taken_on_a_plans_word() -> None:
    plan = tiny()
    plan.arena_bytes = 1 << 50
    with pytest.raises(EdgerunError, match="memory"):
        NativeModel(write(plan))
    plan.arena_bytes = (1 << 64) - 64
    with pytest.raises(EdgerunError, match="address space"):
        NativeModel(write(plan))


def test_another_architecture_is_named() -> None:
    plan = tiny()
    plan.arch = "wasm32"
    with pytest.raises(UnsupportedError, match="wasm32"):
        NativeModel(write(plan))


def test_mutants_are_accepted_by_c_only_if_python_accepts_them(tmp_path: Path) -> None:
    """C checks all that Python does (and more: kernels, shapes), so its yes implies Python's."""
    generator = random.Random(7)
    originals = [p.read_bytes() for p in copy_plans(tmp_path)] + [write(tiny())]
    accepted = 0
    for _ in range(1500):
        data = bytearray(generator.choice(originals))
        for _ in range(generator.randrange(1, 3)):
            at = generator.randrange(len(data) // 4) * 4
            old = struct.unpack_from("<I", data, at)[0]
            new = generator.choice(
                [0, 1, 2, 5, 64, 0x7FFFFFFF, 0xFFFFFFFF, old + 1, old - 1, old ^ (1 << generator.randrange(32))]
            )
            struct.pack_into("<I", data, at, new & 0xFFFFFFFF)
        plan = repaired(bytes(data))
        try:
            NativeModel(plan)
        except EdgerunError:
            continue
        accepted += 1
        PlanReader(plan)
    assert accepted > 50
