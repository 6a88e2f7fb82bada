"""Nodes of opsets before 7, expressed as opset 7.

From 6 to 7 explicit broadcasting (`broadcast=1, axis=k`) was dropped: it becomes a reshape of the second input. Of
older opsets, operators that opset 6 left unchanged are accepted, and others refused.
"""

from __future__ import annotations

import onnx

from edgerun.errors import ShapeError, UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode

OLDEST_OPSET = 6
_BROADCAST = {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"}


def modernize(b: Builder, n: OnnxNode) -> None:
    """Rewrite an old node in place so that the lowering for opset 7 fits. Raises UnsupportedError where none would."""
    if n.domain != "" or n.opset > OLDEST_OPSET:
        return
    if n.opset < OLDEST_OPSET and _version(n.op_type, n.opset) != _version(n.op_type, OLDEST_OPSET):
        raise UnsupportedError(
            f"{n.op_type} of opset {n.opset} is older than the oldest supported, that of opset {OLDEST_OPSET}",
            hint="export the model again, or use onnx.version_converter.convert_version(model, 13)",
        )
    if n.op_type in _BROADCAST:
        _align(b, n)
    elif n.op_type == "PRelu":
        _align_slope(b, n)
    elif n.op_type in ("BatchNormalization", "Dropout"):
        n.attributes.pop("is_test", None)  # inference either way: the plan never trains


def _version(op_type: str, opset: int) -> int:
    """The opset that introduced the operator's definition of this opset; 0 when it did not exist yet."""
    try:
        return onnx.defs.get_schema(op_type, opset, "").since_version
    except onnx.defs.SchemaError:
        return 0


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
