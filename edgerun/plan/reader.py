"""Reading a plan in Python with the same refusals as the C runtime (csrc/plan.c); every one is a PlanError.

Checks that need the kernels (each kernel's own) or the shapes (overlaps, reserved bytes) are left to the runtime.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgerun.dims import Dim, DimLike, ceildiv, floordiv, maximum, minimum, modulo, symbol
from edgerun.dtypes import DType, from_code
from edgerun.errors import EdgerunError, PlanError
from edgerun.graph import Shape
from edgerun.plan import layout
from edgerun.plan.layout import ALIGNMENT, DimOp, Section, TensorFlag
from edgerun.plan.model import Space, SymbolBounds

_RECORDS: dict[int, struct.Struct] = {
    Section.DIMS: layout.DIM,
    Section.TENSORS: layout.TENSOR,
    Section.NODES: layout.NODE,
    Section.IO: layout.IO,
    Section.WORDS: struct.Struct("<i"),
    Section.KERNELS: struct.Struct("<I"),
}


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor; `dims` and `ld` are numbers of dims (`ld` None: dense)."""

    name: str
    dtype: DType
    dims: tuple[int, ...]
    ld: int | None
    space: Space
    offset: int
    bytes: int
    view: bool


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A kernel call; `patches` are (parameter, dim number)."""

    name: str
    kernel: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    params: tuple[int, ...]
    patches: tuple[tuple[int, int], ...]
    scratch: int
    scratch_bytes: int
    max_threads: int


def _require(condition: Any, message: str) -> None:
    if not condition:
        raise PlanError(message)


class PlanReader:
    """A validated plan. Raises PlanError for anything that is not one; nothing the plan claims is allocated."""

    def __init__(self, plan: bytes | memoryview) -> None:
        self.data = memoryview(plan).cast("B")
        self._header()
        self._sections()
        self._strings = bytes(self._bytes(Section.STRINGS))
        ends = self._strings[:1] + self._strings[-1:]
        _require(ends == b"\0\0", "the strings do not start and end with NUL")
        try:
            self._strings.decode()
        except UnicodeDecodeError as e:
            raise PlanError("the strings are not UTF-8") from e
        self.words = np.frombuffer(bytes(self._bytes(Section.WORDS)), "<i4").tolist()
        self.weights = self._bytes(Section.WEIGHTS)
        """The bytes of all weights."""
        self.dims = list(layout.DIM.iter_unpack(self._bytes(Section.DIMS)))
        self.symbols = self._symbols()
        self.tensors = [self._tensor(r) for r in layout.TENSOR.iter_unpack(self._bytes(Section.TENSORS))]
        self.inputs, self.outputs = self._ports()
        self.nodes = self._nodes()
        self._order()
        self._golden()

    # -- bytes
    def _header(self) -> None:
        _require(len(self.data) >= layout.HEADER.size, f"a plan has at least 128 bytes, not {len(self.data)}")
        fields = layout.HEADER.unpack(self.data[: layout.HEADER.size])
        magic, version, arch, total, self.arena_bytes, self.thread_scratch_bytes = fields[:6]
        self._n_symbols, self._n_sections, self._checksum, self.weights_checksum, self._n_in, self._n_out = fields[6:]
        _require(magic == layout.MAGIC, "this is not a plan (no EDGEPLAN at its start)")
        _require(version == layout.VERSION, f"the plan has format version {version}, this reads {layout.VERSION}")
        _require(total == len(self.data), f"the plan says it is {total} bytes long but {len(self.data)} are there")
        names = {code: name for name, code in layout.ARCHES.items()}
        _require(arch in names, f"the plan is for the unknown architecture {arch}")
        self.arch = names[arch]
        _require(self.thread_scratch_bytes % ALIGNMENT == 0, "the scratch of a thread is not a multiple of 64 bytes")

    def _sections(self) -> None:
        self.sections: dict[int, tuple[int, int, int]] = {}
        """Kind to (count, offset, bytes)."""
        total, start = len(self.data), layout.HEADER.size
        _require(self._n_sections <= len(Section), f"the plan has {self._n_sections} sections")
        end = start + self._n_sections * layout.SECTION.size
        _require(end <= total, "the section table does not fit into the plan")
        covered = total
        for i in range(self._n_sections):
            kind, count, offset, size = layout.SECTION.unpack_from(self.data, start + i * layout.SECTION.size)
            _require(1 <= kind <= len(Section), f"section {i} has the unknown kind {kind}")
            _require(kind not in self.sections, f"section kind {kind} appears twice")
            _require(
                offset % ALIGNMENT == 0 and end <= offset and offset + size <= total,
                f"section {i} lies outside the plan, overlaps another or is not aligned",
            )
            end = offset + size
            if kind in _RECORDS:
                _require(
                    size == count * _RECORDS[kind].size, f"section kind {kind} holds {size} bytes for {count} records"
                )
            if kind == Section.WEIGHTS:
                _require(i + 1 == self._n_sections and end == total, "the weights are not at the end of the plan")
                covered = offset
            self.sections[kind] = (count, offset, size)
        _require(layout.fnv1a(self.data[start:covered]) == self._checksum, "the plan is damaged (checksum)")

    def _bytes(self, kind: Section) -> memoryview:
        _, offset, size = self.sections.get(kind, (0, 0, 0))
        return self.data[offset : offset + size]

    def _text(self, offset: int, what: str) -> str:
        _require(offset < len(self._strings), f"the name of {what} lies outside the strings")
        try:
            return self._strings[offset : self._strings.index(0, offset)].decode()
        except UnicodeDecodeError as e:
            raise PlanError(f"the name of {what} is not UTF-8") from e

    def _word_list(self, at: int, count: int, what: str) -> list[int]:
        _require(count == 0 or at + count <= len(self.words), f"{what} lie outside the plan")
        return self.words[at : at + count]

    # -- records
    def _symbols(self) -> list[SymbolBounds]:
        found: list[SymbolBounds] = []
        for i, (op, a, b, name, value) in enumerate(self.dims):
            if op == DimOp.SYM:
                _require(value == len(found) < self._n_symbols, f"dim {i} names symbol {value} out of order")
                _require(0 <= a <= b, f"symbol {value} has the bounds {a}..{b}")
                found.append(SymbolBounds(self._text(name, f"symbol {value}"), a, b))
            elif op != DimOp.CONST:
                _require(op <= DimOp.MAX, f"dim {i} has the unknown operation {op}")
                _require(0 <= a < i and 0 <= b < i, f"dim {i} refers to a later one")
        _require(len(found) == self._n_symbols, f"the plan has {self._n_symbols} symbols but dims for {len(found)}")
        return found

    def _tensor(self, record: tuple[int, ...]) -> TensorRecord:
        code, rank, space, flags, name_at, dims_at, ld, offset, size = record
        name = self._text(name_at, "a tensor")
        what = f"tensor {name!r}"
        _require(code in layout.NATIVE_DTYPES, f"{what} has the unknown type {code}")
        _require(rank <= layout.MAX_RANK, f"{what} has rank {rank}")
        _require(flags in (0, TensorFlag.VIEW), f"{what} has unknown flags")
        dims = self._word_list(dims_at, rank, f"the dims of {what}")
        _require(all(0 <= d < len(self.dims) for d in dims), f"{what} has an unknown dim")
        _require(ld <= len(self.dims), f"{what} has the unknown row stride {ld}")
        _require(space in (Space.ARENA, Space.WEIGHTS), f"{what} is in the unknown space {space}")
        room = self.arena_bytes if space == Space.ARENA else len(self.weights)
        _require(offset + size <= room, f"{what} lies outside the {'arena' if space == Space.ARENA else 'weights'}")
        dtype, view = from_code(code), bool(flags & TensorFlag.VIEW)
        alignment = dtype.itemsize if view or space == Space.ARENA else ALIGNMENT
        _require(offset % alignment == 0, f"{what} is not aligned")
        return TensorRecord(name, dtype, tuple(dims), ld - 1 if ld else None, Space(space), offset, size, view)

    def _ports(self) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        ports = [(t, self._text(n, "an input or output")) for t, n in layout.IO.iter_unpack(self._bytes(Section.IO))]
        _require(len(ports) == self._n_in + self._n_out, f"the plan lists {len(ports)} inputs and outputs")
        for number, name in ports:
            _require(number < len(self.tensors), f"{name!r} is the unknown tensor {number}")
        inputs = ports[: self._n_in]
        for number, name in inputs:
            t = self.tensors[number]
            _require(t.space == Space.ARENA and t.ld is None, f"input {name!r} is not a dense tensor in the arena")
        self._bound = {d for number, _ in inputs for d in self.tensors[number].dims}
        return inputs, ports[self._n_in :]

    def _nodes(self) -> list[NodeRecord]:
        offsets = [o for (o,) in struct.iter_unpack("<I", self._bytes(Section.KERNELS))]
        _require(len(offsets) <= layout.MAX_KERNELS, f"the plan names {len(offsets)} kernels")
        kernels = [self._text(o, "a kernel") for o in offsets]
        records = list(layout.NODE.iter_unpack(self._bytes(Section.NODES)))
        lists = sum(r[2] + r[3] for r in records)
        params = sum(r[6] for r in records if r[8])
        _require(max(lists, params) <= len(self.words), "nodes share their lists of tensors or parameters")
        nodes = [self._node(r, kernels) for r in records]
        for index, node in enumerate(nodes):
            self._check_flow(node, len(nodes) - 1 - index)
        for i, (op, *_) in enumerate(self.dims):
            _require(op != DimOp.SYM or i in self._bound, f"no input and no node gives the free dim {i} its value")
        return nodes

    def _check_flow(self, node: NodeRecord, following: int) -> None:
        """What the interpreter relies on where it acts itself."""
        what, shape = f"node {node.name!r}", (len(node.inputs), len(node.outputs), len(node.params), len(node.patches))
        if node.kernel == "skip_unless":
            _require(shape == (1, 0, 2, 0) and node.inputs[0] >= 0, f"{what} does not take a flag and two numbers")
            _require(node.params[0] in (0, 1), f"{what} wants {node.params[0]}, a flag is 0 or 1")
            _require(0 <= node.params[1] <= following, f"{what} passes over {node.params[1]} nodes, {following} follow")
        elif node.kernel == "bind_sizes":
            fine = shape[:2] == (1, 0) and shape[2] >= 2 and not shape[3] and node.inputs[0] >= 0
            _require(fine, f"{what} does not take integers for sizes")
            for d in node.params[2:]:
                free = 0 <= d < len(self.dims) and self.dims[d][0] == DimOp.SYM and d not in self._bound
                _require(free, f"{what} gives a size to dim {d}, which is not free")
                self._bound.add(d)
        elif node.kernel == "fail":
            _require(shape == (0, 0, 1, 0), f"{what} has more than a message")
            _require(node.params[0] >= 0, f"the message of {what} lies outside the strings")
            self._text(node.params[0], f"the error of {what}")

    def _node(self, record: tuple[int, ...], kernels: list[str]) -> NodeRecord:
        kernel, max_threads, n_in, n_out, io, param, n_param, patch, n_patch, name_at, scratch, size = record
        name = self._text(name_at, "a node")
        what = f"node {name!r}"
        _require(kernel < len(kernels), f"{what} has the unknown kernel {kernel}")
        _require(
            n_in <= layout.MAX_NODE_INPUTS and n_out <= layout.MAX_NODE_OUTPUTS,
            f"{what} has {n_in} inputs and {n_out} outputs",
        )
        tensors = self._word_list(io, n_in + n_out, f"the tensors of {what}")
        _require(all(-1 <= t < len(self.tensors) for t in tensors), f"{what} refers to an unknown tensor")
        params = self._word_list(param, n_param, f"the parameters of {what}")
        pairs = self._word_list(patch, 2 * n_patch, f"the patches of {what}")
        patches = tuple(zip(pairs[::2], pairs[1::2], strict=True))
        _require(
            all(0 <= p < n_param and 0 <= d < len(self.dims) for p, d in patches), f"a patch of {what} does not exist"
        )
        _require(
            scratch % ALIGNMENT == 0 and scratch + size <= self.arena_bytes,
            f"the scratch of {what} lies outside the arena",
        )
        return NodeRecord(
            name, kernels[kernel], tuple(tensors[:n_in]), tuple(tensors[n_in:]), tuple(params), patches, scratch, size,
            max_threads,
        )  # fmt: skip

    def _order(self) -> None:
        """Every tensor is written once, before it is read."""
        outside = {number for number, _ in self.inputs}
        plain = [n for n, _ in self.inputs if not self.tensors[n].view]
        _require(len(set(plain)) == len(plain), "an input is listed twice")
        outside |= {i for i, t in enumerate(self.tensors) if t.space == Space.WEIGHTS or t.view}
        known = set(outside)
        for node in self.nodes:
            for t in node.inputs:
                _require(
                    t < 0 or t in known,
                    f"node {node.name!r} reads tensor {self.tensors[t].name!r} before it is computed",
                )
            for t in node.outputs:
                _require(
                    t < 0 or t not in known,
                    f"node {node.name!r} writes tensor {self.tensors[t].name!r}, an input, a weight or written",
                )
                if t >= 0:
                    known.add(t)
        for number, name in self.outputs:
            _require(
                number in known and self.tensors[number].ld is None, f"output {name!r} is never computed or not dense"
            )

    def _golden(self) -> None:
        count, start, size = self.sections.get(Section.GOLDEN, (0, 0, 0))
        _require(count * layout.GOLDEN.size <= size, "the golden vectors do not fit into their section")
        for i in range(count):
            _, io, offset, length, _, _ = layout.GOLDEN.unpack_from(self.data, start + i * layout.GOLDEN.size)
            limit = len(self.nodes) if io & layout.GOLDEN_LAYER else self._n_in + self._n_out
            _require(io & ~layout.GOLDEN_LAYER < limit, f"golden vector {i} is of nothing in the plan")
            _require(
                offset % 8 == 0 and start <= offset and offset + length <= start + size,
                f"golden vector {i} lies outside its section",
            )

    # -- meaning
    @property
    def tokenizer(self) -> bytes | None:
        """The tokenizer of a language model, unread."""
        return bytes(self._bytes(Section.TOKENIZER)) or None

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest, empty when there is none. Raises PlanError when it is not a JSON object."""
        return _parse_manifest(bytes(self._bytes(Section.MANIFEST)))

    def dim_values(self, symbols: Mapping[str, int]) -> list[int]:
        """The value of every dim. Raises PlanError on division by zero or beyond 64 bits, KeyError for a symbol."""
        values: list[int] = []
        for i, (op, a, b, _, value) in enumerate(self.dims):
            if op == DimOp.SYM:
                value = symbols[self.symbols[value].name]
            elif op != DimOp.CONST:
                x, y = values[a], values[b]
                _require(op not in (DimOp.FLOORDIV, DimOp.CEILDIV, DimOp.MOD) or y, f"dim {i} divides by zero")
                value = _NUMBERS[DimOp(op)](x, y)
            _require(-(1 << 63) <= value < 1 << 63, f"dim {i} overflows")
            values.append(value)
        return values

    def shape(self, tensor: int) -> Shape:
        """The shape as dimensions over the symbols; expressions too large to show become `?N`."""
        known: dict[int, DimLike] = {}
        return tuple(self._expression(d, known, 0) for d in self.tensors[tensor].dims)

    def _expression(self, number: int, known: dict[int, DimLike], depth: int) -> DimLike:
        if number in known:
            return known[number]
        op, a, b, _, value = self.dims[number]
        result: DimLike
        if op == DimOp.CONST:
            result = value
        elif op == DimOp.SYM:
            result = symbol(self.symbols[value].name)
        else:
            result = symbol(f"d{number}")
            if depth < 16:
                x, y = self._expression(a, known, depth + 1), self._expression(b, known, depth + 1)
                try:
                    if _terms(x) * _terms(y) <= 64 and len(str(x)) + len(str(y)) < 200:
                        result = _SYMBOLIC[DimOp(op)](x, y)
                except (EdgerunError, ZeroDivisionError):
                    pass
        known[number] = result
        return result


