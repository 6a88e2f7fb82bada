"""AttributeProto to plain Python values, with attribute references of function bodies resolved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx

from edgerun.errors import ImportFailure, ShapeError, UnsupportedError
from edgerun_converters.onnx.tensors import ExternalData, decode, decode_sparse, text

_T = onnx.AttributeProto


def resolve(
    attributes: Iterable[onnx.AttributeProto], given: Mapping[str, onnx.AttributeProto]
) -> dict[str, onnx.AttributeProto]:
    """Attributes by name. One that refers to an attribute of the function being called takes its value from `given`,
    and is absent when that is."""
    table: dict[str, onnx.AttributeProto] = {}
    for attribute in attributes:
        if attribute.ref_attr_name:
            source = given.get(attribute.ref_attr_name)
            if source is None:
                continue
            attribute, name = _T.FromString(source.SerializeToString()), attribute.name
            attribute.name = name
        if attribute.name in table:
            raise ImportFailure(f"attribute {attribute.name!r} is given twice")
        table[attribute.name] = attribute
    return table


def value(attribute: onnx.AttributeProto, external: ExternalData, what: str) -> Any:
    """The value: int, float, str (bytes when not UTF-8), array, TypeProto, or a tuple of these.

    Sub-graphs are returned as GraphProto. Raises ImportFailure for an unknown type.
    """
    kind = attribute.type
    name = f"attribute {attribute.name!r} of {what}"
    if kind == _T.INT:
        return int(attribute.i)
    if kind == _T.FLOAT:
        return float(attribute.f)
    if kind == _T.STRING:
        return text(attribute.s)
    if kind == _T.TENSOR:
        return decode(attribute.t, external, name)
    if kind == _T.SPARSE_TENSOR:
        return decode_sparse(attribute.sparse_tensor, external, name)
    if kind == _T.GRAPH:
        return attribute.g
    if kind == _T.TYPE_PROTO:
        return attribute.tp
    if kind == _T.INTS:
        return tuple(int(v) for v in attribute.ints)
    if kind == _T.FLOATS:
        return tuple(float(v) for v in attribute.floats)
    if kind == _T.STRINGS:
        return tuple(text(v) for v in attribute.strings)
    if kind == _T.TENSORS:
        return tuple(decode(t, external, name) for t in attribute.tensors)
    if kind == _T.GRAPHS:
        return tuple(attribute.graphs)
    raise ImportFailure(f"{name} has no type")


def constant(values: Mapping[str, Any]) -> np.ndarray:
    """The array that a Constant node's attributes describe. Raises ShapeError unless there is exactly one."""
    if len(values) != 1:
        raise ShapeError("a Constant has exactly one attribute")
    ((key, value),) = values.items()
    dtypes = {
        "value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64,
        "value_string": object, "value_strings": object,
    }  # fmt: skip
    if key in dtypes:
        return np.array(value, dtype=dtypes[key])
    if key in ("value", "sparse_value"):
        return value
    raise UnsupportedError(f"a Constant has no attribute {key!r}")
