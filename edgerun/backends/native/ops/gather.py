"""Gathers, scatters and tensors made from indices."""

from __future__ import annotations

from edgerun.backends.native.lowering import Lowering, lowers
from edgerun.backends.native.ops.elementwise import cast
from edgerun.backends.native.ops.movement import copy_nd, strides_of
from edgerun.backends.native.ops.reduce import number_of
from edgerun.backends.native.sizes import define, integer
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node

REDUCTIONS = ("none", "add", "mul", "min", "max")
"""Numbers of enum scatter_reduction."""


def _indices(cx: Lowering, name: str) -> str:
    """The index tensor as i32 or i64."""
    return name if cx.dtype(name) in (DType.I32, DType.I64) else cast(cx, name, DType.I64)


@lowers("gather")
def gather(node: Node, cx: Lowering) -> None:
    """A constant scalar or evenly spaced index list becomes a slice, everything else rows copied by index."""
    x, indices = node.inputs
    shape, axis = cx.shape(x), node.attrs["axis"]
    number_of(cx, cx.dtype(x), "a gather")
    data = cx.constant(indices)
    size = shape[axis]
    if data is not None and data.size == 1 and isinstance(size, int) and -size <= int(data.reshape(-1)[0]) < size:
        index = int(data.reshape(-1)[0]) % size
        strides = strides_of(shape)
        sizes = [*shape[:axis], *shape[axis + 1 :]]
        kept = [*strides[:axis], *strides[axis + 1 :]]
        copy_nd(cx, x, node.outputs[0], sizes, kept, index * strides[axis], why=f"one index ({index}) of the axis")
        return
    cx.emit("gather", [x, _indices(cx, indices)], [node.outputs[0]], [axis], why="rows by index")


@lowers("gather_elements")
def gather_elements(node: Node, cx: Lowering) -> None:
    number_of(cx, cx.dtype(node.inputs[0]), "a gather")
    inputs = [node.inputs[0], _indices(cx, node.inputs[1])]
    cx.emit("gather_elements", inputs, [node.outputs[0]], [node.attrs["axis"]], why="element by index")


@lowers("gather_nd")
def gather_nd(node: Node, cx: Lowering) -> None:
    number_of(cx, cx.dtype(node.inputs[0]), "a gather")
    inputs = [node.inputs[0], _indices(cx, node.inputs[1])]
    cx.emit("gather_nd", inputs, [node.outputs[0]], [node.attrs.get("batch_dims", 0)], why="slices by index tuples")


def _scatter(kernel: str, node: Node, cx: Lowering, axis: int) -> None:
    data, indices, updates = node.inputs
    number_of(cx, cx.dtype(data), "a scatter")
    reduction = REDUCTIONS.index(node.attrs.get("reduction", "none"))
    in_place = [(0, 0)] if cx.constant(data) is None else []
    cx.emit(
        kernel, [data, _indices(cx, indices), updates], [node.outputs[0]], [axis, reduction], in_place=in_place,
        why="a copy, then the updates in order",
    )  # fmt: skip


@lowers("scatter_elements")
def scatter_elements(node: Node, cx: Lowering) -> None:
    _scatter("scatter_elements", node, cx, node.attrs["axis"])


@lowers("scatter_nd")
def scatter_nd(node: Node, cx: Lowering) -> None:
    _scatter("scatter_nd", node, cx, 0)


@lowers("one_hot")
def one_hot(node: Node, cx: Lowering) -> None:
    indices, depth, values = node.inputs
    if cx.constant(depth) is None:
        shape, size = cx.shape(indices), integer(cx, depth, 0)
        axis = node.attrs["axis"] % (len(shape) + 1)
        define(cx, node.outputs[0], [*shape[:axis], size, *shape[axis:]])
    if cx.dtype(indices) in (DType.F16, DType.BF16, DType.U64):
        indices = cast(cx, indices, DType.I64)
    number_of(cx, cx.dtype(values), "one_hot")
    cx.emit("one_hot", [indices, values], [node.outputs[0]], [node.attrs["axis"]], why="filled, then set by index")


@lowers("trilu")
def trilu(node: Node, cx: Lowering) -> None:
    x = node.inputs[0]
    number_of(cx, cx.dtype(x), "a triangle")
    diagonal, k = node.inputs[1] if len(node.inputs) > 1 else "", 0
    data = cx.constant(diagonal) if diagonal else None
    if data is not None:
        diagonal, k = "", max(min(int(data.reshape(-1)[0]), (1 << 31) - 1), -(1 << 31))
    params = [int(node.attrs["upper"]), k]
    cx.emit("trilu", [x, diagonal], [node.outputs[0]], params, in_place=[(0, 0)], why="row by row")


@lowers("reverse_sequence")
def reverse_sequence(node: Node, cx: Lowering) -> None:
    x, lengths = node.inputs
    number_of(cx, cx.dtype(x), "a reversal")
    params = [node.attrs["batch_axis"], node.attrs["time_axis"]]
    cx.emit("reverse_sequence", [x, cast(cx, lengths, DType.I64)], [node.outputs[0]], params, why="step by step")


@lowers("eye_like")
def eye_like(node: Node, cx: Lowering) -> None:
    """A weight: the shape must be known."""
    import numpy as np

    shape = cx.shape(node.outputs[0])
    if not all(isinstance(d, int) for d in shape):
        raise UnsupportedError("the size of an identity matrix is symbolic", hint="bind it with --shape")
    rows, columns = (int(d) for d in shape)
    eye = np.eye(rows, columns, k=node.attrs.get("k", 0)).astype(cx.dtype(node.outputs[0]).numpy)
    cx.emit("copy_bytes", [cx.weight(eye, "eye")], [node.outputs[0]], view=True, why="known while planning")
