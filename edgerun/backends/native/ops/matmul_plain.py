"""Matrix products of float64 and of integers: a plain loop, for the few such products that models have."""

from __future__ import annotations

from edgerun.backends.native.lowering import Lowering
from edgerun.backends.native.ops.elementwise import apply
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node, Shape

TYPES = (DType.F64, DType.I32, DType.I64, DType.U32, DType.U64)


def matmul_plain(node: Node, cx: Lowering) -> None:
    """A product of TYPES, then further kernels for bias and residual. Raises UnsupportedError for all else."""
    a, b = node.inputs[:2]
    bias, residual = (node.inputs[i] if len(node.inputs) > i else "" for i in (2, 3))
    out, dtype, act = node.outputs[0], cx.dtype(a), node.attrs.get("act", "none")
    if dtype not in TYPES:
        raise UnsupportedError(f"a native matmul of {dtype.short}", hint="cast its inputs to f32 or i32")
    if act != "none":
        raise UnsupportedError(f"the activation {act} after a native matmul of {dtype.short}")
    left, right, trans = cx.shape(a), cx.shape(b), bool(node.attrs.get("trans_b", False))
    vector_a, vector_b = len(left) == 1, len(right) == 1
    if vector_a:
        a, left = view(cx, a, (1, *left)), (1, *left)
    if vector_b:
        b, right = view(cx, b, (*right, 1)), (*right, 1)
    shape = cx.shape(out)
    batch = shape[: len(shape) - (not vector_a) - (not vector_b)]
    full = (*batch, left[-2], right[-2] if trans else right[-1])
    terms = [name for name in (bias, residual) if name]
    plain = full == shape and not terms
    product = out if plain else cx.temp(dtype, full, out)
    cx.emit("matmul_plain", [a, b], [product], [int(trans)], macs=cx.macs(node), why=f"{dtype.short}: a plain loop")
    if plain:
        return
    for term in terms[:-1]:
        total = cx.temp(dtype, shape, out)
        apply(cx, (("add", dtype, 0, 1),), [view(cx, product, shape), term], total)
        product = total
    if terms:
        apply(cx, (("add", dtype, 0, 1),), [view(cx, product, shape), terms[-1]], out)
    else:
        cx.emit("copy_bytes", [product], [out], view=True, why="a vector again")


def view(cx: Lowering, name: str, shape: Shape) -> str:
    """The same bytes under another shape; `name` itself when that is its shape."""
    if cx.shape(name) == shape:
        return name
    result = cx.temp(cx.dtype(name), shape, name)
    cx.emit("copy_bytes", [name], [result], view=True, why="a vector as a matrix")
    return result
