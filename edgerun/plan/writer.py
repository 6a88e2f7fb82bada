"""Plan to bytes. The same plan gives the same bytes."""

from __future__ import annotations

import json
import struct

import numpy as np

from edgerun.dims import Dim, DimLike
from edgerun.errors import PlanError
from edgerun.plan import layout
from edgerun.plan.layout import ALIGNMENT, DimOp, Section, TensorFlag, aligned
from edgerun.plan.model import Plan, PlanNode, PlanTensor, SymbolPlace

_FUNCTIONS = {
    "floordiv": DimOp.FLOORDIV,
    "ceildiv": DimOp.CEILDIV,
    "mod": DimOp.MOD,
    "min": DimOp.MIN,
    "max": DimOp.MAX,
}


def write(plan: Plan) -> bytes:
    """The bytes of a plan. Raises PlanError for what the format cannot hold, naming the tensor or node."""
    return bytes(_Writer(plan).assemble())


class _Strings:
    """NUL-terminated texts, each stored once."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")
        self.known: dict[str, int] = {"": 0}

    def offset(self, text: str) -> int:
        text = text.replace("\0", "?")
        if text not in self.known:
            self.known[text] = len(self.data)
            self.data += text.encode("utf-8", "replace") + b"\0"
        return self.known[text]


class _Dims:
    """Dim values as a list of operations on earlier entries; equal expressions share one entry."""

    def __init__(self, plan: Plan, strings: _Strings) -> None:
        self.records: list[bytes] = []
        self.known: dict[tuple[int, int, int, int], int] = {}
        self.symbols: dict[str, int] = {}
        for number, s in enumerate(plan.symbols):
            if not 0 <= s.low <= s.high < 1 << 31:
                raise PlanError(f"symbol {s.name} has the bounds {s.low}..{s.high}", hint="give --dim NAME=LOW..HIGH")
            self.symbols[s.name] = len(self.records)
            self.records.append(layout.DIM.pack(DimOp.SYM, s.low, s.high, strings.offset(s.name), number))

    def number(self, d: DimLike) -> int:
        """The entry that holds `d`. Raises PlanError for symbols that the plan does not declare."""
        if not isinstance(d, Dim):
            return self._entry(DimOp.CONST, 0, 0, int(d))
        total: int | None = None
        # Positive terms first, so that fewer intermediate values are negative.
        for monomial, coefficient in sorted(d.terms, key=lambda t: t[1] < 0):
            term: int | None = None
            for atom in monomial:
                factor = self._atom(atom.text, atom.function, atom.args)
                term = factor if term is None else self._entry(DimOp.MUL, term, factor)
            size = abs(coefficient) if total is not None else coefficient
            if term is None:
                term = self.number(size)
            elif size != 1:
                term = self._entry(DimOp.MUL, term, self.number(size))
            if total is None:
                total = term
            else:
                total = self._entry(DimOp.ADD if coefficient > 0 else DimOp.SUB, total, term)
        assert total is not None
        return total

    def _atom(self, text: str, function: str | None, args: tuple[DimLike, ...]) -> int:
        if function is None:
            if text not in self.symbols:
                raise PlanError(f"dimension {text} depends on the data, or no input has it")
            return self.symbols[text]
        return self._entry(_FUNCTIONS[function], self.number(args[0]), self.number(args[1]))

    def _entry(self, op: DimOp, a: int, b: int, value: int = 0) -> int:
        key = (int(op), a, b, value)
        if key not in self.known:
            if not -(1 << 63) <= value < 1 << 63:
                raise PlanError(f"a dimension of {value} is too large")
            self.known[key] = len(self.records)
            self.records.append(layout.DIM.pack(op, a, b, 0, value))
        return self.known[key]


class _Writer:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.strings = _Strings()
        self.dims = _Dims(plan, self.strings)
        self.words: list[int] = []
        self.kernels: dict[str, int] = {}

    def assemble(self) -> bytearray:
        if self.plan.arch not in layout.ARCHES:
            raise PlanError(f"there is no architecture {self.plan.arch!r}", hint="one of " + ", ".join(layout.ARCHES))
        tensors = b"".join(self._tensor(t) for t in self.plan.tensors)
        nodes = b"".join(self._node(n) for n in self.plan.nodes)
        io = b"".join(layout.IO.pack(t, self.strings.offset(n)) for t, n in self.plan.inputs + self.plan.outputs)
        kernels = struct.pack(f"<{len(self.kernels)}I", *(self.strings.offset(k) for k in self.kernels))
        sections: list[tuple[Section, int, bytes]] = [
            (Section.DIMS, len(self.dims.records), b"".join(self.dims.records)),
            (Section.WORDS, len(self.words), struct.pack(f"<{len(self.words)}i", *self.words)),
            (Section.STRINGS, len(self.strings.data), bytes(self.strings.data)),
            (Section.TENSORS, len(self.plan.tensors), tensors),
            (Section.NODES, len(self.plan.nodes), nodes),
            (Section.KERNELS, len(self.kernels), kernels),
            (Section.IO, len(self.plan.inputs) + len(self.plan.outputs), io),
        ]
        if self.plan.manifest is not None:
            text = json.dumps(self.plan.manifest, separators=(",", ":")).encode() + b"\0"
            sections.append((Section.MANIFEST, 1, text))
        if self.plan.tokenizer is not None:
            sections.append((Section.TOKENIZER, 1, self.plan.tokenizer))
        return self._file(sections)

    # -- records
    def _words(self, values: list[int]) -> int:
        start = len(self.words)
        self.words += values
        return start

    def _tensor(self, t: PlanTensor) -> bytes:
        if t.dtype.code not in layout.NATIVE_DTYPES:
            raise PlanError(f"tensor {t.name!r} has the type {t.dtype.short}, which the native runtime lacks")
        if len(t.shape) > layout.MAX_RANK:
            raise PlanError(f"tensor {t.name!r} has rank {len(t.shape)}, at most {layout.MAX_RANK} is possible")
        if not (0 <= t.offset < 1 << 63 and 0 <= t.bytes < 1 << 63):
            raise PlanError(f"tensor {t.name!r} would take {t.bytes} bytes", hint="give smaller bounds with --dim")
        dims = self._words([self.dims.number(d) for d in t.shape])
        ld = 0 if t.ld is None else 1 + self.dims.number(t.ld)
        flags = TensorFlag.VIEW if t.view else 0
        return layout.TENSOR.pack(
            t.dtype.code, len(t.shape), t.space, flags, self.strings.offset(t.name), dims, ld, t.offset, t.bytes
        )

    def _node(self, n: PlanNode) -> bytes:
        if len(n.inputs) > layout.MAX_NODE_INPUTS or len(n.outputs) > layout.MAX_NODE_OUTPUTS:
            raise PlanError(f"node {n.name!r} has {len(n.inputs)} inputs and {len(n.outputs)} outputs")
        io = self._words([*n.inputs, *n.outputs])
        values, patches = [], []
        for index, p in enumerate(n.params):
            if isinstance(p, Dim):
                patches += [index, self.dims.number(p)]
                values.append(0)
            elif isinstance(p, SymbolPlace):
                values.append(self.dims.symbols[p.name])
            elif isinstance(p, str):
                values.append(self.strings.offset(p))
            else:
                values.append(_word(p, n.name))
        params, patch = self._words(values), self._words(patches)
        kernel = self.kernels.setdefault(n.kernel, len(self.kernels))
        return layout.NODE.pack(
            kernel, n.max_threads, len(n.inputs), len(n.outputs), io, params, len(values), patch, len(patches) // 2,
            self.strings.offset(n.name), n.scratch, n.scratch_bytes,
        )  # fmt: skip

    # -- the file
    def _file(self, sections: list[tuple[Section, int, bytes]]) -> bytearray:
        weight_bytes = max((w.offset + w.data.nbytes for w in self.plan.weights), default=0)
        count = len(sections) + (weight_bytes > 0)
        offset = aligned(layout.HEADER.size + count * layout.SECTION.size)
        table = b""
        for kind, n, data in sections:
            table += layout.SECTION.pack(kind, n, offset, len(data))
            offset = aligned(offset + len(data))
        tables_end = offset
        if weight_bytes:
            table += layout.SECTION.pack(Section.WEIGHTS, len(self.plan.weights), offset, weight_bytes)
        out = bytearray(tables_end + weight_bytes)
        out[layout.HEADER.size : layout.HEADER.size + len(table)] = table
        offset = aligned(layout.HEADER.size + count * layout.SECTION.size)
        for _, _, data in sections:
            out[offset : offset + len(data)] = data
            offset = aligned(offset + len(data))
        room = np.frombuffer(out, np.uint8)
        for w in self.plan.weights:
            if w.offset % ALIGNMENT:
                raise PlanError(f"a weight at {w.offset} is not aligned")
            flat = np.ascontiguousarray(w.data).reshape(-1).view(np.uint8)
            room[tables_end + w.offset : tables_end + w.offset + flat.size] = flat
        view = memoryview(out)
        plan = self.plan
        header = layout.HEADER.pack(
            layout.MAGIC, layout.VERSION, layout.ARCHES[plan.arch], len(out), plan.arena_bytes,
            plan.thread_scratch_bytes, len(plan.symbols), count, layout.fnv1a(view[layout.HEADER.size : tables_end]),
            _weights_checksum(view[tables_end:]), len(plan.inputs), len(plan.outputs),
        )  # fmt: skip
        view.release()
        del room
        out[: layout.HEADER.size] = header
        return out


def _word(value: object, node: str) -> int:
    """A parameter as a signed 32-bit word."""
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, float | np.floating):
        return int(struct.unpack("<i", struct.pack("<f", np.float32(value)))[0])
    if isinstance(value, int | np.integer) and -(1 << 31) <= value < 1 << 31:
        return int(value)
    raise PlanError(f"parameter {value!r} of node {node!r} does not fit into a 32-bit word")


def _weights_checksum(data: memoryview) -> int:
    """By the C function where the library is there: Python needs a second for each 100 MB."""
    if len(data) > 1 << 20:
        from edgerun.backends.native.binding import checksum_words

        found = checksum_words(data)
        if found is not None:
            return found
    return layout.fnv1a_words(data)
