"""Movement of elements: every output element reads one place, worked out from its coordinates."""

from __future__ import annotations

import numpy as np

from edgerun.backends.gpu.lowering import Lowering, lowers
from edgerun.backends.gpu.wgsl import broadcast_place, coordinates, literal, place
from edgerun.errors import UnsupportedError
from edgerun.graph import Node


@lowers("reshape")
def reshape(node: Node, cx: Lowering) -> None:
    x, out = node.inputs[0], node.outputs[0]
    if out in cx.graph.outputs or cx.value(x) is not None or cx.out.root(x) in cx.graph.inputs:
        copy(cx, x, out)  # outputs and inputs have places of their own
    else:
        cx.view(out, x)


def copy(cx: Lowering, x: str, out: str) -> None:
    """The same elements in the same order."""
    cx.pointwise([x], out, "  b1[i] = b0[i];")


@lowers("transpose")
def transpose(node: Node, cx: Lowering) -> None:
    x, out, perm = node.inputs[0], node.outputs[0], node.attrs["perm"]
    names = [""] * len(perm)
    for axis, source in enumerate(perm):
        names[source] = f"c{axis}"
    cx.pointwise([x], out, f"{coordinates(cx.shape(out))}\n  b1[i] = b0[{place(cx.shape(x), names)}];")


@lowers("slice")
def slice_(node: Node, cx: Lowering) -> None:
    if node.attrs.get("ranges") is None:
        raise UnsupportedError("a slice whose bounds are computed")
    x, out = node.inputs[0], node.outputs[0]
    names = [f"c{k}" for k in range(len(cx.shape(x)))]
    for axis, start, _, step in node.attrs["ranges"]:
        names[axis] = f"u32({start} + i32(c{axis}) * ({step}))"
    cx.pointwise([x], out, f"{coordinates(cx.shape(out))}\n  b1[i] = b0[{place(cx.shape(x), names)}];")


@lowers("concat")
def concat(node: Node, cx: Lowering) -> None:
    out, start = node.outputs[0], 0
    axis = node.attrs["axis"] % max(len(cx.shape(out)), 1)
    for x in node.inputs:
        shape = cx.shape(x)
        names = [f"c{k}" if k != axis else f"c{k} + {start}u" for k in range(len(shape))]
        body = f"{coordinates(shape)}\n  b1[{place(cx.shape(out), names)}] = b0[i];"
        cx.pointwise([x], out, body, int(np.prod(shape)))
        start += shape[axis]


@lowers("expand")
def expand(node: Node, cx: Lowering) -> None:
    x, out = node.inputs[0], node.outputs[0]
    cx.pointwise(
        [x], out, f"{coordinates(cx.shape(out))}\n  b1[i] = b0[{broadcast_place(cx.shape(x), cx.shape(out))}];"
    )


@lowers("tile")
def tile(node: Node, cx: Lowering) -> None:
    x, out = node.inputs[0], node.outputs[0]
    names = [f"c{k} % {size}u" for k, size in enumerate(cx.shape(x))]
    if not all(cx.shape(x)):
        return
    cx.pointwise([x], out, f"{coordinates(cx.shape(out))}\n  b1[i] = b0[{place(cx.shape(x), names)}];")


@lowers("pad")
def pad(node: Node, cx: Lowering) -> None:
    widths, mode = node.attrs.get("widths"), node.attrs.get("mode", "constant")
    if widths is None:
        raise UnsupportedError("a pad whose widths are computed")
    x, out = node.inputs[0], node.outputs[0]
    shape = cx.shape(x)
    lines, names, inside = [coordinates(cx.shape(out))], [], []
    for axis, (before, after) in enumerate(widths):
        size = shape[axis]
        # Cropping comes first: the kept cells are [low, high).
        low, high = max(-before, 0), size - max(-after, 0)
        lines.append(f"  var p{axis} = i32(c{axis}) - ({before});")
        if mode == "constant":
            inside.append(f"p{axis} >= {low} && p{axis} < {high}")
        elif mode == "edge":
            lines.append(f"  p{axis} = clamp(p{axis}, {low}, {high - 1});")
        else:
            kept = high - low
            period = max(2 * (kept - 1), 1) if mode == "reflect" else kept
            lines.append(f"  p{axis} = (p{axis} - {low}) % {period};")
            lines.append(f"  if (p{axis} < 0) {{ p{axis} = p{axis} + {period}; }}")
            if mode == "reflect":
                lines.append(f"  if (p{axis} >= {kept}) {{ p{axis} = {period} - p{axis}; }}")
            lines.append(f"  p{axis} = p{axis} + {low};")
        names.append(f"u32(p{axis})")
    read = f"b0[{place(shape, names)}]"
    if mode != "constant":
        cx.pointwise([x], out, "\n".join([*lines, f"  b1[i] = {read};"]))
        return
    fill, buffers = node.inputs[2] if len(node.inputs) > 2 else "", [x]
    value = literal(0, cx.dtype(x))
    if fill:
        data = cx.value(fill)
        value = literal(data.reshape(-1)[0].item(), cx.dtype(x)) if data is not None else "b1[0]"
        buffers += [fill] if data is None else []
    lines += [f"  var v = {value};", f"  if ({' && '.join(inside) or 'true'}) {{ v = {read}; }}"]
    cx.pointwise(buffers, out, "\n".join([*lines, f"  b{len(buffers)}[i] = v;"]))
