"""Reading by index. Indices are clamped to the axis: a GPU cannot stop with an error (constant ones are checked)."""

from __future__ import annotations

from edgerun.backends.gpu.lowering import Lowering, lowers
from edgerun.backends.gpu.wgsl import coordinates, place
from edgerun.errors import ShapeError
from edgerun.graph import Node


def index(cx: Lowering, name: str, buffer: int, at: str, size: int) -> str:
    """Statements that declare `k`, the place that element `at` of an index tensor names on an axis of `size`."""
    data = cx.value(name)
    if data is not None and data.size and (data.min() < -size or data.max() >= size):
        raise ShapeError(f"an index of {name!r} is outside an axis of {size}")
    return f"  var k = b{buffer}[{at}];\n  if (k < 0) {{ k = k + {size}; }}\n  k = clamp(k, 0, {max(size - 1, 0)});"


@lowers("gather")
def gather(node: Node, cx: Lowering) -> None:
    x, indices = node.inputs[:2]
    out, shape = node.outputs[0], cx.shape(x)
    axis, rank = node.attrs["axis"] % len(shape), len(cx.shape(indices))
    at = place(cx.shape(indices), [f"c{axis + k}" for k in range(rank)])
    names = [f"c{k}" if k < axis else "u32(k)" if k == axis else f"c{k + rank - 1}" for k in range(len(shape))]
    body = [coordinates(cx.shape(out)), index(cx, indices, 1, at, shape[axis]), f"  b2[i] = b0[{place(shape, names)}];"]
    cx.pointwise([x, indices], out, "\n".join(body))


@lowers("gather_elements")
def gather_elements(node: Node, cx: Lowering) -> None:
    x, indices = node.inputs[:2]
    out, shape = node.outputs[0], cx.shape(x)
    axis = node.attrs["axis"] % len(shape)
    names = ["u32(k)" if k == axis else f"c{k}" for k in range(len(shape))]
    body = [
        coordinates(cx.shape(out)),
        index(cx, indices, 1, "i", shape[axis]),
        f"  b2[i] = b0[{place(shape, names)}];",
    ]
    cx.pointwise([x, indices], out, "\n".join(body))
