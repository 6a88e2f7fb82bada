"""Sampling of feature maps at computed places, channels first."""

from __future__ import annotations

from edgerun.backends.native.lowering import Lowering, Param, lowers
from edgerun.backends.native.ops.elementwise import apply, cast
from edgerun.backends.native.ops.reduce import HALF
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node

SAMPLING = ("nearest", "linear", "cubic")
PADDING = ("zeros", "border", "reflection")


@lowers("grid_sample")
def grid_sample(node: Node, cx: Lowering) -> None:
    """Computed in f32, for up to three spatial axes."""
    x, grid = node.inputs
    final, rank = cx.dtype(x), len(cx.shape(x))
    if final not in (DType.F32, *HALF) or cx.dtype(grid) not in (DType.F32, *HALF):
        raise UnsupportedError(f"sampling of {final.short} at {cx.dtype(grid).short} places is not done natively")
    if rank > 5:
        raise UnsupportedError(f"sampling of {rank - 2} spatial axes; the native kernel takes 3")
    attrs = node.attrs
    params: list[Param] = [
        SAMPLING.index(attrs.get("mode", "linear")),
        PADDING.index(attrs.get("padding", "zeros")),
        int(attrs.get("align_corners", False)),
    ]
    y = node.outputs[0]
    result = y if final is DType.F32 else cx.temp(DType.F32, cx.shape(y), "sampled")
    inputs = [cast(cx, x, DType.F32), cast(cx, grid, DType.F32)]
    cx.emit("grid_sample", inputs, [result], params, why="the cells of a place once for all channels")
    if result != y:
        apply(cx, (("cast", final, 0),), [result], y)
