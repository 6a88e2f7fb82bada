"""Graph to plan to running model: lowering, memory planning, plan bytes, C runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgerun.backends.native.binding import NativeModel, host_arch
from edgerun.backends.native.lowering import BIND_SIZES, SKIP, Lowering, NativeNode, Param
from edgerun.backends.native.sizes import declared_sizes
from edgerun.dims import Dim, DimLike, free_symbols, shape_text
from edgerun.errors import UnsupportedError
from edgerun.graph import Graph
from edgerun.plan import Plan, PlanNode, PlanReader, PlanTensor, Space, SymbolBounds, Weight, write
from edgerun.plan.layout import NATIVE_DTYPES, aligned
from edgerun.planner import MemoryPlan, plan_memory
from edgerun.planner.storage import AnyTensor
from edgerun.session import PortInfo, Session

MAX_DIM = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Compiled:
    """A plan with what was decided on the way."""

    plan: bytes
    memory: MemoryPlan
    nodes: list[NativeNode]
    """Of the lowered graph; `memory.order` says which of them became nodes of the plan."""


def compile_plan(graph: Graph, arch: str, *, options: Mapping[str, object] | None = None) -> Compiled:
    """Compile a graph for an architecture.

    `options` go to the lowering; `share_memory` (default true) lets tensors share memory beyond reshapes. Raises
    UnsupportedError listing every node that cannot be lowered, and for free dimensions without an upper bound.
    """
    _check_bounds(graph)
    lowering = Lowering(graph, arch, dict(options or {}))
    lowering.definitions.update(declared_sizes(graph))
    lowering.run()
    tensors = _all_tensors(graph, lowering)
    _check_types(graph, lowering, tensors)
    share = bool((options or {}).get("share_memory", True))
    after = {name: graph.outputs[index] for name, index in graph.states.items()}
    memory = plan_memory(
        lowering.nodes, tensors, graph.inputs, graph.outputs, lowering.symbols, share=share, states=after
    )
    return Compiled(write(_Assembler(graph, lowering, tensors, memory, arch).plan), memory, lowering.nodes)


def _all_tensors(graph: Graph, lowering: Lowering) -> dict[str, AnyTensor]:
    """All tensors, with the sizes that the data decide in terms of the plan's symbols."""
    tensors: dict[str, AnyTensor] = {**graph.tensors, **lowering.tensors}
    if lowering.definitions:
        for name, t in tensors.items():
            if t.shape is not None and any(isinstance(d, Dim) for d in t.shape):
                tensors[name] = replace(t, shape=lowering.shape(name))
    return tensors


def build_plan(graph: Graph, arch: str, *, options: Mapping[str, object] | None = None) -> bytes:
    """The plan's bytes; arguments and errors as for `compile_plan`."""
    return compile_plan(graph, arch, options=options).plan


def _check_bounds(graph: Graph) -> None:
    """Every free dimension has a largest size: the arena is planned for it."""
    open_ended = sorted(s for s in graph.free_symbols() if graph.symbols.get(s, (0, None))[1] is None)
    if open_ended:
        raise UnsupportedError(
            "the native backend needs the largest size of each free dimension: " + ", ".join(open_ended),
            problems=[f"dimension {s} has no upper bound" for s in open_ended],
            hint="give " + " ".join(f"--dim {s}=LOW..HIGH" for s in open_ended),
        )


def _check_types(graph: Graph, lowering: Lowering, tensors: Mapping[str, AnyTensor]) -> None:
    used = [*graph.inputs, *graph.outputs, *(t for n in lowering.nodes for t in (*n.inputs, *n.outputs) if t)]
    problems = []
    free = graph.free_symbols() | lowering.symbols.keys()
    for name in dict.fromkeys(used):
        t = tensors[name]
        if t.dtype.code not in NATIVE_DTYPES or getattr(t, "kind", "tensor") != "tensor":
            problems.append(f"tensor {name!r} has the type {getattr(t, 'kind', 'tensor')} of {t.dtype.short}")
        elif t.shape is None:
            problems.append(f"the rank of tensor {name!r} depends on the data")
        elif any(free_symbols(d) - free for d in t.shape):
            problems.append(f"the size of tensor {name!r} {shape_text(t.shape)} depends on the data")
    if problems:
        raise UnsupportedError(
            "the native backend cannot run this model: " + "; ".join(problems[:20]), problems=problems,
            hint="use --backend numpy",
        )  # fmt: skip