def _terms(d: DimLike) -> int:
    return len(d.terms) if isinstance(d, Dim) else 1


_NUMBERS: dict[DimOp, Any] = {
    DimOp.ADD: lambda a, b: a + b,
    DimOp.SUB: lambda a, b: a - b,
    DimOp.MUL: lambda a, b: a * b,
    DimOp.FLOORDIV: lambda a, b: a // b,
    DimOp.CEILDIV: lambda a, b: -(-a // b),
    DimOp.MOD: lambda a, b: a % b,
    DimOp.MIN: min,
    DimOp.MAX: max,
}
_SYMBOLIC: dict[DimOp, Any] = _NUMBERS | {
    DimOp.FLOORDIV: floordiv,
    DimOp.CEILDIV: ceildiv,
    DimOp.MOD: modulo,
    DimOp.MIN: minimum,
    DimOp.MAX: maximum,
}


def _parse_manifest(data: bytes) -> dict[str, Any]:
    if not data:
        return {}
    try:
        found = json.loads(data.rstrip(b"\0"))
    except (ValueError, RecursionError) as e:
        raise PlanError("the manifest is not JSON") from e
    _require(isinstance(found, dict), "the manifest is not a JSON object")
    return found


def read_manifest(plan: bytes | memoryview) -> dict[str, Any]:
    """The manifest of a plan, empty when there is none. Raises PlanError when the plan is damaged."""
    return PlanReader(plan).manifest
