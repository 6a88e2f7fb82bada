"""An estimate of the time of one run on a board, from its profile alone.

Each node takes as long as the slower of its arithmetic and its memory traffic. Arithmetic: multiply-accumulates at
EFFICIENCY of what the big cores can do per clock (CPU). Traffic: weights come from memory, activations too where they
do not fit into the last cache, at EFFICIENCY of the bandwidth of the data sheet. It is an estimate, good for telling
milliseconds from tens of milliseconds and for ranking remedies; `./model bench` on the board measures.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgerun.dims import Dim, DimLike, evaluate, free_symbols
from edgerun.graph import Graph, Node
from edgerun.ops.registry import count_macs
from edgerun_targets import Target

CPU = {"cortex-a8": 2.0, "cortex-a53": 4.0, "cortex-a72": 4.0, "cortex-a76": 8.0, "cortex-a78ae": 8.0, "arm1176": 0.5}
"""float32 multiply-accumulates a clock and core (Arm's software optimisation guides)."""
EFFICIENCY = 0.5
"""The share of the peaks that counts: what larger convolutions reach, and memory under one reader."""
DEPTHWISE = 0.5
"""Depthwise layers reach this share of that."""
OVERHEAD = 3e-6
"""Seconds to start a node on several cores."""
_INTEGER = frozenset({"conv_integer", "qlinear_conv", "matmul_integer", "qlinear_matmul"})


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds of one run, and what they rest on."""

    seconds: float
    basis: str

    def as_dict(self) -> dict[str, object]:
        """For reports; milliseconds."""
        return {"estimate_ms": round(self.seconds * 1e3, 3), "basis": self.basis}


def estimate(graph: Graph, target: Target, threads: int = 0) -> Estimate | None:
    """The time of one run with all free dimensions at their largest; None for a profile without clock or CPU known."""
    per_clock = CPU.get(target.cpu)
    if not target.mhz or per_clock is None:
        return None
    cores = min(threads or target.cores or 1, target.cores or 1)
    rate = EFFICIENCY * per_clock * cores * target.mhz * 1e6
    integer = rate * (4.0 if "dotprod" in target.features else 1.5)
    bandwidth = EFFICIENCY * target.memory_mbs * 1e6 if target.memory_mbs else float("inf")
    cache = max(target.l2_kb, target.l3_kb) * 1024
    sizes = {s: high for s, (_, high) in graph.symbols.items() if high is not None}
    seconds = 0.0
    for node in graph.nodes:
        macs = _number(count_macs(graph, node), sizes)
        speed = integer if node.op in _INTEGER else rate * (DEPTHWISE if _is_depthwise(graph, node) else 1.0)
        seconds += max(macs / speed, _traffic(graph, node, sizes, cache) / bandwidth) + OVERHEAD
    basis = f"{cores} x {target.cpu} at {target.mhz} MHz, {EFFICIENCY:.0%} of the peaks of arithmetic and memory"
    return Estimate(seconds, basis)


def _number(d: DimLike, sizes: dict[str, int]) -> int:
    if not isinstance(d, Dim):
        return d
    return evaluate(d, sizes) if free_symbols(d) <= sizes.keys() else 0


def _bytes(graph: Graph, name: str, sizes: dict[str, int]) -> int:
    tensor = graph.tensors[name]
    total = tensor.dtype.itemsize
    for d in tensor.shape or ():
        total *= _number(d, sizes)
    return total


def _traffic(graph: Graph, node: Node, sizes: dict[str, int], cache: int) -> int:
    """Bytes that go through the memory's pins."""
    total = 0
    for name in dict.fromkeys([*node.inputs, *node.outputs]):
        if not name or name not in graph.tensors or graph.tensors[name].kind != "tensor":
            continue
        size = _bytes(graph, name, sizes)
        if graph.tensors[name].data is not None and node.op == "gather":
            size = min(size, _bytes(graph, node.outputs[0], sizes))
        if graph.tensors[name].data is not None or size > cache:
            total += size
    return total


def _is_depthwise(graph: Graph, node: Node) -> bool:
    if node.op != "conv" or int(node.attrs.get("group", 1)) == 1:
        return False
    weights = graph.tensors[node.inputs[1]].shape
    return weights is not None and weights[-1] == 1
