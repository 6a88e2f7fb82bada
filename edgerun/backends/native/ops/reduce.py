"""Reductions, arg max/min, running sums, top-k, softmax: ops along axes."""

from __future__ import annotations

import math
from collections.abc import Callable

from edgerun.backends.native.lowering import Lowering, lowers
from edgerun.backends.native.ops.elementwise import cast
from edgerun.backends.native.ops.movement import view
from edgerun.backends.native.sizes import axes_of, define, integer, is_zero, selected, total
from edgerun.dims import DimLike, minimum, product
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node
from edgerun.ops.reduce import reduced_shape

KINDS = ("sum", "mean", "max", "min", "prod", "l1", "l2", "logsum", "logsumexp", "sumsq")
"""Numbers of enum reduce_kind."""
HALF = (DType.F16, DType.BF16)


def in_float(cx: Lowering, source: str, output: str, emit: Callable[[str, str], None]) -> None:
    """Run `emit(source, output)` for f32 and f64; for 16-bit floats between conversions from and to f32."""
    dtype = cx.dtype(output)
    if dtype not in HALF:
        emit(source, output)
        return
    result = cx.temp(DType.F32, cx.shape(output), hint=f"{output}.f32")
    emit(cast(cx, source, DType.F32), result)
    from edgerun.backends.native.ops.elementwise import apply

    apply(cx, (("cast", dtype, 0),), [result], output)


def number_of(cx: Lowering, dtype: DType, what: str) -> DType:
    """`dtype`, when the native runtime has it. Raises UnsupportedError for strings, complex and small floats."""
    if dtype.code > DType.BOOL.code:
        raise UnsupportedError(f"{what} of {dtype.short} is not done by the native backend")
    return dtype


@lowers("reduce")
def reduce(node: Node, cx: Lowering) -> None:
    """One kernel for all kinds; no reduced axes with kind sum, mean, max, min or prod is a copy."""
    x, y, kind = node.inputs[0], node.outputs[0], node.attrs["kind"]
    rank = len(cx.shape(x))
    over = node.attrs.get("over")
    number_of(cx, cx.dtype(x), "a reduction")
    if over is None:
        axes = node.inputs[1] if len(node.inputs) > 1 else ""
        if axes and cx.constant(axes) is None and product(cx.shape(axes)) != 0:
            cx.emit("reduce", [x], [y], [KINDS.index(kind), _computed_axes(node, cx)], why="over computed axes")
            return
        data = cx.constant(axes) if axes else None
        over = tuple(data.reshape(-1).tolist()) if data is not None else ()
        if not over and not node.attrs.get("noop_with_empty_axes", False):
            over = tuple(range(rank))
        define(cx, y, reduced_shape(cx.shape(x), over, node.attrs.get("keepdims", True)))
    mask = 0
    for axis in over:
        mask |= 1 << (axis + rank if axis < 0 else axis)
    if mask == 0 and kind in ("sum", "mean", "max", "min", "prod"):
        view(cx, x, y)
        return
    cx.emit("reduce", [x], [y], [KINDS.index(kind), mask], why=f"{kind} over axes {tuple(over)}")


def _computed_axes(node: Node, cx: Lowering) -> DimLike:
    """The mask of the axes that the data name; also says what the shape of the result is."""
    shape = cx.shape(node.inputs[0])
    axes = axes_of(cx, node.inputs[1], len(shape))
    gone = [minimum(total(selected(axes, k)), 1) for k in range(len(shape))]
    if node.attrs.get("keepdims", True):
        result = [d + g * (1 - d) for d, g in zip(shape, gone, strict=True)]
    else:
        # Axis k is kept in place i when it is not reduced and i axes before it are kept.
        kept = [1 - g for g in gone]
        result = []
        for i in range(max(len(shape) - len(axes), 0)):
            d = total(n * is_zero(total(kept[:k]) - i) * kept[k] for k, n in enumerate(shape))
            result.append(minimum(d, max(cx.upper(n) for n in shape)))
    define(cx, node.outputs[0], result, most=math.prod(max(cx.upper(n), 1) for n in shape))
    return total(g * (1 << k) for k, g in enumerate(gone))


@lowers("argreduce")
def argreduce(node: Node, cx: Lowering) -> None:
    x, attrs = node.inputs[0], node.attrs
    number_of(cx, cx.dtype(x), "arg max")
    params = [attrs["axis"], int(attrs.get("kind", "max") == "min"), int(attrs.get("last", False))]
    cx.emit("argreduce", [x], [node.outputs[0]], params, why="one scan along the axis")


@lowers("softmax")
def softmax(node: Node, cx: Lowering) -> None:
    params = [node.attrs["axis"], int(node.attrs.get("log", False))]

    def emit(x: str, y: str) -> None:
        cx.emit("softmax", [x], [y], params, in_place=[(0, 0)], why="one pass, the row stays in the cache")

    in_float(cx, node.inputs[0], node.outputs[0], emit)


@lowers("hardmax")
def hardmax(node: Node, cx: Lowering) -> None:
    cx.emit("hardmax", [node.inputs[0]], [node.outputs[0]], [node.attrs["axis"]], why="one scan along the axis")


def _scan(kernel_kind: int) -> Callable[[Node, Lowering], None]:
    def lower(node: Node, cx: Lowering) -> None:
        x, axis = node.inputs[0], node.attrs.get("over")
        if axis is None:
            (axis,) = axes_of(cx, node.inputs[1], len(cx.shape(x)))
        axis = axis + len(cx.shape(x)) if isinstance(axis, int) and axis < 0 else axis
        number_of(cx, cx.dtype(x), "a running sum")
        params = [axis, kernel_kind, int(node.attrs.get("exclusive", False)), int(node.attrs.get("reverse", False))]

        def emit(source: str, output: str) -> None:
            cx.emit("scan", [source], [output], params, why="one pass along the axis")

        in_float(cx, x, node.outputs[0], emit)

    return lower


lowers("cumsum")(_scan(0))
lowers("cumprod")(_scan(1))


@lowers("topk")
def topk(node: Node, cx: Lowering) -> None:
    """A heap of k entries a line; the last axis is brought last when it is another."""
    x, (values, indices), axis = node.inputs[0], node.outputs, node.attrs["axis"]
    shape = cx.shape(x)
    if node.attrs.get("count") is None:
        most = cx.upper(shape[axis])
        count = integer(cx, node.inputs[1], 0, most)
        for output in filter(None, node.outputs):
            define(cx, output, [count if k == axis % len(shape) else d for k, d in enumerate(shape)])
    number_of(cx, cx.dtype(x), "top-k")
    if not values:
        values = cx.temp(cx.dtype(x), cx.shape(indices), "topk.values")
    if not indices:
        indices = cx.temp(DType.I64, cx.shape(values), "topk.indices")
    params = [axis, int(node.attrs.get("largest", True)), int(node.attrs.get("sorted", True))]
    # One (key, index) entry of 16 bytes for each element of a line.
    cx.emit(
        "topk", [x], [values, indices], params, thread_scratch=shape[axis] * 16, why="partial sort of each line"
    )  # fmt: skip
