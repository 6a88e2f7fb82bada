"""How passes edit a graph: walk the nodes in order, keep, replace or drop each, and let names follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from edgerun.dims import Dim
from edgerun.graph import Graph, Node, Tensor, captured
from edgerun.ops.registry import TensorType, spec, tensor_type
from edgerun.ops.values import infer_values


class Editor:
    """One walk over `graph`. Usage:

        editor = Editor(graph)
        for node in editor:
            if can_improve(node):
                new = editor.emit("reshape", [...], to=...)
                editor.replace(node.outputs[0], new)   # node itself is dropped
            else:
                editor.keep(node)
        editor.finish()

    Nodes seen so far are found through `producer`; use counts are those of the graph before the walk, kept up to date.
    """

    def __init__(self, graph: Graph, outer: dict[str, Tensor] | None = None) -> None:
        self.graph = graph
        self.outer = outer or {}
        self.changed = False
        self._source = list(graph.nodes)
        self._made: dict[int, Node] = {}
        self._producer: dict[str, tuple[int, Node]] = {}
        self._alias: dict[str, str] = {}
        self._next = 0
        self.uses: Counter[str] = graph.use_counts()
        self.name = ""

    def __iter__(self) -> Iterator[Node]:
        for node in self._source:
            if self._alias:
                node.inputs = [self.resolve(i) for i in node.inputs]
                for sub in node.subgraphs():
                    self._rename_captures(sub)
            self.name = node.name
            kept_before = self._next
            yield node
            if not any(self._made.get(i) is node for i in range(kept_before, self._next)):
                self._release(node)

    def _release(self, node: Node) -> None:
        """The node is gone: it no longer reads its inputs."""
        self.uses.subtract(i for i in node.inputs if i)
        self.uses.subtract(captured(node))

    def _rename_captures(self, graph: Graph) -> None:
        for old in list(self._alias):
            if old not in graph.tensors:
                graph.replace_uses(old, self.resolve(old))

    # -- queries
    def resolve(self, name: str) -> str:
        """The current name of a tensor after replacements."""
        while name in self._alias:
            name = self._alias[name]
        return name

    def tensor(self, name: str) -> Tensor:
        return self.graph.tensors[name] if name in self.graph.tensors else self.outer[name]

    def type(self, name: str) -> TensorType:
        return tensor_type(self.tensor(name))

    def constant(self, name: str) -> np.ndarray | None:
        """The data of a weight (of this graph or one around it), else None."""
        if not name:
            return None
        found = self.graph.tensors.get(name) or self.outer.get(name)
        return found.data if found is not None else None

    def producer(self, name: str) -> Node | None:
        """The kept or emitted node that computes `name`; None for inputs and weights."""
        found = self._producer.get(name)
        return found[1] if found else None

    def position(self, name: str) -> int | None:
        """Place of the producer of `name` in the order so far; None for inputs and weights."""
        found = self._producer.get(name)
        return found[0] if found else None

    def only_use(self, name: str) -> bool:
        """Whether exactly one input slot reads `name`, and it is no graph output."""
        return self.uses[name] == 1 and name not in self.graph.outputs

    # -- edits
    def keep(self, node: Node) -> None:
        """Let the node stand, at this place in the order."""
        self._made[self._next] = node
        for out in node.outputs:
            if out:
                self._producer[out] = (self._next, node)
        self._next += 1

    def emit(self, op: str, inputs: Sequence[str], *, outputs: int | None = None, **attrs: Any) -> str:
        """Add a node before the current one; returns its first output. Types come from the shape rule."""
        types = [self.type(i) if i else None for i in inputs]
        results = infer_values(op, types, attrs, self.name)
        defaults = spec(op).attributes
        names = []
        for result in results[: outputs or len(results)]:
            name = self._fresh(self.name or op)
            self.graph.add_tensor(name, result.dtype, result.shape, kind=result.kind)
            names.append(name)
        stored = {k: v for k, v in attrs.items() if isinstance(v, Graph) or not _same(v, defaults.get(k))}
        self.uses.update(i for i in inputs if i)
        self.changed = True
        self.keep(Node(op, list(inputs), names, stored, self.name))
        return names[0]

    def _fresh(self, hint: str) -> str:
        """A name that is free and was not renamed away in this pass: readers of the old tensor still use that."""
        name = self.graph.fresh(hint)
        while name in self._alias:
            hint += "+"
            name = self.graph.fresh(hint)
        return name

    def const(self, array: np.ndarray, hint: str = "const") -> str:
        """A new weight."""
        return self.graph.add_constant(np.ascontiguousarray(array) if array.ndim else array, self.graph.fresh(hint))

    def drop(self, node: Node) -> None:
        """Remove an already kept node, when its outputs are no longer read."""
        index, found = self._producer[node.outputs[0]]
        assert found is node
        del self._made[index]
        self._release(node)
        for out in node.outputs:
            self._producer.pop(out, None)
        self.changed = True

    def replace(self, old: str, new: str) -> None:
        """Everybody who reads `old` (an output of the current, dropped node) reads `new` from here on.

        Names of graph outputs survive: the producer of `new` is renamed, or a copy is made when `new` is an input,
        a weight, or a graph output itself.
        """
        self.changed = True
        if old in self.graph.outputs:
            made = self._producer.get(new)
            shape = self.graph.tensors[old].shape
            if made is not None and new not in self.graph.outputs and new not in self.graph.inputs:
                self._rename(new, old, made[1])
                return
            if shape is not None:
                copy = Node("reshape", [new], [old], {"to": shape}, self.name)
            else:
                copy = Node("elementwise", [new], [old], {"program": (("cast", self.tensor(new).dtype, 0),)}, self.name)
            self.uses[new] += 1
            self.keep(copy)
            return
        self.uses[new] += self.uses.pop(old, 0)
        self._alias[old] = new

    def _rename(self, name: str, to: str, maker: Node) -> None:
        tensor = self.graph.tensors.pop(name)
        tensor.name = to
        self.graph.tensors[to] = tensor
        maker.outputs = [to if o == name else o for o in maker.outputs]
        self._producer[to] = self._producer.pop(name)
        for node in self._made.values():
            node.inputs = [to if i == name else i for i in node.inputs]
            for sub in node.subgraphs():
                if name not in sub.tensors:
                    sub.replace_uses(name, to)
        self.uses[to] += self.uses.pop(name, 0)
        self._alias[name] = to

    def finish(self) -> bool:
        """Install the new node list and drop what nobody reads. Returns whether anything changed."""
        self.graph.nodes = [self._made[i] for i in sorted(self._made)]
        if self.changed:
            self.graph.prune()
        return self.changed


def _same(value: Any, default: Any) -> bool:
    if value is None or default is None:
        return value is default
    return type(value) is type(default) and value == default


def per_channel(array: np.ndarray, channels: int, rank: int) -> np.ndarray | None:
    """A constant that varies along the last axis only (or not at all), as [channels]; None when it varies elsewhere.

    `rank` is the rank of the tensor it is combined with: the constant must not add dimensions.
    """
    if array.ndim > rank or (array.ndim and any(d != 1 for d in array.shape[:-1])):
        return None
    flat = array.reshape(-1)
    if flat.size not in (1, channels):
        return None
    return np.broadcast_to(flat, (channels,))


def is_symbolic(value: Any) -> bool:
    """Whether an attribute value holds a Dim anywhere."""
    if isinstance(value, tuple | list):
        return any(is_symbolic(v) for v in value)
    return isinstance(value, Dim)


Pass = Callable[[Graph, "dict[str, Tensor]"], bool]
"""Edits the graph in place (types of enclosing graphs come second) and says whether anything changed."""
