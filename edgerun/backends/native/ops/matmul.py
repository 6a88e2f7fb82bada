"""Matrix products: packed at plan time when the right operand is constant, else packed while running."""

from __future__ import annotations

from edgerun.backends.native import packing
from edgerun.backends.native.lowering import Lowering, Param, lowers
from edgerun.backends.native.ops.conv import RESIDUAL, padded_bias, residual_in_place
from edgerun.backends.native.ops.half import computed_in_f32
from edgerun.backends.native.ops.matmul_plain import matmul_plain, view
from edgerun.dims import DimLike, product
from edgerun.dtypes import DType
from edgerun.graph import Node, Shape
from edgerun.ops.activation import ACTIVATIONS

THREAD_BYTES = 256 * 1024
"""Right operands up to this size are packed by the thread that multiplies them, one batch each."""


@lowers("matmul")
@computed_in_f32
def matmul(node: Node, cx: Lowering) -> None:
    """Products of any rank; vectors are seen as matrices of one row or column. Other types than f32: matmul_plain."""
    a, b = node.inputs[:2]
    if cx.dtype(a) is not DType.F32:
        matmul_plain(node, cx)
        return
    trans = bool(node.attrs.get("trans_b", False))
    left, right = cx.shape(a), cx.shape(b)
    weight = cx.constant(b)
    bias, residual = (node.inputs[i] if len(node.inputs) > i else "" for i in (2, 3))
    epilogue: list[Param] = [
        ACTIVATIONS[node.attrs.get("act", "none")],
        float(node.attrs.get("p0", 0.0)),
        float(node.attrs.get("p1", 0.0)),
        RESIDUAL[node.attrs.get("res", "none")],
    ]
    macs = cx.macs(node)
    strided = (0, 3) if residual else (0,)
    if weight is not None and weight.ndim == 2 and len(left) >= 1:
        matrix = weight.T if trans else weight
        k, n = matrix.shape
        packed = cx.weight(packing.pack_matrix(matrix, cx.arch), b, key=(b, f"matrix {trans}"))
        cx.emit(
            "matmul_f32", [a, packed, padded_bias(cx, bias), residual, ""], node.outputs, [k, n, *epilogue], macs=macs,
            in_place=((0, 3),) if residual_in_place(node) else (), strided_inputs=strided, strided_outputs=(0,),
            why="the right operand is constant and packed",
        )  # fmt: skip
        return
    _dynamic(node, cx, left, right, (trans, bias, residual), epilogue, macs)


def _dynamic(
    node: Node,
    cx: Lowering,
    left: Shape,
    right: Shape,
    options: tuple[bool, str, str],
    epilogue: list[Param],
    macs: DimLike,
) -> None:
    """matmul_dyn_f32 takes matrices: vectors get a unit dimension through views, and the output loses it again."""
    trans, bias, residual = options
    a, b, out = node.inputs[0], node.inputs[1], node.outputs[0]
    shape = cx.shape(out)
    vector_a, vector_b = len(left) == 1, len(right) == 1
    if vector_a:
        a, left = view(cx, a, (1, *left)), (1, *left)
    if vector_b:
        b, right, trans = view(cx, b, (*right, 1)), (*right, 1), False
    n = right[-2] if trans else right[-1]
    k = left[-1]
    result = out
    full = (*shape[: len(shape) - (not vector_a) - (not vector_b)], left[-2], n)
    if vector_a or vector_b:
        result = cx.temp(DType.F32, full, out)
        if residual:
            residual = view(cx, residual, full)
    columns = packing.padded_columns(cx.upper(n), cx.arch)
    packed = (columns * cx.upper(k) + columns) * 4
    shared = packed > THREAD_BYTES or product(full[:-2]) == 1
    cx.emit(
        "matmul_dyn_f32", [a, b, bias, residual, ""], [result], [int(trans), *epilogue],
        scratch=packed if shared else 0, thread_scratch=0 if shared else packed, macs=macs,
        why="both operands are computed: " + ("the right one is packed first" if shared else "packed batch by batch"),
    )  # fmt: skip
    if result != out:
        cx.emit("copy_bytes", [result], [out], view=True, why="a vector again")
