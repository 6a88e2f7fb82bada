"""Which tensors share memory: views, results in place, pieces of a concatenation.

Each computed tensor gets a Location: a root (the tensor whose storage it lies in), a byte offset and perhaps a row
stride. Tensors of one root are placed and live together. The rules are applied in this order, each only where it
cannot change a value: reshapes; slices and concatenations (`NativeNode.placements`); results in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edgerun.backends.native.lowering import NativeNode, NativeTensor, Placement
from edgerun.dims import Bounds, DimLike, bounds, free_symbols, product, shape_text
from edgerun.errors import PlanError
from edgerun.graph import Tensor

AnyTensor = Tensor | NativeTensor
SLICE_KEEPS = 4
"""A slice stays a view only when the storage it keeps alive is at most this many times larger, or lives on anyway."""


@dataclass(frozen=True, slots=True)
class Location:
    """Bytes `offset` onwards of the storage of tensor `root`; `ld` elements from row to row, None when dense."""

    root: str
    offset: int = 0
    ld: DimLike | None = None


@dataclass(slots=True)
class Storages:
    """Where every tensor lies, and which nodes need no kernel. `first`, `last`: steps in which a tensor is needed."""

    where: dict[str, Location] = field(default_factory=dict)
    elided: set[int] = field(default_factory=set)
    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)


class _Finder:
    def __init__(
        self,
        nodes: Sequence[NativeNode],
        tensors: Mapping[str, AnyTensor],
        inputs: Sequence[str],
        outputs: Sequence[str],
        symbols: Mapping[str, Bounds],
        states: Mapping[str, str],
    ) -> None:
        self.states = states
        self.nodes, self.tensors, self.symbols = nodes, tensors, symbols
        self.inputs, self.outputs = set(inputs), set(outputs)
        self.producer: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        self.result = Storages()
        self.members: dict[str, list[str]] = {}
        self.sizes: dict[str, int] = {}
        self._collect(inputs, outputs)

    def _collect(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        r, end = self.result, len(self.nodes)
        for name in inputs:
            self._define(name, -1)
        for step, node in enumerate(self.nodes):
            for name in node.inputs:
                if not name or self.weight(name):
                    continue
                if name not in r.first:
                    raise PlanError(f"node {node.name!r} ({node.kernel}) reads {name!r} before it is computed")
                r.last[name] = step
                self.readers.setdefault(name, []).append(step)
            for name in node.outputs:
                if name:
                    self._define(name, step)
                    self.producer[name] = step
        for name in outputs:
            if name not in r.first and not self.weight(name):
                raise PlanError(f"output {name!r} is never computed")
            if name in r.first:
                r.last[name] = end
        for name in self.states:
            r.last[name] = end

    def _define(self, name: str, step: int) -> None:
        if name in self.result.first:
            raise PlanError(f"tensor {name!r} is computed twice")
        self.result.first[name] = self.result.last[name] = step
        self.result.where[name] = Location(name)
        self.members[name] = [name]

    # -- facts
    def weight(self, name: str) -> bool:
        return self.tensors[name].data is not None

    def shape(self, name: str) -> tuple[DimLike, ...]:
        shape = self.tensors[name].shape
        if shape is None:
            raise PlanError(f"the rank of tensor {name!r} is not known")
        return shape

    def size(self, name: str) -> int:
        """Largest size in bytes of the tensor itself."""
        if name not in self.sizes:
            tensor = self.tensors[name]
            self.sizes[name] = most_elements(name, tensor, self.symbols) * tensor.dtype.itemsize
        return self.sizes[name]

    def is_root(self, name: str) -> bool:
        return self.result.where.get(name) == Location(name)

    def is_strided(self, root: str) -> bool:
        return any(self.result.where[m].ld is not None for m in self.members[root])

    def last_of(self, root: str) -> int:
        return max(self.result.last[m] for m in self.members[root])

    def attach(self, root: str, to: Location) -> None:
        """Move a whole storage into another."""
        for name in self.members.pop(root):
            old = self.result.where[name]
            self.result.where[name] = Location(to.root, to.offset + old.offset, old.ld if to.ld is None else to.ld)
            self.members[to.root].append(name)

    # -- rules
    def reshapes(self) -> None:
        for step, node in enumerate(self.nodes):
            if not node.view:
                continue
            source, result = node.inputs[0], node.outputs[0]
            if self.weight(source):
                self.result.where[result] = Location(source)
                self.members.pop(result)
            elif source in self.result.where and self.result.where[source].root not in self.members:
                self.result.where[result] = self.result.where[source]  # a view of a view of a weight
                self.members.pop(result)
            else:
                self.attach(result, self.result.where[source])
            self.result.elided.add(step)

    def placements(self) -> None:
        for step, node in enumerate(self.nodes):
            if not node.placements:
                continue
            if all(p.outer in node.inputs for p in node.placements):
                done = self._slice(node, step)
            else:
                done = self._concat(node, step)
            if done:
                self.result.elided.add(step)

    def _strided_fits(self, name: str, step: int, *, as_input: bool) -> bool:
        """Whether everybody who touches `name`, other than node `step`, can cope with a row stride."""
        if self.members.get(name) != [name] or name in self.outputs or name in self.inputs:
            return False
        for reader in self.readers.get(name, []):
            node = self.nodes[reader]
            slots = [i for i, n in enumerate(node.inputs) if n == name]
            if reader != step and not all(i in node.strided_inputs for i in slots):
                return False
        maker = self.nodes[self.producer[name]]
        return not as_input or maker.outputs.index(name) in maker.strided_outputs

    def _target(self, p: Placement) -> Location | None:
        """Where `inner` would go, None when that is not a constant place or not possible."""
        outer = self.result.where.get(p.outer)
        if outer is None or outer.ld is not None or not isinstance(p.offset, int) or outer.root not in self.members:
            return None
        offset = outer.offset + p.offset * self.tensors[p.outer].dtype.itemsize
        return Location(outer.root, offset, self.shape(p.outer)[-1] if p.strided else None)

    def _slice(self, node: NativeNode, step: int) -> bool:
        targets = [self._target(p) for p in node.placements]
        for p, target in zip(node.placements, targets, strict=True):
            if target is None or not self.is_root(p.inner):
                return False
            if p.strided and not self._strided_fits(p.inner, step, as_input=False):
                return False
        kept = sum(self.size(p.inner) for p in node.placements)
        outer = self.result.where[node.placements[0].outer].root
        longest = max(self.last_of(p.inner) for p in node.placements)
        if longest > self.last_of(outer) and kept * SLICE_KEEPS < self.size(outer):
            return False
        for p, target in zip(node.placements, targets, strict=True):
            assert target is not None
            self.attach(p.inner, target)
        return True

    def _concat(self, node: NativeNode, step: int) -> bool:
        inners = [p.inner for p in node.placements]
        targets = [self._target(p) for p in node.placements]
        outer = node.placements[0].outer
        if len(set(inners)) != len(inners) or set(inners) != {i for i in node.inputs if i}:
            return False
        if not self.is_root(outer) or any(p.outer != outer for p in node.placements):
            return False
        for p, target in zip(node.placements, targets, strict=True):
            if target is None or self.weight(p.inner) or not self.is_root(p.inner):
                return False
            if self.is_strided(p.inner) or self.size(p.inner) != self._root_size(p.inner):
                return False
            if p.strided and not self._strided_fits(p.inner, step, as_input=True):
                return False
        for p, target in zip(node.placements, targets, strict=True):
            assert target is not None
            self.attach(p.inner, target)
        return True

    def _root_size(self, root: str) -> int:
        return max(self.result.where[m].offset + self.size(m) for m in self.members[root])

    def keep_states(self) -> None:
        """The next value of a state is computed in its place, by the last node that reads the state."""
        for state, after in self.states.items():
            step = self.producer.get(after, -1)
            pairs = self.nodes[step].in_place if step >= 0 else ()
            fits = any(self.nodes[step].outputs[o] == after and self.nodes[step].inputs[i] == state for o, i in pairs)
            if not fits or max(self.readers[state]) > step or not (self.is_root(state) and self.is_root(after)):
                raise PlanError(f"the next value {after!r} of state {state!r} cannot be computed in its place")
            self.attach(after, Location(state))

    def in_place(self) -> None:
        for step, node in enumerate(self.nodes):
            if step in self.result.elided:
                continue
            for out, source in node.in_place:
                if self._try_in_place(node, step, out, source):
                    break

    def _try_in_place(self, node: NativeNode, step: int, out: int, source: int) -> bool:
        a, b = node.outputs[out], node.inputs[source]
        if not a or not b or self.weight(b) or self.result.where[b].root not in self.members:
            return False
        place_a, place_b = self.result.where[a], self.result.where[b]
        if place_a.root == place_b.root or place_a.ld is not None or place_b.ld is not None:
            return False
        ta, tb = self.tensors[a], self.tensors[b]
        if ta.dtype.itemsize != tb.dtype.itemsize or product(self.shape(a)) != product(self.shape(b)):
            return False
        if self._overwritten_too_early(node, step, out, b):
            return False
        whole_b = place_b.offset == 0 and self._root_size(place_b.root) == self.size(b)
        if self.is_root(a) and whole_b and self._root_size(a) == self.size(a):
            self.attach(a, place_b)
            return True
        # The result has its place already (a piece of a concatenation): let the operand be computed there.
        if whole_b and not self.is_strided(place_b.root) and self._unused_until(place_a, a, place_b.root):
            self.attach(place_b.root, place_a)
            return True
        return False

    def _overwritten_too_early(self, node: NativeNode, step: int, out: int, b: str) -> bool:
        """Whether somebody needs the bytes of `b` after node `step`, or this node reads them in another way."""
        place = self.result.where[b]
        start, end = place.offset, place.offset + self.size(b)
        sharing = []
        for m in self.members[place.root]:
            other = self.result.where[m]
            if other.ld is not None or (other.offset < end and start < other.offset + self.size(m)):
                sharing.append(m)
        if any(self.result.last[m] > step for m in sharing):
            return True
        allowed = {i for o, i in node.in_place if o == out and node.inputs[i] == b}
        return any(n in sharing and i not in allowed for i, n in enumerate(node.inputs))

    def _unused_until(self, place: Location, name: str, other: str) -> bool:
        """Whether nothing that shares bytes with `name` is alive while the storage `other` is."""
        start, end = place.offset, place.offset + self.size(name)
        first = min(self.result.first[m] for m in self.members[other])
        for m in self.members[place.root]:
            p = self.result.where[m]
            shares = p.ld is not None or (p.offset < end and start < p.offset + self.size(m))
            if shares and m != name and m not in self._fed_by_pieces(place.root) and self.result.last[m] >= first:
                if self.result.first[m] <= self.result.last[name]:
                    return False
        return True

    def _fed_by_pieces(self, root: str) -> set[str]:
        """Results of elided concatenations in this storage: they come to life with their last piece."""
        return {o for s in self.result.elided for o in self.nodes[s].outputs if self.result.where[o].root == root}


def most_elements(name: str, tensor: AnyTensor, symbols: Mapping[str, Bounds]) -> int:
    """The largest number of elements of a tensor. Raises PlanError when there is none."""
    if tensor.shape is None:
        raise PlanError(f"the rank of tensor {name!r} is not known")
    high = bounds(product(tensor.shape), symbols)[1]
    limit = getattr(tensor, "most", None)
    if high is None and limit is None:
        raise unbounded(name, tensor.shape)
    return min(n for n in (high, limit) if n is not None)


def unbounded(name: str, shape: Sequence[DimLike]) -> PlanError:
    """The error for a tensor whose size has no upper bound."""
    symbols = sorted({s for d in shape for s in free_symbols(d)})
    return PlanError(
        f"tensor {name!r} {shape_text(shape)} has no largest size",
        hint="give bounds, such as --dim " + " --dim ".join(f"{s}=1..8" for s in symbols),
    )


def find_storages(
    nodes: Sequence[NativeNode],
    tensors: Mapping[str, AnyTensor],
    inputs: Sequence[str],
    outputs: Sequence[str],
    symbols: Mapping[str, Bounds],
    *,
    share: bool = True,
    states: Mapping[str, str] | None = None,
) -> Storages:
    """Decide where tensors lie relative to each other. `share` false: only reshapes share memory (for comparison).

    `states`: input name -> the tensor with its next value.

    Raises PlanError when a tensor is read before it is computed, computed twice, or has no largest size.
    """
    finder = _Finder(nodes, tensors, inputs, outputs, symbols, states or {})
    finder.keep_states()
    finder.reshapes()
    if share:
        finder.placements()
        finder.in_place()
    return finder.result
