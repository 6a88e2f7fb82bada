"""Sequences: lists of tensors of one dtype. NumPy backend only.

The TensorType of a sequence has kind "sequence"; its shape is what all elements have in common: None when even the rank
varies, with `VARIES` for a size that varies from element to element.
"""

from __future__ import annotations

from edgerun.dims import DimLike, is_static, symbol
from edgerun.dtypes import DType
from edgerun.graph import Shape
from edgerun.ops.registry import TensorType, fresh_symbol, normalize_axis, op, require, static_value

VARIES = symbol("varies")
"""Stands in a sequence's shape for a size that differs between elements; never in the shape of a tensor."""


def common_shape(a: Shape | None, b: Shape | None) -> Shape | None:
    """What two element shapes have in common."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else VARIES for x, y in zip(a, b, strict=True))


def element(sequence: TensorType) -> TensorType:
    """The type of one element, with a fresh symbol for each size that varies."""
    shape = sequence.shape
    if shape is not None:
        shape = tuple(fresh_symbol("element") if d == VARIES else d for d in shape)
    return TensorType(sequence.dtype, shape)


def _expect_sequence(t: TensorType) -> None:
    require(t.kind == "sequence", f"expected a sequence, got a {t.kind}")


def _expect_position(t: TensorType | None) -> None:
    if t is not None:
        require(t.dtype in (DType.I32, DType.I64), f"a position is i32 or i64, not {t.dtype.short}")


@op("sequence")
def sequence_construct(*xs: TensorType) -> TensorType:
    """The tensors as a list."""
    require(len(xs) > 0, "a sequence is constructed of at least one tensor")
    shape = xs[0].shape
    for x in xs[1:]:
        require(x.dtype is xs[0].dtype, f"elements of a sequence differ in type: {xs[0].dtype.short}, {x.dtype.short}")
        shape = common_shape(shape, x.shape)
    return TensorType(xs[0].dtype, shape, kind="sequence")


@op("sequence")
def sequence_empty(*, dtype: DType) -> TensorType:
    """A list without elements, for tensors of `dtype`."""
    return TensorType(dtype, None, kind="sequence")


@op("sequence")
def sequence_at(sequence: TensorType, position: TensorType) -> TensorType:
    """One element; a negative position counts from the end."""
    _expect_sequence(sequence)
    _expect_position(position)
    return element(sequence)


@op("sequence")
def sequence_insert(sequence: TensorType, x: TensorType, position: TensorType | None = None) -> TensorType:
    """The list with `x` put before `position`, or at the end without one."""
    _expect_sequence(sequence)
    _expect_position(position)
    require(sequence.dtype is x.dtype, f"a tensor of {x.dtype.short} does not fit a sequence of {sequence.dtype.short}")
    return TensorType(x.dtype, common_shape(sequence.shape, x.shape), kind="sequence")


@op("sequence")
def sequence_erase(sequence: TensorType, position: TensorType | None = None) -> TensorType:
    """The list without the element at `position` (the last one by default)."""
    _expect_sequence(sequence)
    _expect_position(position)
    return sequence


@op("sequence")
def sequence_length(sequence: TensorType) -> TensorType:
    """The number of elements, a scalar i64."""
    _expect_sequence(sequence)
    return TensorType(DType.I64, ())


@op("sequence")
def split_to_sequence(
    x: TensorType, split: TensorType | None = None, *, axis: int, keepdims: bool = True
) -> TensorType:
    """Cut `x` along `axis`: into chunks of size `split` (scalar; the last may be smaller), of the sizes `split` (1-D),
    or of size 1, where `keepdims=False` drops the axis."""
    if split is not None:
        require(split.dtype in (DType.I32, DType.I64), f"split sizes are i32 or i64, not {split.dtype.short}")
        require(split.shape is None or len(split.shape) <= 1, "split is a scalar or a list")
    if x.shape is None:
        return TensorType(x.dtype, None, kind="sequence")
    axis = normalize_axis(axis, len(x.shape))
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    if split is None:
        middle: tuple[DimLike, ...] = (1,) if keepdims else ()
    else:
        middle = (_piece(x.shape[axis], split),)
    return TensorType(x.dtype, (*before, *middle, *after), kind="sequence")


def _piece(total: DimLike, split: TensorType) -> DimLike:
    """The size of a piece when all are equal, else VARIES."""
    sizes = static_value(split)
    if sizes is None or not is_static((total,)):
        return VARIES
    if sizes.ndim == 0:
        require(int(sizes) > 0, f"the split size {int(sizes)} is not positive")
        return int(sizes) if int(total) % int(sizes) == 0 else VARIES
    fits = bool((sizes >= 0).all()) and int(sizes.sum()) == total
    require(fits, f"split sizes {sizes.tolist()} do not add to {total}")
    return int(sizes[0]) if sizes.size and bool((sizes == sizes[0]).all()) else VARIES


@op("sequence")
def concat_from_sequence(sequence: TensorType, *, axis: int, new_axis: bool = False) -> TensorType:
    """All elements joined along `axis`, or stacked along a new one. Raises ShapeError at run time when empty."""
    _expect_sequence(sequence)
    if sequence.shape is None:
        return TensorType(sequence.dtype, None)
    dims: list[DimLike] = [fresh_symbol("element") if d == VARIES else d for d in sequence.shape]
    if new_axis:
        dims.insert(normalize_axis(axis, len(dims) + 1), fresh_symbol("length"))
    else:
        dims[normalize_axis(axis, len(dims))] = fresh_symbol("total")
    return TensorType(sequence.dtype, tuple(dims))
