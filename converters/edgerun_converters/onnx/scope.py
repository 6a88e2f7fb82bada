"""Names while importing: which source value is which tensor, lexically scoped, and the order nodes run in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import onnx

from edgerun.errors import ImportFailure
from edgerun_converters.onnx.builder import Builder

MAX_DEPTH = 24
"""Deepest nesting of sub-graphs and function calls."""


@dataclass
class Scope:
    """Source names of one graph, branch, body or function, on the way into `builder`'s graph."""

    builder: Builder
    opsets: Mapping[str, int]
    parent: Scope | None = None
    prefix: str = ""
    """Starts the name of every node and tensor made for this scope."""
    attributes: Mapping[str, onnx.AttributeProto] = field(default_factory=dict)
    """What attribute references mean, in the body of a function."""
    depth: int = 0
    names: dict[str, str | None] = field(default_factory=dict)
    """Source name -> tensor; None when the node that makes it could not be imported."""

    def lookup(self, name: str) -> str | None:
        """The tensor of a source value. Raises ImportFailure when no scope defines it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        raise ImportFailure(f"{name!r} is read but never defined")

    def define(self, name: str, tensor: str | None) -> None:
        """Say which tensor a source value is. Raises ImportFailure when the name is taken in this scope."""
        if name in self.names:
            raise ImportFailure(f"{name!r} is defined twice")
        self.names[name] = tensor

    def inner(self, builder: Builder, prefix: str) -> Scope:
        """The scope of a sub-graph: sees everything in this one. Raises ImportFailure when nested too deeply."""
        self.check_depth()
        return Scope(builder, self.opsets, self, prefix, self.attributes, self.depth + 1)

    def check_depth(self) -> None:
        if self.depth >= MAX_DEPTH:
            raise ImportFailure(f"sub-graphs or functions are nested more than {MAX_DEPTH} deep")


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The sub-graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def reads(node: onnx.NodeProto, depth: int = 0) -> set[str]:
    """Every name that a node reads, with what its sub-graphs capture. Raises ImportFailure when nested too deeply."""
    names = {i for i in node.input if i}
    for graph in subgraphs(node):
        if depth >= MAX_DEPTH:
            raise ImportFailure(f"sub-graphs are nested more than {MAX_DEPTH} deep")
        names |= captures(graph, depth + 1)
    return names


def captures(graph: onnx.GraphProto, depth: int = 0) -> set[str]:
    """Names that a sub-graph reads from outside."""
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    own |= {s.values.name for s in graph.sparse_initializer}
    own |= {o for node in graph.node for o in node.output}
    inside = {name for node in graph.node for name in reads(node, depth)} | {o.name for o in graph.output}
    return inside - own


def in_order(nodes: Iterable[onnx.NodeProto], where: str) -> list[onnx.NodeProto]:
    """The nodes so that each comes after those it reads from; as they are when they already do.

    Raises ImportFailure for a cycle, naming its nodes, and for a value that two nodes define.
    """
    nodes = list(nodes)
    maker: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.output:
            if name and maker.setdefault(name, index) != index:
                raise ImportFailure(f"{where}: {name!r} is defined by two nodes")
    needs = [{maker[name] for name in reads(node) if name in maker} for node in nodes]
    if all(all(source < index for source in sources) for index, sources in enumerate(needs)):
        return nodes
    return [nodes[i] for i in _sorted(needs, nodes, where)]


def _sorted(needs: list[set[int]], nodes: list[onnx.NodeProto], where: str) -> list[int]:
    """Depth-first topological order that follows the given order where it can."""
    order: list[int] = []
    state = [0] * len(needs)  # 1: on the current path, 2: done
    for root in range(len(needs)):
        if state[root]:
            continue
        path = [(root, iter(sorted(needs[root])))]
        state[root] = 1
        while path:
            index, sources = path[-1]
            for source in sources:
                if state[source] == 1:
                    loop = [i for i, _ in path][[i for i, _ in path].index(source) :]
                    names = " -> ".join(nodes[i].name or nodes[i].op_type for i in [*loop[:6], source])
                    raise ImportFailure(f"{where}: nodes form a cycle: {names}")
                if state[source] == 0:
                    state[source] = 1
                    path.append((source, iter(sorted(needs[source]))))
                    break
            else:
                state[index] = 2
                order.append(index)
                path.pop()
    return order
