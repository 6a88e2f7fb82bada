"""Ordering: the k extreme elements, distinct elements."""

from __future__ import annotations

from edgerun.dims import DimLike
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, fresh_symbol, normalize_axis, op, require, size


@op("sort")
def topk(
    x: TensorType,
    k: TensorType | None = None,
    *,
    count: DimLike | None = None,
    axis: int,
    largest: bool = True,
    sorted: bool = True,
) -> tuple[TensorType, TensorType]:
    """The `count` (or k, one i64) largest or smallest elements along `axis` and their i64 indices.

    Results are always in order, whether `sorted` asks for it or not; of equal elements the one with the lower index
    comes first. NaN is larger than every number.
    """
    require(x.dtype.is_float or x.dtype.is_integer, f"the order of {x.dtype.short}")
    if x.shape is None:
        return x.like(), TensorType(DType.I64, None)
    axis = normalize_axis(axis, len(x.shape))
    wanted = fresh_symbol("topk") if count is None else count
    length = x.shape[axis]
    if isinstance(wanted, int) and isinstance(length, int):
        require(0 <= wanted <= length, f"{wanted} of the {length} elements of axis {axis}")
    shape = (*x.shape[:axis], wanted, *x.shape[axis + 1 :])
    return x.like(shape), TensorType(DType.I64, shape)


@op("sort")
def unique(
    x: TensorType, *, axis: int | None = None, sorted: bool = True
) -> tuple[TensorType, TensorType, TensorType, TensorType]:
    """Distinct elements (or slices along `axis`): (values, first indices, inverse indices, counts).

    In ascending order, or in order of first appearance unless `sorted`. Without axis the tensor counts as flat.
    """
    count = fresh_symbol("unique")
    numbers = TensorType(DType.I64, (count,))
    if axis is None:
        total = fresh_symbol("unique") if x.shape is None else size(x)
        return TensorType(x.dtype, (count,)), numbers, TensorType(DType.I64, (total,)), numbers
    if x.shape is None:
        return x.like(), numbers, TensorType(DType.I64, (fresh_symbol("unique"),)), numbers
    axis = normalize_axis(axis, len(x.shape))
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return x.like(shape), numbers, TensorType(DType.I64, (x.shape[axis],)), numbers
