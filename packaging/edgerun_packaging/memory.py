"""Live ranges and the arena, worked out from a finished plan (independently of the planner that made it)."""

from __future__ import annotations

from typing import Any

from edgerun.plan import PlanReader, Space


def live_ranges(plan: PlanReader) -> dict[int, tuple[int, int]]:
    """Tensor number to (first, last) step in which its bytes must stay.

    Inputs live from step 0, outputs to the end, states (a key/value cache) throughout: they are views that are read
    before any of their bytes is written.
    """
    nodes, tensors = plan.nodes, plan.tensors
    ranges: dict[int, tuple[int, int]] = {}

    def touch(number: int, step: int) -> None:
        if number >= 0 and tensors[number].space == Space.ARENA:
            first, last = ranges.get(number, (step, step))
            ranges[number] = (min(first, step), max(last, step))

    written: list[tuple[int, int]] = []
    for number, _ in plan.inputs:
        touch(number, 0)
        written.append((tensors[number].offset, tensors[number].offset + tensors[number].bytes))
    for step, node in enumerate(nodes):
        for number in (*node.inputs, *node.outputs):
            if number in node.inputs and number not in ranges and number >= 0 and tensors[number].view:
                start, end = tensors[number].offset, tensors[number].offset + tensors[number].bytes
                if not any(a < end and start < b for a, b in written):
                    touch(number, 0)
                    touch(number, max(len(nodes) - 1, 0))
            touch(number, step)
        outputs = [tensors[number] for number in node.outputs if number >= 0]
        written += [(t.offset, t.offset + t.bytes) for t in outputs if t.space == Space.ARENA]
    for number, _ in plan.outputs:
        touch(number, max(len(nodes) - 1, 0))
    return ranges


def _union(intervals: list[tuple[int, int]]) -> int:
    """Bytes covered by (offset, bytes) intervals, overlaps (views, in-place results) counted once."""
    total, end = 0, 0
    for offset, size in sorted(intervals):
        start = max(offset, end)
        total += max(offset + size - start, 0)
        end = max(end, offset + size)
    return total


def arena_report(plan: PlanReader) -> dict[str, Any]:
    """Arena size, lower bound (the largest live set of any step), and tables by step and by tensor. Sizes in bytes."""
    nodes, tensors = plan.nodes, plan.tensors
    ranges = live_ranges(plan)
    steps = []
    for step, node in enumerate(nodes):
        live = [(tensors[t].offset, tensors[t].bytes) for t, (a, b) in ranges.items() if a <= step <= b]
        if node.scratch_bytes:
            live.append((node.scratch, node.scratch_bytes))
        steps.append({"step": step, "live_bytes": _union(live), "kernel": node.kernel, "node": node.name})
    bound = max((s["live_bytes"] for s in steps), default=0)  # type: ignore[type-var]
    arena = plan.arena_bytes
    return {
        "arena_bytes": arena,
        "lower_bound_bytes": bound,
        "gap_percent": 100 * (arena - bound) / bound if bound else 0.0,
        "peak_step": next((s["step"] for s in steps if s["live_bytes"] == bound), None),
        "weight_bytes": len(plan.weights),
        "thread_scratch_bytes": plan.thread_scratch_bytes,
        "steps": steps,
        "tensors": [
            {"tensor": tensors[t].name, "offset": tensors[t].offset, "bytes": tensors[t].bytes, "first": a, "last": b}
            for t, (a, b) in sorted(ranges.items(), key=lambda item: (item[1], item[0]))
        ],
    }
