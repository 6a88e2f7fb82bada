"""Places of tensors in the GPU's buffers: one arena, reused over time, and one buffer of constants."""

from __future__ import annotations

from dataclasses import dataclass

from edgerun.backends.gpu.lowering import Dispatch, Lowered
from edgerun.graph import Graph
from edgerun.planner.arena import Block, extent, place

ALIGNMENT = 256
"""Offsets of storage bindings (WebGPU's limit minStorageBufferOffsetAlignment)."""


@dataclass(frozen=True, slots=True)
class Places:
    """Offsets in bytes by tensor (views not among them), and the sizes of both buffers."""

    arena: dict[str, int]
    arena_bytes: int
    constants: dict[str, int]
    constant_bytes: int


def rounded(size: int) -> int:
    """Up to the alignment, at least one unit."""
    return max(-(-size // ALIGNMENT), 1) * ALIGNMENT


def plan(graph: Graph, lowered: Lowered, size_of: dict[str, int]) -> Places:
    """size_of: bytes of each tensor that the GPU can hold; the others stay with the CPU."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    constants: dict[str, int] = {}

    def touch(name: str, step: int) -> None:
        root = lowered.root(name)
        if root not in size_of:
            return  # stays with the CPU
        if root in lowered.constants or (root in graph.tensors and graph.tensors[root].data is not None):
            constants.setdefault(root, 0)
            return
        first.setdefault(root, step)
        last[root] = max(last.get(root, step), step)

    for name in graph.inputs:
        touch(name, 0)
    for step, entry in enumerate(lowered.steps):
        if isinstance(entry, Dispatch):
            names: list[str] = list(entry.buffers)
        else:
            names = [n for n in (*entry.reads, *entry.node.outputs) if n and graph.tensors[n].data is None]
        for name in names:
            touch(name, step)
    for name in graph.outputs:
        touch(name, len(lowered.steps))
    owners = list(first)
    blocks = [Block(rounded(size_of[n]), first[n], last[n]) for n in owners]
    offsets, _ = place(blocks)
    at = 0
    for name in constants:
        constants[name] = at
        at += rounded(size_of[name])
    return Places(dict(zip(owners, offsets, strict=True)), max(extent(blocks, offsets), ALIGNMENT), constants, at)
