"""Reading and extending a plan at the level of bytes (edgerun/backends/native/csrc/plan_format.h).

Packing adds two sections to a finished plan, GOLDEN and MANIFEST, because what they hold depends on the plan.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from edgerun.errors import PlanError
from edgerun.packed import fnv1a

HEADER = struct.Struct("<8sIIQQQIIQQII56x")
SECTION = struct.Struct("<IIQQ")
TENSOR = struct.Struct("<BBBBIIIQQ")
NODE = struct.Struct("<HHHHIIIIIIQQ")
GOLDEN = struct.Struct("<IIQQff")
ALIGNMENT = 64
WORDS, STRINGS, TENSORS, NODES, IO, GOLDENS, MANIFEST, WEIGHTS = 2, 3, 4, 5, 7, 8, 9, 10
SPACE_ARENA = 1


@dataclass(frozen=True, slots=True)
class Vector:
    """One golden vector before it has a place in the file. `io`: inputs, then outputs; LAYER | node for a layer."""

    set: int
    io: int
    data: bytes
    atol: float
    rtol: float


LAYER = 0x80000000


@dataclass(frozen=True, slots=True)
class NodeOutput:
    """Output 0 of a node of the plan."""

    node: int
    tensor: str
    dtype: int
    dense: bool
    bytes: int


class Tables:
    """The sections of a plan. Sizes in bytes. Raises PlanError when the plan is not sound at this level."""

    def __init__(self, plan: bytes | memoryview) -> None:
        if len(plan) < HEADER.size or bytes(plan[:8]) != b"EDGEPLAN":
            raise PlanError("this is not a plan")
        self.header = list(HEADER.unpack(plan[: HEADER.size]))
        if self.header[3] != len(plan):
            raise PlanError("the plan's size is not what its header says")
        self.sections: dict[int, tuple[int, bytes]] = {}
        """Kind to (count, bytes)."""
        for i in range(self.header[7]):
            kind, count, offset, size = SECTION.unpack_from(plan, HEADER.size + i * SECTION.size)
            if offset + size > len(plan):
                raise PlanError(f"section {kind} lies outside the plan")
            self.sections[kind] = (count, bytes(plan[offset : offset + size]))

    @property
    def arena_bytes(self) -> int:
        return self.header[4]

    @property
    def thread_scratch_bytes(self) -> int:
        return self.header[5]

    @property
    def weight_bytes(self) -> int:
        return len(self.sections.get(WEIGHTS, (0, b""))[1])

    def text(self, offset: int) -> str:
        """The NUL-terminated string at `offset` of STRINGS."""
        strings = self.sections[STRINGS][1]
        return strings[offset : strings.index(0, offset)].decode()

    def node_outputs(self) -> list[NodeOutput]:
        """Output 0 of every node that has one, in execution order."""
        words, tensors = self.sections[WORDS][1], self.sections[TENSORS][1]
        found = []
        for index, node in enumerate(NODE.iter_unpack(self.sections[NODES][1])):
            n_in, n_out, io = node[2], node[3], node[4]
            if n_out == 0:
                continue
            (number,) = struct.unpack_from("<i", words, 4 * (io + n_in))
            if number < 0:
                continue
            dtype, _, space, _, name, _, ld, _, size = TENSOR.unpack_from(tensors, number * TENSOR.size)
            if space == SPACE_ARENA:
                found.append(NodeOutput(index, self.text(name), dtype, ld == 0, size))
        return found

    def with_extras(self, manifest: bytes, golden: Sequence[Vector]) -> bytes:
        """The plan with MANIFEST and GOLDEN replaced by these, checksums renewed. WEIGHTS stays last."""
        sections = {k: v for k, v in self.sections.items() if k not in (MANIFEST, GOLDENS)}
        weights = sections.pop(WEIGHTS, None)
        sections[MANIFEST] = (1, manifest)
        if golden:
            sections[GOLDENS] = (len(golden), b"")  # its bytes need their own offset: filled in below
        if weights is not None:
            sections[WEIGHTS] = weights
        table, body = [], bytearray()
        start = _aligned(HEADER.size + len(sections) * SECTION.size)
        weights_at = None
        for kind, (count, data) in sections.items():
            offset = start + len(body)
            if kind == GOLDENS:
                data = _encode_golden(golden, offset)
            if kind == WEIGHTS:
                weights_at = offset
            table.append(SECTION.pack(kind, count, offset, len(data)))
            body += data
            body += bytes(-len(body) % ALIGNMENT) if kind != WEIGHTS else b""
        total = start + len(body)
        head = b"".join(table)
        head += bytes(start - HEADER.size - len(head))
        covered = head + bytes(body[: (weights_at if weights_at is not None else total) - start])
        header = list(self.header)
        header[3], header[7], header[8] = total, len(sections), fnv1a(covered)
        return HEADER.pack(*header) + head + bytes(body)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _encode_golden(golden: Sequence[Vector], offset: int) -> bytes:
    """Entries, then their data, each 64-byte aligned in the file (`offset` is)."""
    records, data = [], bytearray()
    start = _aligned(len(golden) * GOLDEN.size)
    for v in golden:
        records.append(GOLDEN.pack(v.set, v.io, offset + start + len(data), len(v.data), v.atol, v.rtol))
        data += v.data + bytes(-len(v.data) % ALIGNMENT)
    head = b"".join(records)
    return head + bytes(start - len(head)) + bytes(data)
