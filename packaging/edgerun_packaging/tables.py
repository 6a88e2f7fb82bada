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
WORDS, STRINGS, TENSORS, NODES, KERNELS, IO, GOLDENS, MANIFEST, WEIGHTS = range(2, 11)
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
class PlanTensor:
    """A tensor of the plan: `offset` in the arena or in WEIGHTS, `bytes` reserved there."""

    name: str
    dtype: int
    space: int
    dense: bool
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A kernel call: tensor numbers (-1: absent), scratch in the arena."""

    name: str
    kernel: str
    inputs: list[int]
    outputs: list[int]
    scratch: int
    scratch_bytes: int


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

    def tensors(self) -> list[PlanTensor]:
        """All tensors, by number."""
        records = TENSOR.iter_unpack(self.sections[TENSORS][1])
        return [PlanTensor(self.text(r[4]), r[0], r[2], r[6] == 0, r[7], r[8]) for r in records]

    def nodes(self) -> list[PlanNode]:
        """All kernel calls, in execution order."""
        words = memoryview(self.sections[WORDS][1]).cast("i")
        kernels = [self.text(o) for (o,) in struct.iter_unpack("<I", self.sections[KERNELS][1])]
        found = []
        for kernel, _, n_in, n_out, io, _, _, _, _, name, scratch, size in NODE.iter_unpack(self.sections[NODES][1]):
            ins, outs = words[io : io + n_in].tolist(), words[io + n_in : io + n_in + n_out].tolist()
            found.append(PlanNode(self.text(name), kernels[kernel], ins, outs, scratch, size))
        return found

    def ports(self) -> tuple[list[int], list[int]]:
        """Tensor numbers of the inputs and of the outputs."""
        numbers = [t for t, _ in struct.iter_unpack("<II", self.sections[IO][1])]
        return numbers[: self.header[10]], numbers[self.header[10] :]

    def node_outputs(self) -> list[NodeOutput]:
        """Output 0 of every node that has one in the arena, in execution order."""
        tensors = self.tensors()
        found = []
        for index, node in enumerate(self.nodes()):
            if node.outputs and node.outputs[0] >= 0:
                t = tensors[node.outputs[0]]
                if t.space == SPACE_ARENA:
                    found.append(NodeOutput(index, t.name, t.dtype, t.dense, t.bytes))
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
