"""Layer, RMS and group normalisation."""

from __future__ import annotations

from edgerun.backends.native.lowering import Lowering, lowers
from edgerun.backends.native.ops.elementwise import apply, cast
from edgerun.backends.native.ops.movement import broadcast_strides, copy_nd
from edgerun.backends.native.ops.reduce import HALF, in_float
from edgerun.dims import product
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node
from edgerun.ops.registry import compatible


def _parameter(cx: Lowering, name: str, shape: tuple, dtype: DType) -> str:
    """A scale or bias in the dtype of the computation, spread to `shape` where it is smaller.

    Dimensions that are two different symbols are the same number: the kernel checks that when the sizes are bound.
    """
    if not name:
        return ""
    own = cx.shape(name)
    name = cast(cx, name, DType.F32 if dtype in HALF else dtype)
    if product(own) == product(shape) or (compatible(own, shape) and 1 not in own):
        return name
    spread = cx.temp(cx.dtype(name), shape, hint=f"{name}.spread")
    copy_nd(cx, name, spread, shape, broadcast_strides(own, shape), why="scale spread over the row")
    return spread


def _rows(kernel: str, node: Node, cx: Lowering) -> None:
    x, axis = node.inputs[0], node.attrs["axis"]
    shape, final = cx.shape(x), cx.dtype(node.outputs[0])
    # The result may have the type of the scale rather than of x: the computation takes the wider one.
    dtype = DType.F64 if DType.F64 in (cx.dtype(x), final) else DType.F32
    axis = axis + len(shape) if axis < 0 else axis
    parameters = [_parameter(cx, n, shape[axis:], dtype) for n in node.inputs[1:3]]
    params = [axis, float(node.attrs["epsilon"])]
    extra = list(node.outputs[1:])
    for name in extra:
        if name and cx.dtype(name) is not DType.F32:
            raise UnsupportedError(f"statistics as {cx.dtype(name).short} are not given by the native kernel")

    y = node.outputs[0]
    result = y if final is dtype else cx.temp(dtype, shape, "normalised")
    cx.emit(
        kernel, [cast(cx, x, dtype), *parameters], [result, *extra], params, in_place=[(0, 0)],
        why="statistics and result while the row is in the cache",
    )  # fmt: skip
    if result != y:
        apply(cx, (("cast", final, 0),), [result], y)


@lowers("layer_norm")
def layer_norm(node: Node, cx: Lowering) -> None:
    _rows("layer_norm", node, cx)


@lowers("rms_norm")
def rms_norm(node: Node, cx: Lowering) -> None:
    _rows("rms_norm", node, cx)


@lowers("group_norm")
def group_norm(node: Node, cx: Lowering) -> None:
    x = node.inputs[0]
    shape, dtype = cx.shape(x), cx.dtype(x)
    parameters = [_parameter(cx, n, shape[-1:], dtype) for n in node.inputs[1:3]]
    params = [node.attrs["groups"], float(node.attrs["epsilon"])]

    def emit(source: str, output: str) -> None:
        cx.emit("group_norm", [source, *parameters], [output], params, in_place=[(0, 0)], why="a task a group")

    in_float(cx, x, node.outputs[0], emit)
