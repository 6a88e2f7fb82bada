"""An execution order that keeps little alive: list scheduling by memory.

Of the nodes whose inputs exist, take the one that leaves the least memory alive; among equals the one whose step needs
the least, then the first in the given order. A heuristic (the problem is NP-hard): the caller keeps the better of the
given order and this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgerun.backends.native.lowering import NativeNode


def order_for_memory(nodes: Sequence[NativeNode], sizes: Mapping[str, int], outputs: Sequence[str]) -> list[int]:
    """Node numbers in the new order. `sizes`: bytes of each computed tensor (weights are not in it)."""
    waiting, readers = _dependencies(nodes, sizes)
    uses = {name: len(steps) for name, steps in readers.items()}
    for name in outputs:
        uses[name] = uses.get(name, 0) + 1
    ready = [i for i, n in enumerate(waiting) if n == 0]
    order: list[int] = []
    while ready:
        best = min(ready, key=lambda i: (*_cost(nodes[i], sizes, uses), i))
        ready.remove(best)
        order.append(best)
        for name in _tensors(nodes[best].inputs, sizes):
            uses[name] -= 1
        for name in _tensors(nodes[best].outputs, sizes):
            for reader in readers.get(name, []):
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    ready.append(reader)
    return order


def _tensors(names: Sequence[str], sizes: Mapping[str, int]) -> list[str]:
    return [n for n in dict.fromkeys(names) if n in sizes]


def _dependencies(nodes: Sequence[NativeNode], sizes: Mapping[str, int]) -> tuple[list[int], dict[str, list[int]]]:
    """For each node how many of its inputs other nodes compute, and for each tensor the nodes that read it."""
    made = {o for n in nodes for o in n.outputs}
    waiting = []
    readers: dict[str, list[int]] = {}
    for i, node in enumerate(nodes):
        names = _tensors(node.inputs, sizes)
        waiting.append(sum(n in made for n in names))
        for name in names:
            readers.setdefault(name, []).append(i)
    return waiting, readers


def _cost(node: NativeNode, sizes: Mapping[str, int], uses: Mapping[str, int]) -> tuple[int, int]:
    """(change of live bytes after the node, bytes it adds while it runs). Views and in-place results add nothing."""
    freed = sum(sizes[n] for n in _tensors(node.inputs, sizes) if uses.get(n, 0) == 1)
    added = sum(sizes[n] for n in _tensors(node.outputs, sizes))
    kept = sum(sizes[n] for n in _tensors(node.outputs, sizes) if uses.get(n, 0))
    if node.view:
        return 0, 0
    return kept - freed, added
