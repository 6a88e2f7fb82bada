"""Softmax and its relatives."""

from __future__ import annotations

from edgerun.ops.registry import TensorType, normalize_axis, op, require


@op("softmax")
def softmax(x: TensorType, *, axis: int, log: bool = False) -> TensorType:
    """exp(x - max) / sum along `axis`, or its logarithm. Half types are computed in f32."""
    require(x.dtype.is_float, f"the softmax of {x.dtype.short}")
    if x.shape is not None:
        normalize_axis(axis, len(x.shape))
    return x.like()


@op("softmax")
def hardmax(x: TensorType, *, axis: int) -> TensorType:
    """1 at the first largest element along `axis`, else 0."""
    require(x.dtype.is_float, f"the hardmax of {x.dtype.short}")
    if x.shape is not None:
        normalize_axis(axis, len(x.shape))
    return x.like()
