"""Normalisation over axes of one example. Statistics are computed in f32 (f64 for f64 inputs)."""

from __future__ import annotations

from edgerun.dims import DimLike
from edgerun.dtypes import DType
from edgerun.graph import Shape
from edgerun.ops.registry import TensorType, compatible, op, require


@op("norm")
def layer_norm(
    x: TensorType, scale: TensorType | None = None, bias: TensorType | None = None, *, axis: int, epsilon: float
) -> tuple[TensorType, TensorType, TensorType]:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` on: (y, mean, 1 / deviation).

    Scale and bias have the shape x.shape[axis:] and the dtype of x. The statistics are f32 in the shape of x with ones
    from `axis` on.
    """
    require(x.dtype.is_float, f"layer normalisation of {x.dtype.short}")
    for what, given in (("scale", scale), ("bias", bias)):
        _check_parameter(what, given, x, axis)
        require(given is None or given.dtype is x.dtype, f"the {what} is {given}, the input {x.dtype.short}")
    statistics: Shape | None = None
    if x.shape is not None:
        require(0 <= axis <= len(x.shape), f"axis {axis} is outside {x}")
        statistics = (*x.shape[:axis], *(1 for _ in x.shape[axis:]))
    summary = TensorType(DType.F32, statistics)
    return x.like(), summary, summary


@op("norm")
def rms_norm(x: TensorType, scale: TensorType, *, axis: int, epsilon: float) -> TensorType:
    """x / sqrt(mean(x * x) + epsilon) * scale over the axes from `axis` on; scale has the shape x.shape[axis:].

    The result has the dtype of `scale`.
    """
    require(x.dtype.is_float and scale.dtype.is_float, f"RMS normalisation of {x.dtype.short} by {scale.dtype.short}")
    _check_parameter("scale", scale, x, axis)
    return x.like(dtype=scale.dtype)


@op("norm")
def group_norm(x: TensorType, scale: TensorType, bias: TensorType, *, groups: DimLike, epsilon: float) -> TensorType:
    """Normalise each of `groups` runs of channels of each example; channels last: x [N, *S, C], scale and bias [C].

    One group normalises an example as a whole, C groups are instance normalisation.
    """
    require(x.dtype.is_float, f"group normalisation of {x.dtype.short}")
    for what, given in (("scale", scale), ("bias", bias)):
        require(given.dtype is x.dtype, f"the {what} is {given}, the input {x.dtype.short}")
    if x.shape is None:
        return x.like()
    require(len(x.shape) >= 2, f"group normalisation needs batch and channels, not {x}")
    channels = x.shape[-1]
    if isinstance(channels, int) and isinstance(groups, int):
        require(groups > 0 and channels % groups == 0, f"{channels} channels in {groups} groups")
    for what, given in (("scale", scale), ("bias", bias)):
        require(
            given.shape is None or compatible(given.shape, (channels,)),
            f"the {what} is {given} for {channels} channels",
        )
    return x.like()


@op("norm")
def lrn(x: TensorType, *, size: int, alpha: float, beta: float, bias: float) -> TensorType:
    """Local response normalisation over channels, channels last: x [N, ..., C].

    x / (bias + alpha / size * s)^beta, where s sums the squares of channels c - (size-1)//2 to c + size//2.
    """
    require(x.dtype.is_float, f"local response normalisation of {x.dtype.short}")
    require(size >= 1, f"a window of {size} channels")
    return x.like()


def _check_parameter(what: str, given: TensorType | None, x: TensorType, axis: int) -> None:
    if given is None or given.shape is None or x.shape is None:
        return
    require(compatible(given.shape, x.shape[axis:]), f"the {what} {given} has another shape than axes {axis}... of {x}")
