"""Pooling, channels last: x [N, *S, C]. `pads` lists the padding before every spatial axis, then after every one."""

from __future__ import annotations

from edgerun.dims import DimLike
from edgerun.dtypes import DType
from edgerun.graph import Shape
from edgerun.ops.registry import TensorType, fresh_symbol, op, require
from edgerun.ops.windows import check_window, span, window_counts

KINDS = ("max", "average", "lp")


@op("pool")
def pool(
    x: TensorType,
    *,
    kind: str,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[DimLike, ...],
    dilations: tuple[int, ...],
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    p: int = 2,
) -> TensorType:
    """Max, average or p-norm over windows: x [N, *S, C] -> [N, *S', C].

    Padding never wins a maximum; it counts in the average's divisor only with `count_include_pad`, and cells beyond the
    padding (partial windows of ceil mode) never do. NaN wins a maximum. Max takes floats and integers, the others
    floats; f16 and bf16 are summed in f32.
    """
    require(kind in KINDS, f"there is no pooling {kind!r}")
    require(x.dtype.is_float or (kind == "max" and x.dtype.is_integer), f"{kind} pooling of {x.dtype.short}")
    require(p >= 1, f"a norm of order {p}")
    return x.like(_pooled(x, kernel, strides, pads, dilations, ceil_mode)) if x.shape is not None else x.like()


@op("pool")
def max_pool_indices(
    x: TensorType,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[DimLike, ...],
    dilations: tuple[int, ...],
    ceil_mode: bool = False,
    column_major: bool = False,
) -> tuple[TensorType, TensorType]:
    """Max pooling with the places of the maxima: x [N, *S, C] -> (y [N, *S', C], indices i64 [N, *S', C]).

    An index is the place of the first maximum in the flattened [N, C, *S]; `column_major` flattens the spatial axes
    with the first one fastest. NaN counts as largest. Window, padding and dtypes as `pool`.
    """
    require(x.dtype.is_float or x.dtype.is_integer, f"max pooling of {x.dtype.short}")
    y = x.like(_pooled(x, kernel, strides, pads, dilations, ceil_mode)) if x.shape is not None else x.like()
    return y, y.like(dtype=DType.I64)


@op("pool")
def max_unpool(
    x: TensorType,
    indices: TensorType,
    size: TensorType | None = None,
    *,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[DimLike, ...],
    to: Shape | None = None,
) -> TensorType:
    """Put values back where max pooling found them, zeros elsewhere: x, indices [N, C, *S] -> [N, C, *S'].

    Channels come FIRST here, because indices count that way.
    An index is a place in the flattened [N, C, *T] with T = (S - 1) * stride + kernel - pads, the size before pooling.
    S' is T, or the spatial part of `to` or of the run-time `size` (both full shapes), which extends T at the end.
    """
    require(indices.dtype is DType.I64, f"indices are i64, not {indices.dtype.short}")
    if x.shape is None:
        return x.like()
    n = len(x.shape) - 2
    check_window(n, kernel, strides, (1,) * n, pads)
    require(indices.shape is None or len(indices.shape) == len(x.shape), f"indices {indices} do not fit {x}")
    if to is not None:
        require(len(to) == n + 2, f"the output shape {to} has another rank than {x}")
        return x.like(to)
    if size is not None:
        return x.like((*x.shape[:2], *(fresh_symbol("unpool") for _ in range(n))))
    return x.like((*x.shape[:2], *unpooled_sizes(x.shape[2:], kernel, strides, pads)))


def unpooled_sizes(sizes: Shape, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[DimLike, ...]) -> Shape:
    """The spatial sizes that max pooling started from."""
    n = len(sizes)
    return tuple((sizes[i] - 1) * strides[i] + span(kernel[i], 1) - pads[i] - pads[n + i] for i in range(n))


def _pooled(
    x: TensorType,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[DimLike, ...],
    dilations: tuple[int, ...],
    ceil_mode: bool,
) -> Shape:
    require(x.rank >= 3, f"pooling needs batch, spatial axes and channels, not {x}")
    check_window(x.rank - 2, kernel, strides, dilations, pads)
    return (x.dims[0], *window_counts(x.dims[1:-1], kernel, strides, dilations, pads, ceil_mode), x.dims[-1])
