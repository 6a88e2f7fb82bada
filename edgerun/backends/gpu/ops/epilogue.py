"""Bias, activation and residual of convolutions and products (edgerun.ops.activation), as statements on `v`."""

from __future__ import annotations

from dataclasses import dataclass

from edgerun.backends.gpu.lowering import Lowering
from edgerun.backends.gpu.wgsl import literal
from edgerun.dtypes import DType
from edgerun.graph import Node

ACTIVATION = {
    "none": "v",
    "clamp": "min_(max_(v, {p0}), {p1})",
    "leaky": "select(v, {p0} * v, v < 0.0)",
    "sigmoid": "sigmoid_(v)",
    "silu": "v * sigmoid_(v)",
    "hardsigmoid": "min_(max_({p0} * v + {p1}, 0.0), 1.0)",
    "hardswish": "v * min_(max_(v / 6.0 + 0.5, 0.0), 1.0)",
    "gelu": "0.5 * v * (1.0 + erf_(v * 0.70710678))",
    "gelu_tanh": "0.5 * v * (1.0 + tanh_(0.7978845608 * (v + 0.044715 * v * v * v)))",
    "tanh": "tanh_(v)",
    "elu": "select(v, {p0} * (exp(min(v, 0.0)) - 1.0), v < 0.0)",
    "prelu": "select(v, {slope} * v, v < 0.0)",
}


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The buffers that it reads, bound from number `first` on, and the statements on v, for element i of channel n."""

    buffers: tuple[str, ...]
    text: str


def epilogue(
    node: Node, cx: Lowering, first: int, *, bias: str = "", residual: str = "", slope: str = "",
    channel: str = "n", element: str = "i",
) -> Epilogue:  # fmt: skip
    """`channel` and `element`: expressions of the channel and of the flat index in the output."""
    buffers: list[str] = []
    lines: list[str] = []

    def read(name: str, at: str) -> str:
        buffers.append(name)
        return f"b{first + len(buffers) - 1}[{at}]"

    attrs = node.attrs
    if bias:
        lines.append(f"  v = v + {read(bias, channel)};")
    added = read(residual, element) if residual else ""
    if residual and attrs.get("res") == "before":
        lines.append(f"  v = v + {added};")
    p0, p1 = (literal(attrs.get(p, 0.0), DType.F32) for p in ("p0", "p1"))
    factor = ""
    if slope:
        factor = read(slope, channel if cx.shape(slope) != (1,) else "0")
    activation = ACTIVATION[attrs.get("act", "none")].format(p0=p0, p1=p1, slope=factor)
    if activation != "v":
        lines.append(f"  v = {activation};")
    if residual and attrs.get("res") == "after":
        lines.append(f"  v = v + {added};")
    return Epilogue(tuple(buffers), "\n".join(lines))
