"""Indexing: gather, scatter, one-hot, compress, positions of non-zeros, triangles."""

from __future__ import annotations

from edgerun.dims import DimLike
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, fresh_symbol, normalize_axis, op, require, static_value

INDEX_TYPES = (DType.I32, DType.I64)
REDUCTIONS = ("none", "add", "mul", "max", "min")


def _check_index(indices: TensorType) -> None:
    require(indices.dtype in INDEX_TYPES, f"indices are i32 or i64, not {indices.dtype.short}")


@op("gather", symbolic=True)
def gather(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    """Slices of x along `axis` at `indices` (negative ones count from the end): x.shape with the axis replaced."""
    _check_index(indices)
    if x.shape is None or indices.shape is None:
        return TensorType(x.dtype, None)
    axis = normalize_axis(axis, len(x.shape))
    value, length = static_value(indices), x.shape[axis]
    if value is not None and value.size and isinstance(length, int):
        require(-length <= value.min() and value.max() < length, f"an index is outside axis {axis} of {x}")
    return x.like((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@op("gather")
def gather_elements(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    """out[i, j, ...] = x[i, indices[i, j, ...], ...] with the index in place of axis `axis`; shape of `indices`."""
    _check_index(indices)
    if x.shape is not None and indices.shape is not None:
        _check_places(x, indices, axis)
    return TensorType(x.dtype, indices.shape)


def _check_places(x: TensorType, indices: TensorType, axis: int) -> None:
    """Indices have the rank of x, and along the other axes at most its size."""
    require(x.rank == indices.rank, f"{indices} names elements of {x}: the ranks differ")
    axis = normalize_axis(axis, x.rank)
    for i, (length, size) in enumerate(zip(x.dims, indices.dims, strict=True)):
        if i != axis and isinstance(length, int) and isinstance(size, int):
            require(size <= length, f"{indices} leaves axis {i} of {x}")


@op("gather")
def gather_nd(x: TensorType, indices: TensorType, *, batch_dims: int = 0) -> TensorType:
    """Slices of x at index tuples: the last axis of `indices` [..., k] indexes k axes after the batch axes."""
    _check_index(indices)
    if x.shape is None or indices.shape is None or not indices.shape or not isinstance(indices.shape[-1], int):
        return TensorType(x.dtype, None)
    depth = batch_dims + indices.shape[-1]
    require(depth <= len(x.shape) and batch_dims < len(indices.shape), f"gather_nd of {x} by {indices}")
    return x.like((*indices.shape[:-1], *x.shape[depth:]))


def _check_scatter(x: TensorType, indices: TensorType, updates: TensorType, reduction: str) -> None:
    _check_index(indices)
    require(reduction in REDUCTIONS, f"there is no scatter reduction {reduction!r}")
    require(x.dtype is updates.dtype, f"updates {updates} for {x}")


@op("gather")
def scatter_elements(
    x: TensorType, indices: TensorType, updates: TensorType, *, axis: int, reduction: str = "none"
) -> TensorType:
    """x with x[i, indices[i, j, ...], ...] set to (or combined with) updates[i, j, ...].

    Updates apply in row-major order: without a reduction the last one to a place stays.
    """
    _check_scatter(x, indices, updates, reduction)
    if x.shape is not None and indices.shape is not None and updates.shape is not None:
        _check_places(x, indices, axis)
        _agree(indices.shape, updates.shape, "indices and updates")
    return x.like()


@op("gather")
def scatter_nd(x: TensorType, indices: TensorType, updates: TensorType, *, reduction: str = "none") -> TensorType:
    """x with the slices at the index tuples indices [..., k] set to (or combined with) updates, in order."""
    _check_scatter(x, indices, updates, reduction)
    if x.shape is not None and indices.shape is not None and updates.shape is not None and indices.shape:
        depth = indices.shape[-1]
        if isinstance(depth, int):
            require(1 <= depth <= len(x.shape), f"scatter_nd of {x} by {indices}")
            _agree((*indices.shape[:-1], *x.shape[depth:]), updates.shape, "index tuples and updates")
    return x.like()


def _agree(a: tuple[DimLike, ...], b: tuple[DimLike, ...], what: str) -> None:
    same = len(a) == len(b) and all(
        p == q or not (isinstance(p, int) and isinstance(q, int)) for p, q in zip(a, b, strict=False)
    )
    require(same, f"the shapes of {what} differ: {list(map(str, a))} and {list(map(str, b))}")


@op("gather")
def one_hot(indices: TensorType, depth: TensorType, values: TensorType, *, axis: int) -> TensorType:
    """values[1] where the new axis (of length `depth`, at `axis` of the result) equals the index, else values[0].

    Indices may be any numbers; negative ones count from the end; those outside give values[0] everywhere.
    """
    if indices.shape is None:
        return TensorType(values.dtype, None)
    known = static_value(depth)
    size: DimLike = fresh_symbol("depth") if known is None else int(known.reshape(-1)[0])
    require(not isinstance(size, int) or size >= 0, f"a depth of {size}")
    axis = normalize_axis(axis, len(indices.shape) + 1)
    return TensorType(values.dtype, (*indices.shape[:axis], size, *indices.shape[axis:]))


@op("gather")
def compress(x: TensorType, condition: TensorType, *, axis: int | None = None) -> TensorType:
    """Slices along `axis` (elements of the flat tensor without it) where the bool vector `condition` holds."""
    require(condition.dtype is DType.BOOL, f"the condition is {condition.dtype.short}, not bool")
    count = fresh_symbol("compress")
    if axis is None:
        return TensorType(x.dtype, (count,))
    if x.shape is None:
        return x.like()
    axis = normalize_axis(axis, len(x.shape))
    return x.like((*x.shape[:axis], count, *x.shape[axis + 1 :]))


@op("gather")
def nonzero(x: TensorType) -> TensorType:
    """i64 [rank, n]: the positions of the non-zero elements in row-major order. A rank-0 tensor counts as [1]."""
    if x.shape is None:
        return TensorType(DType.I64, None)
    return TensorType(DType.I64, (max(len(x.shape), 1), fresh_symbol("nonzero")))


@op("gather")
def trilu(x: TensorType, k: TensorType | None = None, *, upper: bool) -> TensorType:
    """The upper or lower triangles of the matrices in the last two axes; k shifts the diagonal (up when positive)."""
    if x.shape is not None:
        require(len(x.shape) >= 2, f"{x} holds no matrices")
    return x.like()


@op("gather")
def reverse_sequence(x: TensorType, lengths: TensorType, *, batch_axis: int, time_axis: int) -> TensorType:
    """The first lengths[b] steps of each batch entry reversed along `time_axis`."""
    require(lengths.dtype in INDEX_TYPES, "sequence lengths are integers")
    if x.shape is not None:
        require(len(x.shape) >= 2 and {batch_axis, time_axis} == {0, 1}, "batch and time are the first two axes")
    return x.like()


@op("gather")
def tensor_scatter(
    past: TensorType, update: TensorType, offsets: TensorType | None = None, *, axis: int, mode: str = "linear"
) -> TensorType:
    """`past` with `update` written along `axis` from offsets[b] on (0 by default); "circular" wraps around.

    past [B, ..., T, ...] and update [B, ..., S, ...] differ in that axis only.
    """
    require(past.dtype is update.dtype, f"cannot write {update} into {past}")
    require(mode in ("linear", "circular"), f"there is no mode {mode!r}")
    if past.shape is not None:
        require(normalize_axis(axis, len(past.shape)) != 0, "the written axis cannot be the batch")
    return past.like()
