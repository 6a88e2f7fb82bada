"""Optionals: a tensor or sequence that may be absent. NumPy backend only.

Kinds "optional" (of a tensor) and "optional_sequence"; the shape is that of the content. A present optional is its
content, an absent one is None.
"""

from __future__ import annotations

from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, op, require
from edgerun.ops.sequence import element

_CONTENT = {"optional": "tensor", "optional_sequence": "sequence"}
WRAPPED = {"tensor": "optional", "sequence": "optional_sequence"}
"""Kind of a value -> kind of an optional of it."""


@op("optional")
def optional(x: TensorType) -> TensorType:
    """`x` as a present optional."""
    require(x.kind in WRAPPED, f"there is no optional of a {x.kind}")
    return TensorType(x.dtype, x.shape, kind=WRAPPED[x.kind])


@op("optional")
def optional_none(*, dtype: DType, sequence: bool = False) -> TensorType:
    """The absent optional, of a tensor or sequence of `dtype`."""
    return TensorType(dtype, None, kind="optional_sequence" if sequence else "optional")


@op("optional")
def optional_get_element(x: TensorType) -> TensorType:
    """The content; `x` itself when it is no optional. Raises ShapeError at run time when absent."""
    kind = _CONTENT.get(x.kind, x.kind)
    if kind == "tensor":
        return element(x)
    return TensorType(x.dtype, x.shape, kind=kind)


@op("optional")
def optional_has_element(x: TensorType) -> TensorType:
    """Whether there is a content, a scalar bool; true for what is no optional."""
    return TensorType(DType.BOOL, ())