class _Assembler:
    """Turns the lowered nodes and their memory plan into a Plan."""

    def __init__(
        self,
        graph: Graph,
        lowering: Lowering,
        tensors: Mapping[str, AnyTensor],
        memory: MemoryPlan,
        arch: str,
    ) -> None:
        self.graph, self.lowering, self.tensors, self.memory = graph, lowering, tensors, memory
        self.numbers: dict[str, int] = {}
        self.weight_bytes = 0
        self.plan = Plan(arch, arena_bytes=memory.arena_bytes, thread_scratch_bytes=memory.thread_scratch_bytes)
        if "tokenizer" in graph.assets:
            self.plan.tokenizer = graph.assets["tokenizer"].tobytes()
        self.plan.symbols = self._symbols()
        self.plan.inputs = [(self._number(name), name) for name in graph.feeds]
        for index in memory.order:
            self.plan.nodes.append(self._node(index, lowering.nodes[index]))
        self.plan.outputs = [(self._number(name), name) for name in graph.results]

    def _symbols(self) -> list[SymbolBounds]:
        """The free dimensions of the inputs, in the order in which they appear, then those that the data decide."""
        names: dict[str, None] = {}
        bare: set[str] = set()
        for name in self.graph.inputs:
            for d in self.tensors[name].shape or ():
                names.update(dict.fromkeys(sorted(free_symbols(d))))
                if not isinstance(d, int) and d.is_symbol:
                    bare.add(str(d))
        hidden = [n for n in names if n not in bare]
        if hidden:
            raise UnsupportedError(f"no input has the dimension {hidden[0]} itself, only expressions of it")
        found = []
        given = [p.name for n in self.lowering.nodes if n.kernel == BIND_SIZES for p in n.params[2:]]  # type: ignore
        for name in [*names, *given]:
            low, high = self.lowering.symbols[name]
            assert high is not None, "checked by _check_bounds"
            found.append(SymbolBounds(name, low or 0, min(high, MAX_DIM)))
        return found

    def _number(self, name: str) -> int:
        """The tensor's number in the plan; weights are stored when they are first used."""
        if not name:
            return -1
        if name not in self.numbers:
            record = self._weight(name) if self.tensors[name].data is not None else self._computed(name)
            self.numbers[name] = len(self.plan.tensors)
            self.plan.tensors.append(record)
        return self.numbers[name]

    def _weight(self, name: str) -> PlanTensor:
        t = self.tensors[name]
        assert t.data is not None
        data = np.asarray(t.data, order="C")
        offset = aligned(self.weight_bytes)
        self.weight_bytes = offset + data.nbytes
        self.plan.weights.append(Weight(offset, data))
        return PlanTensor(name, t.dtype, tuple(data.shape), Space.WEIGHTS, offset, data.nbytes)

    def _computed(self, name: str) -> PlanTensor:
        t, place = self.tensors[name], self.memory.places[name]
        shape: tuple[DimLike, ...] = t.shape or ()
        if place.weight is not None:
            data = self.plan.tensors[self._number(place.weight)]
            return PlanTensor(name, t.dtype, shape, Space.WEIGHTS, data.offset, data.bytes, view=True)
        return PlanTensor(name, t.dtype, shape, Space.ARENA, place.offset, place.bytes, place.ld, place.view)

    def _node(self, index: int, node: NativeNode) -> PlanNode:
        inputs = tuple(self._number(t) for t in node.inputs)
        outputs = tuple(self._number(t) for t in node.outputs)
        scratch, size = self.memory.scratch.get(index, (0, 0))
        return PlanNode(
            node.kernel, inputs, outputs, self._params(index, node), node.name, scratch, size, node.max_threads
        )  # fmt: skip

    def _params(self, index: int, node: NativeNode) -> tuple[Param, ...]:
        """The parameters; nodes that are passed over count only where they became nodes of the plan."""
        if node.kernel != SKIP:
            return tuple(node.params)
        wanted, count = node.params
        assert isinstance(count, int)
        return wanted, sum(index < i <= index + count for i in self.memory.order)


# -- running


class NativeRunner:
    """What a Session holds: the loaded model, and the graph's decisions when it was compiled here."""

    def __init__(self, model: NativeModel, compiled: Compiled | None = None) -> None:
        self.model = model
        self.compiled = compiled

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """See NativeModel.run."""
        return self.model.run(inputs)

    def profile(self, inputs: Mapping[str, Any], runs: int = 20) -> list[dict[str, Any]]:
        """See NativeModel.profile."""
        return self.model.profile(inputs, runs)

    def intermediates(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Every tensor that a kernel computes, by name."""
        return self.model.intermediates(inputs)

    @property
    def isa(self) -> str:
        """The ISA level in use."""
        return self.model.isa

    @property
    def threads(self) -> int:
        """How many threads work."""
        return self.model.threads


def compile_graph(graph: Graph, *, threads: int = 1, isa: str | None = None, **options: Any) -> NativeRunner:
    """Compile a graph for this machine and load it. `options` as for `compile_plan`; errors of both steps."""
    compiled = compile_plan(graph, host_arch(), options=options)
    model = NativeModel(compiled.plan, threads)
    if isa is not None:
        model.isa = isa
    return NativeRunner(model, compiled)


def open_plan(path: str | os.PathLike[str], *, threads: int = 1) -> Session:
    """A session for a plan file or a packed executable, mapped and used in place.

    Raises FileFormatError, InputOutputError, and UnsupportedError when it is for another architecture.
    """
    from edgerun.packed import map_plan

    plan = map_plan(path)
    model = NativeModel(plan, threads)
    reader = PlanReader(plan)
    ports = [_port(reader, number, name) for number, name in (*reader.inputs, *reader.outputs)]
    count = len(reader.inputs)
    session = Session(ports[:count], ports[count:], NativeRunner(model), "native", None)
    session.meta = reader.manifest
    if reader.tokenizer is not None:
        session.assets["tokenizer"] = np.frombuffer(reader.tokenizer, np.uint8)
    return session


def _port(reader: PlanReader, number: int, name: str) -> PortInfo:
    return PortInfo(name, reader.tensors[number].dtype, reader.shape(number))
