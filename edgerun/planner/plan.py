"""The memory plan of a lowered graph: a place for every tensor and every node's scratch, and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgerun.backends.native.lowering import BIND_SIZES, SKIP, NativeNode
from edgerun.dims import Bounds, DimLike, bounds
from edgerun.errors import PlanError
from edgerun.plan.layout import aligned
from edgerun.planner.arena import Block, extent, live_bytes, lower_bound, place
from edgerun.planner.order import order_for_memory
from edgerun.planner.storage import AnyTensor, Storages, find_storages, most_elements

WORTH_REORDERING = 0.97
"""Another order is taken when its arena is at most this share: neighbours in the given order share the cache."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a computed tensor lies. `weight` is the weight that it is a view of, None for the arena."""

    offset: int
    bytes: int
    ld: DimLike | None
    view: bool
    weight: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes throughout. `order`: the nodes that need a kernel, as indices into the lowered nodes, as they shall run."""

    order: list[int]
    places: dict[str, TensorPlace]
    scratch: dict[int, tuple[int, int]]
    """Node index to (offset, bytes)."""
    arena_bytes: int
    thread_scratch_bytes: int
    lower_bound: int
    peak_node: int
    """Index of the node at which most is alive."""
    live: list[int]
    """Live bytes at each node."""
    algorithm: str

    @property
    def gap_percent(self) -> float:
        """How much larger the arena is than the lower bound."""
        return 100.0 * (self.arena_bytes - self.lower_bound) / self.lower_bound if self.lower_bound else 0.0


def plan_memory(
    nodes: Sequence[NativeNode],
    tensors: Mapping[str, AnyTensor],
    inputs: Sequence[str],
    outputs: Sequence[str],
    symbols: Mapping[str, Bounds],
    *,
    share: bool = True,
    states: Mapping[str, str] | None = None,
) -> MemoryPlan:
    """Place everything for the largest sizes that the bounds of the symbols allow; in the given order, or in one that
    needs clearly less memory (`order` tells). With branches, or sizes that the data decide, the order stays as given.

    `states`: input name -> the tensor with its next value, which is computed in its place; nothing else lies there.

    Raises PlanError when a size has no bound or a tensor is read before it is computed.
    """
    given = _plan_in_order(nodes, tensors, inputs, outputs, symbols, share, states or {})
    if any(n.kernel in (SKIP, BIND_SIZES) for n in nodes):
        return given
    order = order_for_memory(nodes, {n: given.places[n].bytes for n in given.places}, outputs)
    if order == list(range(len(nodes))) or len(order) != len(nodes):
        return given
    other = _plan_in_order([nodes[i] for i in order], tensors, inputs, outputs, symbols, share, states or {})
    if other.arena_bytes > WORTH_REORDERING * given.arena_bytes:
        return given
    step_of = {node: step for step, node in enumerate(order)}
    return replace(
        other,
        order=[order[i] for i in other.order],
        scratch={order[i]: s for i, s in other.scratch.items()},
        peak_node=order[other.peak_node],
        live=[other.live[step_of[i]] for i in range(len(nodes))],
    )


def _plan_in_order(
    nodes: Sequence[NativeNode],
    tensors: Mapping[str, AnyTensor],
    inputs: Sequence[str],
    outputs: Sequence[str],
    symbols: Mapping[str, Bounds],
    share: bool,
    states: Mapping[str, str],
) -> MemoryPlan:
    storages = find_storages(nodes, tensors, inputs, outputs, symbols, share=share, states=states)
    sizes = {name: _tensor_bytes(name, tensors, symbols) for name in storages.where}
    roots = _root_blocks(storages, tensors, sizes)
    scratch_sizes = _scratch_sizes(nodes, storages.elided, symbols)
    blocks = [*roots.values(), *(Block(size, step, step) for step, size in scratch_sizes.items())]
    offsets, algorithm = place(blocks)
    root_offsets = dict(zip(roots, offsets, strict=False))
    scratch_offsets = offsets[len(roots) :]
    places: dict[str, TensorPlace] = {}
    written = {o for i, n in enumerate(nodes) if i not in storages.elided for o in n.outputs}
    written |= set(inputs) - set(states)
    for name, at in storages.where.items():
        if at.root not in roots:
            places[name] = TensorPlace(0, sizes[name], None, True, weight=at.root)
            continue
        size = sizes[name] if at.ld is None else roots[at.root].size - at.offset
        places[name] = TensorPlace(root_offsets[at.root] + at.offset, size, at.ld, name not in written)
    live = live_bytes(blocks, len(nodes))
    return MemoryPlan(
        order=[i for i in range(len(nodes)) if i not in storages.elided],
        places=places,
        scratch={s: (o, scratch_sizes[s]) for s, o in zip(scratch_sizes, scratch_offsets, strict=True)},
        arena_bytes=extent(blocks, offsets),
        thread_scratch_bytes=max((aligned(_upper(n.thread_scratch, symbols, n)) for n in nodes), default=0),
        lower_bound=lower_bound(blocks),
        peak_node=max(range(len(live)), key=live.__getitem__, default=0),
        live=live,
        algorithm=algorithm,
    )


def _tensor_bytes(name: str, tensors: Mapping[str, AnyTensor], symbols: Mapping[str, Bounds]) -> int:
    return most_elements(name, tensors[name], symbols) * tensors[name].dtype.itemsize


def _root_blocks(storages: Storages, tensors: Mapping[str, AnyTensor], sizes: Mapping[str, int]) -> dict[str, Block]:
    """One block for each storage: from its first tensor's first step to its last tensor's last."""
    blocks: dict[str, Block] = {}
    for name, at in storages.where.items():
        if tensors[at.root].data is not None:
            continue
        size = at.offset + sizes[name] if at.ld is None else 0
        first, last = storages.first[name], storages.last[name]
        if at.root in blocks:
            b = blocks[at.root]
            size, first, last = max(size, b.size), min(first, b.first), max(last, b.last)
        blocks[at.root] = Block(size, first, last)
    return blocks


def _scratch_sizes(nodes: Sequence[NativeNode], elided: set[int], symbols: Mapping[str, Bounds]) -> dict[int, int]:
    found = {}
    for step, node in enumerate(nodes):
        size = 0 if step in elided else _upper(node.scratch, symbols, node)
        if size:
            found[step] = size
    return found


def _upper(d: DimLike, symbols: Mapping[str, Bounds], node: NativeNode) -> int:
    high = bounds(d, symbols)[1]
    if high is None:
        raise PlanError(f"the scratch of node {node.name!r} has no largest size", hint="give --dim NAME=LOW..HIGH")
    return high
