"""Opset 6 expressed as opset 7: explicit broadcasting (`broadcast=1, axis=k`) becomes a reshape of the second input."""

from __future__ import annotations

from edgerun.errors import ShapeError
from edgerun_converters.onnx.builder import Builder, OnnxNode

_BROADCAST = {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"}


def modernize(b: Builder, n: OnnxNode) -> None:
    """Rewrite a node of opset 6 in place so that the lowering for opset 7 fits."""
    if n.domain != "" or n.opset > 6:
        return
    if n.op_type in _BROADCAST:
        _align(b, n)
    elif n.op_type == "PRelu":
        _align_slope(b, n)
    elif n.op_type in ("BatchNormalization", "Dropout"):
        n.attributes.pop("is_test", None)  # inference either way: the plan never trains


def _align(b: Builder, n: OnnxNode) -> None:
    """Give the second input trailing ones, so that its axes start at `axis` of the first (default: they end last)."""
    explicit = n.attributes.pop("broadcast", 0)
    axis = n.attributes.pop("axis", None)
    if not explicit or axis is None:
        return
    rank = b.rank(n.inputs[0])
    shape = b.shape(n.inputs[1])
    axis = b.axis(n.inputs[0], axis)
    if axis + len(shape) > rank:
        raise ShapeError(f"an operand of rank {len(shape)} does not fit at axis {axis} of rank {rank}")
    n.inputs[1] = b.reshape(n.inputs[1], (*shape, *[1] * (rank - axis - len(shape))))


def _align_slope(b: Builder, n: OnnxNode) -> None:
    """A slope with one value a channel applies to axis 1."""
    shape = b.shape(n.inputs[1])
    rank = b.rank(n.inputs[0])
    if len(shape) == 1 and shape[0] != 1 and rank > 2:
        n.inputs[1] = b.reshape(n.inputs[1], (*shape, *[1] * (rank - 2)))
