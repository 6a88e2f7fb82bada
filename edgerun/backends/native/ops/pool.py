"""Pooling over channels-last tensors, local response normalisation."""

from __future__ import annotations

from typing import Any

from edgerun.backends.native.lowering import Lowering, Param, lowers
from edgerun.backends.native.ops.elementwise import apply, cast
from edgerun.backends.native.ops.reduce import in_float
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node

KINDS = ("max", "average", "lp")
_DIRECT = (DType.F32, DType.F64, DType.F16, DType.BF16)


def _windows(node: Node, kind: str) -> list[Param]:
    attrs: dict[str, Any] = node.attrs
    kernel = attrs["kernel"]
    spatial = len(kernel)
    if spatial > 3:
        raise UnsupportedError(f"pooling over {spatial} spatial dimensions; the native kernel takes 3")
    params: list[Param] = [KINDS.index(kind), spatial]
    for k in range(spatial):
        params += [kernel[k], attrs["strides"][k], attrs["pads"][k], attrs["pads"][k + spatial], attrs["dilations"][k]]
    return [*params, int(attrs.get("count_include_pad", False)), int(attrs.get("p", 2))]


@lowers("pool")
def pool(node: Node, cx: Lowering) -> None:
    kind = node.attrs["kind"]
    params, dtype = _windows(node, kind), cx.dtype(node.inputs[0])

    def emit(x: str, y: str) -> None:
        cx.emit("pool", [x], [y], params, why=f"{kind} over windows {tuple(node.attrs['kernel'])}, channels last")

    if dtype in _DIRECT or (kind == "max" and dtype in (DType.I8, DType.U8)):
        in_float(cx, node.inputs[0], node.outputs[0], emit)
        return
    # Other integers go through f64, which holds them (up to 32 bits) exactly.
    if dtype not in (DType.I16, DType.U16, DType.I32, DType.U32, DType.I8, DType.U8):
        raise UnsupportedError(f"pooling of {dtype.short} is not done by the native backend")
    wide = cx.temp(DType.F64, cx.shape(node.outputs[0]), "pool.f64")
    emit(cast(cx, node.inputs[0], DType.F64), wide)
    apply(cx, (("cast", dtype, 0),), [wide], node.outputs[0])


@lowers("max_pool_indices")
def max_pool_indices(node: Node, cx: Lowering) -> None:
    dtype = cx.dtype(node.inputs[0])
    if dtype not in (DType.F32, DType.F64, DType.I8, DType.U8):
        raise UnsupportedError(f"max pooling of {dtype.short} with indices is not done by the native backend")
    params = [*_windows(node, "max"), int(node.attrs.get("column_major", False))]
    cx.emit("max_pool_indices", list(node.inputs), list(node.outputs), params, why="window by window")


@lowers("lrn")
def lrn(node: Node, cx: Lowering) -> None:
    attrs = node.attrs
    params: list[Param] = [int(attrs["size"]), float(attrs["alpha"]), float(attrs["beta"]), float(attrs["bias"])]

    def emit(x: str, y: str) -> None:
        cx.emit("lrn", [x], [y], params, why="window over the channels of each pixel")

    if cx.dtype(node.inputs[0]) is DType.F64:
        raise UnsupportedError("local response normalisation of f64 is not done by the native backend")
    in_float(cx, node.inputs[0], node.outputs[0], emit)
