"""The intermediate representation: a Graph of Nodes over named Tensors, in static single assignment.

Every tensor has a dtype; its shape is a tuple of dimensions, or None while the rank is unknown (only the NumPy backend
runs such tensors). Weights are tensors with `data`. Nodes are kept in execution order. A node's attributes are plain
Python values (bool, int, float, str, tuple, Dim, DType) or, for control flow, a sub-Graph, which may read
tensors of the graphs around it by name.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from edgerun.dims import Bounds, Dim, DimLike, free_symbols, shape_text
from edgerun.dtypes import DType, from_numpy
from edgerun.errors import EdgerunError, ShapeError

Shape: TypeAlias = "tuple[DimLike, ...]"


KINDS = ("tensor", "sequence", "optional", "optional_sequence", "map")
"""Kinds of value: a tensor, a sequence of tensors (or of maps), either one or nothing, a map to scalars."""


@dataclass(slots=True)
class Tensor:
    """A value in the graph. `data` is set for weights; `kind` tells tensors from sequences and optionals."""

    name: str
    dtype: DType
    shape: Shape | None
    data: np.ndarray | None = None
    kind: str = "tensor"
    """One of KINDS."""

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.short}{shape_text(self.shape)}"


@dataclass(slots=True)
class Node:
    """One core op applied to named tensors. An empty input name is an absent optional input."""

    op: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    """Where it comes from: the source node's name, joined by `+` when passes fuse nodes. For messages only."""

    def subgraphs(self) -> Iterator[Graph]:
        return (a for a in self.attrs.values() if isinstance(a, Graph))


