"""Offsets for blocks that live over intervals of time: dynamic storage allocation.

The problem is NP-hard; these are the usual greedy heuristics (Pisarchyk and Lee, "Efficient memory management for deep
neural net inference", 2020), of which the best result is kept. The lower bound is the most that is alive in one step.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from edgerun.plan.layout import aligned


@dataclass(frozen=True, slots=True)
class Block:
    """`size` bytes that are needed from step `first` to step `last`, both inclusive."""

    size: int
    first: int
    last: int

    def meets(self, other: Block) -> bool:
        """Whether both are alive in some step."""
        return self.first <= other.last and other.first <= self.last


def live_bytes(blocks: Sequence[Block], steps: int) -> list[int]:
    """Bytes alive in each step in [0, steps), each block rounded up to the alignment."""
    change = [0] * (steps + 1)
    for b in blocks:
        first, last = max(b.first, 0), min(b.last, steps - 1)
        if first <= last:
            change[first] += aligned(b.size)
            change[last + 1] -= aligned(b.size)
    total, live = 0, []
    for step in range(steps):
        total += change[step]
        live.append(total)
    return live


def lower_bound(blocks: Sequence[Block]) -> int:
    """Bytes that any placement needs: the largest live set."""
    if not blocks:
        return 0
    shift = min(b.first for b in blocks)
    steps = max(b.last for b in blocks) - shift + 1
    return max(live_bytes([Block(b.size, b.first - shift, b.last - shift) for b in blocks], steps))


Order: TypeAlias = "Callable[[Sequence[Block]], list[int]]"


def _by_size(blocks: Sequence[Block]) -> list[int]:
    return sorted(range(len(blocks)), key=lambda i: (-blocks[i].size, blocks[i].first))


def _by_area(blocks: Sequence[Block]) -> list[int]:
    def area(b: Block) -> int:
        return b.size * (b.last - b.first + 1)

    return sorted(range(len(blocks)), key=lambda i: (-area(blocks[i]), blocks[i].first))


def _by_time(blocks: Sequence[Block]) -> list[int]:
    return sorted(range(len(blocks)), key=lambda i: (blocks[i].first, -blocks[i].size))


def _by_duration(blocks: Sequence[Block]) -> list[int]:
    return sorted(range(len(blocks)), key=lambda i: (blocks[i].first - blocks[i].last, -blocks[i].size))


def _by_breadth(blocks: Sequence[Block]) -> list[int]:
    """Steps by descending live bytes; within a step the largest block first."""
    shift = min(b.first for b in blocks)
    steps = max(b.last for b in blocks) - shift + 1
    live = live_bytes([Block(b.size, b.first - shift, b.last - shift) for b in blocks], steps)
    at: list[list[int]] = [[] for _ in range(steps)]
    for i in _by_size(blocks):
        for step in range(blocks[i].first - shift, blocks[i].last - shift + 1):
            at[step].append(i)
    order: dict[int, None] = {}
    for step in sorted(range(steps), key=lambda s: -live[s]):
        order.update(dict.fromkeys(at[step]))
    return list(order)


ALGORITHMS: dict[str, Order] = {
    "greedy by size": _by_size,
    "greedy by breadth": _by_breadth,
    "greedy by area": _by_area,
    "longest first": _by_duration,
    "first fit by time": _by_time,
}


def place_in_order(blocks: Sequence[Block], order: Sequence[int], best_fit: bool) -> list[int]:
    """Offsets by putting each block into the lowest (or the tightest) gap between those placed that it meets."""
    offsets = [0] * len(blocks)
    placed: list[tuple[int, int, int]] = []  # offset, end, index; sorted
    for i in order:
        block, size = blocks[i], aligned(blocks[i].size)
        if not size:
            continue
        end, best, best_gap = 0, -1, -1
        for offset, upto, k in placed:
            if not block.meets(blocks[k]):
                continue
            gap = offset - end
            if gap >= size and (best < 0 or gap < best_gap):
                best, best_gap = end, gap
                if not best_fit:
                    break
            end = max(end, upto)
        offsets[i] = end if best < 0 else best
        insort(placed, (offsets[i], offsets[i] + size, i))
    return offsets


def extent(blocks: Sequence[Block], offsets: Sequence[int]) -> int:
    """Bytes from 0 to the end of the last block."""
    return max((o + aligned(b.size) for b, o in zip(blocks, offsets, strict=True)), default=0)


def place(blocks: Sequence[Block]) -> tuple[list[int], str]:
    """The best offsets that the algorithms find, multiples of 64, and the name of the winner."""
    best: tuple[int, list[int], str] | None = None
    bound = lower_bound(blocks)
    for name, order in ALGORITHMS.items() if blocks else ():
        for best_fit in (False, True):
            offsets = place_in_order(blocks, order(blocks), best_fit)
            size = extent(blocks, offsets)
            if best is None or size < best[0]:
                best = (size, offsets, name + (", best fit" if best_fit else ""))
            if size == bound:
                return offsets, best[2]
    if best is None:
        return [], "nothing to place"
    return _improve(blocks, best[1], bound, best[2])


def _improve(blocks: Sequence[Block], offsets: list[int], bound: int, name: str) -> tuple[list[int], str]:
    """Place the blocks that stick out first, and repeat while that helps."""
    order = sorted(range(len(blocks)), key=lambda i: (offsets[i], -blocks[i].size))
    size = extent(blocks, offsets)
    best = offsets
    for _ in range(min(64, 20000 // (len(blocks) + 1))):
        current = place_in_order(blocks, order, best_fit=False)
        height = extent(blocks, current)
        if height < size:
            size, best, name = height, current, name.removesuffix(", improved") + ", improved"
        if size == bound:
            break
        top = next(i for i in range(len(blocks)) if blocks[i].size and current[i] + aligned(blocks[i].size) == height)
        position = order.index(top)
        if position == 0:
            break
        order.insert(position // 2, order.pop(position))
    return best, name
