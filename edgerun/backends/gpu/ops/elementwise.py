"""Fused elementwise programs: one kernel each, inputs broadcast by index, constants of one element in the text."""

from __future__ import annotations

import numpy as np

from edgerun.backends.gpu import scalars
from edgerun.backends.gpu.lowering import Lowering, lowers
from edgerun.backends.gpu.wgsl import Kernel, broadcast_place, coordinates, literal, pointwise
from edgerun.graph import Node


@lowers("elementwise")
def elementwise(node: Node, cx: Lowering) -> None:
    out = node.outputs[0]
    shape = cx.shape(out)
    total = int(np.prod(shape))
    buffers: list[str] = []
    values: list[str] = []
    types = [cx.dtype(name) for name in node.inputs]
    lines = [coordinates(shape)] if any(cx.shape(n) != shape for n in node.inputs) else []
    for k, name in enumerate(node.inputs):
        data = cx.value(name)
        if data is not None and data.size == 1:
            values.append(literal(data.reshape(-1)[0].item(), types[k]))
            continue
        at = "i" if cx.shape(name) == shape else broadcast_place(cx.shape(name), shape)
        lines.append(f"  let x{k} = b{len(buffers)}[{at}];")
        buffers.append(name)
        values.append(f"x{k}")
    for step, (function, dtype, *operands) in enumerate(node.attrs["program"]):
        if function == "const":
            values.append(literal(operands[0], dtype))
        else:
            given = types[operands[-1]]
            expression = scalars.apply(function, dtype, given, [values[k] for k in operands])
            lines.append(f"  let t{step} = {expression};")
            values.append(f"t{step}")
        types.append(dtype)
    lines.append(f"  b{len(buffers)}[i] = {values[-1]};")
    if total:
        kernel = pointwise([cx.kind(n) for n in (*buffers, out)], total, "\n".join(lines))
        cx.emit(
            Kernel(kernel.source.replace("@compute", scalars.FUNCTIONS + "@compute", 1), kernel.groups), [*buffers, out]
        )
