"""Matrix products and determinants."""

from __future__ import annotations

from edgerun.dims import DimLike, broadcast, product
from edgerun.graph import Shape
from edgerun.ops.activation import check_epilogue
from edgerun.ops.registry import TensorType, macs, may_equal, op, require


@op("matmul")
def matmul(
    a: TensorType,
    b: TensorType,
    bias: TensorType | None = None,
    residual: TensorType | None = None,
    *,
    trans_b: bool = False,
    act: str = "none",
    p0: float = 0.0,
    p1: float = 0.0,
    res: str = "none",
) -> TensorType:
    """The product a [..., M, K] @ b [..., K, N] with broadcast batches, plus bias [N]; residual has the output's shape.

    As NumPy: a vector a is one row, a vector b one column, and their axis is dropped from the result. With `trans_b`
    b is [..., N, K]. One dtype; f16 and bf16 are summed in f32, integers wrap. Raises ShapeError when sizes differ.
    """
    for other in (b, bias, residual):
        require(other is None or other.dtype is a.dtype, f"matmul mixes {a.dtype.short} and {other}")
    require(a.dtype.is_float or a.dtype.is_integer, f"the product of {a.dtype.short} is not defined")
    require(a.dtype.is_float or act == "none", f"activation {act!r} of {a.dtype.short}")
    require(act != "prelu", "matmul has no prelu")
    out = _product_shape(a, b, trans_b)
    require(bias is None or b.shape is None or len(b.shape) > 1, "a product with a vector takes no bias")
    check_epilogue(out, bias, residual, None, act, res)
    return TensorType(a.dtype, out)


def _product_shape(a: TensorType, b: TensorType, trans_b: bool) -> Shape | None:
    if a.shape is None or b.shape is None:
        return None
    require(len(a.shape) > 0 and len(b.shape) > 0, f"matmul of a scalar: {a} and {b}")
    require(not trans_b or len(b.shape) > 1, "a vector cannot be transposed")
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    if trans_b:
        right = (*right[:-2], right[-1], right[-2])
    inner, other = left[-1], right[-2]
    require(may_equal(inner, other), f"the inner sizes {inner} and {other} of {a} and {b} differ")
    result = broadcast(left[:-2], right[:-2])
    if len(a.shape) > 1:
        result = (*result, left[-2])
    return (*result, right[-1]) if len(b.shape) > 1 else result


@macs("matmul")
def _matmul_macs(a: TensorType, *rest: object, out: TensorType, **attrs: object) -> DimLike:
    return 0 if a.shape is None or out.shape is None else product(out.shape) * a.shape[-1]


@op("matmul")
def det(x: TensorType) -> TensorType:
    """Determinants of the square matrices x [..., M, M] -> [...]. Floats; f16 and bf16 are computed in f32."""
    require(x.dtype.is_float, f"a determinant takes floats, not {x.dtype.short}")
    if x.shape is None:
        return TensorType(x.dtype, None)
    require(len(x.shape) >= 2, f"a determinant needs matrices, not {x}")
    require(may_equal(x.shape[-2], x.shape[-1]), f"the matrices {x} are not square")
    return TensorType(x.dtype, x.shape[:-2])


@macs("det")
def _det_macs(x: TensorType, *, out: TensorType) -> DimLike:
    return 0 if x.shape is None else product(x.shape) * x.shape[-1]
