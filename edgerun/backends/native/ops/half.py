"""Layers of 16-bit floats: computed in float32 between conversions, as in NumPy; weights are widened while planning."""

from __future__ import annotations

from functools import wraps

from edgerun.backends.native.lowering import LowerFunction, Lowering
from edgerun.backends.native.ops.elementwise import apply, cast
from edgerun.dtypes import DType
from edgerun.graph import Node

HALF = (DType.F16, DType.BF16)


def computed_in_f32(lower: LowerFunction) -> LowerFunction:
    """A lowering of one output that may leave 16-bit floats to its float32 form."""

    @wraps(lower)
    def run(node: Node, cx: Lowering) -> None:
        output = node.outputs[0]
        dtype = cx.dtype(output)
        if dtype not in HALF:
            lower(node, cx)
            return
        inputs = [cast(cx, i, DType.F32) if i and cx.dtype(i) in HALF else i for i in node.inputs]
        result = cx.temp(DType.F32, cx.shape(output), hint=f"{output}.f32")
        lower(Node(node.op, inputs, [result], node.attrs, node.name), cx)
        apply(cx, (("cast", dtype, 0),), [result], output)

    return run