@dataclass(slots=True)
class Graph:
    """A whole model, or a branch or body of a control-flow node."""

    name: str = "graph"
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    symbols: dict[str, Bounds] = field(default_factory=dict)
    """Known bounds of free symbols."""
    states: dict[str, int] = field(default_factory=dict)
    """Inputs that keep a value from run to run (a key/value cache), zero at first, and the number among the outputs of
    the value that each has after a run. Callers neither feed nor get them."""
    assets: dict[str, np.ndarray] = field(default_factory=dict)
    """Bytes (u8 [n]) that belong to the model without being computed with: the tokenizer."""
    meta: dict[str, Any] = field(default_factory=dict)
    """Provenance: source file, hash, opset, converter version, output names as the source wrote them."""

    # -- building
    def add_tensor(
        self, name: str, dtype: DType, shape: Shape | None, data: np.ndarray | None = None, kind: str = "tensor"
    ) -> Tensor:
        """Declare a tensor. Raises EdgerunError when the name is taken."""
        if name in self.tensors:
            raise EdgerunError(f"tensor {name!r} is defined twice")
        tensor = Tensor(name, dtype, shape, data, kind)
        self.tensors[name] = tensor
        return tensor

    def add_constant(self, array: np.ndarray, hint: str = "const") -> str:
        """Store a weight under a fresh name and return the name."""
        name = self.fresh(hint)
        self.add_tensor(name, from_numpy(array.dtype), tuple(array.shape), array)
        return name

    def fresh(self, hint: str) -> str:
        """A tensor name that is not in use, starting with `hint`."""
        if hint and hint not in self.tensors:
            return hint
        for i in itertools.count(len(self.tensors)):
            name = f"{hint}.{i}"
            if name not in self.tensors:
                return name
        raise AssertionError

    # -- queries
    @property
    def feeds(self) -> list[str]:
        """The inputs that a caller gives: all but states."""
        return [i for i in self.inputs if i not in self.states]

    @property
    def results(self) -> list[str]:
        """The outputs that a caller gets: all but the next values of states."""
        hidden = set(self.states.values())
        return [o for i, o in enumerate(self.outputs) if i not in hidden]

    def producers(self) -> dict[str, Node]:
        """Output tensor name -> the node that computes it."""
        return {out: node for node in self.nodes for out in node.outputs if out}

    def consumers(self) -> dict[str, list[Node]]:
        """Tensor name -> nodes that read it, including nodes whose sub-graphs capture it."""
        table: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys([*node.inputs, *captured(node)]):
                if name:
                    table.setdefault(name, []).append(node)
        return table

    def use_counts(self) -> Counter[str]:
        """How often each tensor is read, counting every input slot, capture and graph output."""
        counts: Counter[str] = Counter(self.outputs)
        for node in self.nodes:
            counts.update(i for i in node.inputs if i)
            counts.update(captured(node))
        return counts

    def constant(self, name: str) -> np.ndarray | None:
        """The data of a weight, or None when the tensor is computed (or the name empty)."""
        tensor = self.tensors.get(name)
        return tensor.data if tensor is not None else None

    def free_symbols(self) -> set[str]:
        """Symbols in the shapes of the inputs."""
        return {s for i in self.inputs for d in self.tensors[i].shape or () for s in free_symbols(d)}

    def weight_bytes(self) -> int:
        """Bytes of all weights, sub-graphs included."""
        total = sum(t.data.nbytes for t in self.tensors.values() if t.data is not None)
        return total + sum(g.weight_bytes() for n in self.nodes for g in n.subgraphs())

    # -- editing
    def replace_uses(self, old: str, new: str) -> None:
        """Let every reader of `old` (nodes, sub-graph captures, graph outputs) read `new` instead."""
        self.outputs = [new if o == old else o for o in self.outputs]
        for node in self.nodes:
            node.inputs = [new if i == old else i for i in node.inputs]
            for sub in node.subgraphs():
                if old not in sub.tensors:
                    sub.replace_uses(old, new)

    def prune(self) -> None:
        """Drop nodes and tensors that no output needs. Inputs stay. All nodes are pure, so this keeps every value."""
        needed = set(self.outputs)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if any(o in needed for o in node.outputs):
                needed.update(i for i in node.inputs if i)
                needed.update(captured(node))
                kept.append(node)
        self.nodes = kept[::-1]
        alive = needed | set(self.inputs) | {o for n in self.nodes for o in n.outputs if o}
        self.tensors = {k: t for k, t in self.tensors.items() if k in alive}

    def sort(self) -> None:
        """Put nodes into an execution order (stable). Raises EdgerunError on a cycle or an undefined tensor."""
        made = self.producers()
        order: list[Node] = []
        state: dict[int, int] = {}
        for root in self.nodes:
            stack = [(root, iter([*root.inputs, *captured(root)]))]
            if state.get(id(root)):
                continue
            state[id(root)] = 1
            while stack:
                node, sources = stack[-1]
                for source in sources:
                    parent = made.get(source)
                    if parent is None or state.get(id(parent)) == 2:
                        continue
                    if state.get(id(parent)) == 1:
                        raise EdgerunError(f"node {node.name!r} ({node.op}) is part of a cycle through {source!r}")
                    state[id(parent)] = 1
                    stack.append((parent, iter([*parent.inputs, *captured(parent)])))
                    break
                else:
                    state[id(node)] = 2
                    order.append(node)
                    stack.pop()
        self.nodes = order

    def copy(self) -> Graph:
        """A copy whose nodes, tensors and sub-graphs can be edited; weight data is shared."""
        return Graph(
            self.name,
            list(self.inputs),
            list(self.outputs),
            [
                Node(n.op, list(n.inputs), list(n.outputs), {k: _copy_attr(v) for k, v in n.attrs.items()}, n.name)
                for n in self.nodes
            ],
            {k: Tensor(t.name, t.dtype, t.shape, t.data, t.kind) for k, t in self.tensors.items()},
            dict(self.symbols),
            dict(self.states),
            dict(self.assets),
            copy.deepcopy(self.meta),
        )

    def check(self, outer: frozenset[str] = frozenset()) -> None:
        """Verify the invariants: single assignment, defined before use, declared tensors. Raises EdgerunError."""
        defined = set(outer) | set(self.inputs) | {k for k, t in self.tensors.items() if t.data is not None}
        for node in self.nodes:
            for name in [*node.inputs, *captured(node)]:
                if name and name not in defined:
                    raise EdgerunError(f"node {node.name!r} ({node.op}) reads {name!r} before it is defined")
            for sub in node.subgraphs():
                sub.check(frozenset(defined))
            for name in node.outputs:
                if not name:
                    continue
                if name in defined and name not in outer:
                    raise EdgerunError(f"tensor {name!r} is defined twice (node {node.name!r})")
                if name not in self.tensors:
                    raise EdgerunError(f"tensor {name!r} of node {node.name!r} has no type")
                defined.add(name)
        for name in self.outputs:
            if name not in defined:
                raise EdgerunError(f"graph output {name!r} is never computed")
        self._check_states()

    def _check_states(self) -> None:
        for name, index in self.states.items():
            if name not in self.inputs or not 0 <= index < len(self.outputs):
                raise EdgerunError(f"state {name!r} is no input, or its next value no output")
            before, after = self.tensors[name], self.tensors[self.outputs[index]]
            if before.dtype is not after.dtype or before.shape is None or before.shape != after.shape:
                raise EdgerunError(f"the next value of state {before} is {after}")
            if any(isinstance(d, Dim) for d in before.shape):
                raise EdgerunError(f"state {before} has no fixed shape")
        if len(set(self.states.values())) != len(self.states):
            raise EdgerunError("two states have one next value")

    def __str__(self) -> str:
        lines = [f"graph {self.name} ("]
        lines += [f"  {self.tensors[i]}" for i in self.inputs] + [")"]
        for node in self.nodes:
            outs = ", ".join(str(self.tensors.get(o, o)) for o in node.outputs)
            attrs = ", ".join(f"{k}={_attr_text(v)}" for k, v in node.attrs.items())
            lines.append(f"  {outs} = {node.op}({', '.join(node.inputs)}{'; ' if attrs else ''}{attrs})")
        return "\n".join([*lines, f"return {', '.join(self.outputs)}"])


def captured(node: Node) -> set[str]:
    """Names of tensors that the node's sub-graphs read from outside themselves."""
    names: set[str] = set()
    for sub in node.subgraphs():
        for inner in sub.nodes:
            names.update(i for i in inner.inputs if i and i not in sub.tensors)
            names.update(n for n in captured(inner) if n not in sub.tensors)
        names.update(o for o in sub.outputs if o not in sub.tensors)
    return names


def concrete_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape as numbers. Raises ShapeError naming the tensor when it is symbolic or of unknown rank."""
    if tensor.shape is None:
        raise ShapeError(f"the rank of tensor {tensor.name!r} is not known")
    for d in tensor.shape:
        if isinstance(d, Dim):
            raise ShapeError(
                f"tensor {tensor} has the symbolic dimension {d}", hint="bind it with --shape NAME=... or --dim"
            )
    return tuple(int(d) for d in tensor.shape)


def _copy_attr(value: Any) -> Any:
    return value.copy() if isinstance(value, Graph) else value


def _attr_text(value: Any) -> str:
    if isinstance(value, Graph):
        return "<graph>"
    if isinstance(value, DType):
        return value.short
    return str(value)
