"""Predicted size and RAM of a packed model, by named part.

The RAM model is the resident set at its peak: file pages that are touched, plus anonymous memory. Its constants were
fitted to VmHWM of packed files on Linux 6 (x86-64, 4 KiB pages); `./model bench` prints prediction and measurement.
Weights count whole, because any page of them may be read: a model that looks up few rows of a large table, or does not
take one of its branches, stays below the prediction.
"""

from __future__ import annotations

from edgerun.plan import PlanReader
from edgerun_packaging.budgets import Footprint, Part
from edgerun_packaging.elf import Audit

PAGE = 4096
TOUCHED_CODE = {"x86_64": (0.67, 0.02, 0.78)}
"""The share of code and constants that a run touches, with what the kernel's fault-around maps beside them: of any
model, in addition for each kind of kernel, and at most."""
TOUCHED_CODE_ELSEWHERE = (0.35, 0.03, 0.9)
PROCESS_BYTES = 60 * 1024
"""Initial stack, vdso, auxiliary vector."""
THREAD_STACK_BYTES = 16 * 1024
"""Touched stack and control block of one additional thread."""
IO_BYTES = 84 * 1024
"""Static buffers of the launcher that a run touches."""
NODE_BYTES = 720
"""The runtime's own tables: calls, views and profiles, for each node."""


def predict(plan: PlanReader, stub: Audit, stub_bytes: int, *, padding: int, extras: int, threads: int) -> Footprint:
    """Sizes for a plan (without manifest and golden vectors: `extras` bytes) appended to a stub; `threads` in total."""
    plan_tables = len(plan.data) - len(plan.weights)
    weights = len(plan.weights)
    size = [
        Part("stub (runtime, kernels, launcher)", stub_bytes),
        Part("padding", padding),
        Part("plan tables", plan_tables),
        Part("golden vectors and manifest", extras),
        Part("weights", weights),
    ]
    kernels = len({node.kernel for node in plan.nodes})
    base, each, most = TOUCHED_CODE.get(stub.machine, TOUCHED_CODE_ELSEWHERE)
    code = int(min(base + each * kernels, most) * (stub.text_bytes + stub.rodata_bytes))
    ram = [
        Part("text and constants", _pages(code)),
        Part("data", _pages(stub.data_bytes)),
        Part("plan tables", _pages(plan_tables + extras)),
        Part("weights", _pages(weights)),
        Part("runtime tables", _pages(NODE_BYTES * len(plan.nodes))),
        Part("arena", _pages(plan.arena_bytes)),
        Part("thread scratch", _pages(threads * plan.thread_scratch_bytes)),
        Part("thread stacks", (threads - 1) * THREAD_STACK_BYTES),
        Part("process and libc", PROCESS_BYTES),
        Part("input and output buffers", IO_BYTES),
    ]
    return Footprint(size, ram)


def _pages(count: int) -> int:
    return -(-count // PAGE) * PAGE
