"""Pooling: a loop over the window for each output element."""

from __future__ import annotations

import numpy as np

from edgerun.backends.gpu.lowering import Lowering, lowers
from edgerun.backends.gpu.wgsl import coordinates, place
from edgerun.errors import UnsupportedError
from edgerun.graph import Node


@lowers("pool")
def pool(node: Node, cx: Lowering) -> None:
    x, out, attrs = node.inputs[0], node.outputs[0], node.attrs
    shape, kernel, kind = cx.shape(x), attrs["kernel"], attrs["kind"]
    spatial = len(kernel)
    if kind != "max" and not cx.dtype(x).is_float:
        raise UnsupportedError(f"{kind} pooling of {cx.dtype(x).short}")
    real = cx.kind(x) == "f32"
    start = "-inf_()" if kind == "max" and real else "-2147483647 - 1" if kind == "max" else "0.0"
    lines = [coordinates(cx.shape(out)), f"  var v = {start};", "  var count = 0u;"]
    lines.append(f"  for (var tap: u32 = 0u; tap < {int(np.prod(kernel))}u; tap = tap + 1u) {{")
    rest = "tap"
    inside: list[str] = []
    padded: list[str] = []
    names: list[str] = []
    for axis in reversed(range(spatial)):
        step, dilation = attrs["strides"][axis], attrs["dilations"][axis]
        before, after, size = attrs["pads"][axis], attrs["pads"][spatial + axis], shape[1 + axis]
        lines.append(
            f"    let p{axis} = i32(c{axis + 1} * {step}u + (({rest}) % {kernel[axis]}u) * {dilation}u) - {before};"
        )
        inside.append(f"p{axis} >= 0 && p{axis} < {size}")
        padded.append(f"p{axis} < {size + after}")
        names.insert(0, f"u32(p{axis})")
        rest = f"({rest}) / {kernel[axis]}u"
    at = f"b0[{place(shape, ['c0', *names, f'c{spatial + 1}'])}]"
    if kind == "max":
        add = f"v = {'max_' if real else 'max'}(v, {at});"
    elif kind == "average":
        add = f"v = v + {at}; {'' if attrs.get('count_include_pad') else 'count = count + 1u;'}"
    else:
        order = attrs.get("p", 2)
        powers = {1: f"abs({at})", 2: f"{at} * {at}"}
        add = f"v = v + {powers.get(order, f'pow(abs({at}), {float(order)!r})')};"
    lines.append(f"    if ({' && '.join(inside)}) {{ {add} }}")
    if kind == "average" and attrs.get("count_include_pad"):
        lines.append(f"    if ({' && '.join(padded)}) {{ count = count + 1u; }}")
    lines.append("  }")
    if kind == "average":
        lines.append("  v = v / f32(count);")
    elif kind == "lp" and attrs.get("p", 2) != 1:
        order = attrs.get("p", 2)
        lines.append("  v = sqrt(v);" if order == 2 else f"  v = pow(v, {1 / order!r});")
    cx.pointwise([x], out, "\n".join([*lines, "  b1[i] = v;"]))
