"""Gathers, scatters and tensors made from indices."""

from __future__ import annotations

from edgerun.backends.native.lowering import Lowering, lowers
from edgerun.backends.native.ops.elementwise import cast
from edgerun.backends.native.ops.movement import copy_nd, strides_of, view
from edgerun.backends.native.ops.reduce import number_of
from edgerun.backends.native.sizes import define, integer, integers, total
from edgerun.dims import DimLike, minimum, product
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


@lowers("nonzero")
def nonzero(node: Node, cx: Lowering) -> None:
    """As many columns as there are elements, of which those found are kept."""
    x, y = node.inputs[0], node.outputs[0]
    number_of(cx, cx.dtype(x), "what is not zero")
    _, rows, most = _positions(cx, x, y)
    size = cx.shape(y)[1]
    copy_nd(cx, rows, y, [cx.shape(y)[0], size], [most, 1], why="the columns found")


def _positions(cx: Lowering, x: str, y: str) -> tuple[DimLike, str, DimLike]:
    """Emit nonzero: (number found, table of positions, its row length); says what the shape of `y`, if any, is."""
    rank, most = max(len(cx.shape(x)), 1), product(cx.shape(x))
    table, count = cx.temp(DType.I64, (rank, most), f"{x}.positions"), cx.temp(DType.I64, (1,), f"{x}.count")
    cx.emit("nonzero", [x], [table, count], why="one scan")
    found = integer(cx, count, 0, cx.upper(most))
    if y:
        define(cx, y, [rank, found])
    return found, table, most


@lowers("compress")
def compress(node: Node, cx: Lowering) -> None:
    """The rows at the positions where the condition holds."""
    (x, condition), y = node.inputs, node.outputs[0]
    number_of(cx, cx.dtype(x), "a choice")
    axis = node.attrs.get("axis")
    if axis is None:
        flat = cx.temp(cx.dtype(x), (product(cx.shape(x)),), f"{x}.flat")
        view(cx, x, flat)
        x, axis = flat, 0
    shape = cx.shape(x)
    axis %= len(shape)
    short = minimum(product(cx.shape(condition)), shape[axis])  # what lies past the axis does not count
    used = cx.temp(DType.BOOL, (short,), f"{condition}.used")
    copy_nd(cx, condition, used, [short], [1], why="the flags of the axis")
    found, table, _ = _positions(cx, used, "")
    indices = cx.temp(DType.I64, (found,), f"{condition}.indices")
    copy_nd(cx, table, indices, [found], [1], why="the positions found")
    define(cx, y, [*shape[:axis], found, *shape[axis + 1 :]])
    cx.emit("gather", [x, indices], [y], [axis], why="rows by index")


@lowers("split_to_sequence")
def split_to_sequence(node: Node, cx: Lowering) -> None:
    """One tensor for each part; the parts are known by name while planning."""
    x = node.inputs[0]
    shape, attrs = cx.shape(x), node.attrs
    axis = attrs.get("axis", 0) % len(shape)
    if len(node.inputs) < 2 or not node.inputs[1] or not cx.shape(node.inputs[1]):
        raise UnsupportedError("a sequence whose length is not known", hint="use --backend numpy")
    sizes = integers(cx, node.inputs[1], 0, cx.upper(shape[axis]))
    cx.emit("expect", [], [], [total(sizes), shape[axis]], why="the parts make up the axis")
    strides, start, parts = strides_of(shape), total([]), []
    for k, size in enumerate(sizes):
        part = cx.temp(cx.dtype(x), (*shape[:axis], size, *shape[axis + 1 :]), f"{node.outputs[0]}[{k}]")
        copy_nd(cx, x, part, cx.shape(part), strides, start * strides[axis], why="a part of the axis")
        start = start + size
        parts.append(part)
    cx.sequences[node.outputs[0]] = parts


@lowers("sequence_at")
def sequence_at(node: Node, cx: Lowering) -> None:
    """A view of a tensor of a sequence that is known while planning, at a constant place."""
    source, position = node.inputs
    place = cx.constant(position)
    if source not in cx.sequences or place is None:
        raise UnsupportedError("sequences are not done by the native backend", hint="use --backend numpy")
    parts, k = cx.sequences[source], int(place.reshape(-1)[0])
    if not -len(parts) <= k < len(parts):
        raise UnsupportedError(f"a sequence of {len(parts)} tensors has no element {k}")
    define(cx, node.outputs[0], cx.shape(parts[k]))
    view(cx, parts[k], node.outputs[0])


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
