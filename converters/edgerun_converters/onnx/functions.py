"""Bodies for operators without a lowering: functions of the model, and those that ONNX itself defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from edgerun.errors import ImportFailure
from edgerun.ops.registry import TensorType
from edgerun_converters.onnx.load import clean_domain
from edgerun_converters.onnx.types import to_type

Key = tuple[str, str, str]
"""Domain, name, overload."""


def of_model(model: onnx.ModelProto) -> dict[Key, onnx.FunctionProto]:
    """The model's own functions. Raises ImportFailure when two have one name."""
    table: dict[Key, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (clean_domain(function.domain), function.name, function.overload)
        if key in table:
            raise ImportFailure(f"the function {function.domain}::{function.name} is defined twice")
        table[key] = function
    return table


def is_standard(domain: str, op_type: str, opset: int) -> bool:
    """Whether the ONNX standard may have a body for this operator."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def of_standard(
    node: onnx.NodeProto, domain: str, opset: int, inputs: Sequence[TensorType | None]
) -> onnx.FunctionProto | None:
    """The body that the ONNX standard gives an operator at this opset, or None when it is primitive or unknown.

    Some bodies depend on the attributes and on the types of the inputs. `node` must have no attribute references.
    """
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    try:
        if schema.has_function:
            version = _version(schema.function_opset_versions, opset)
            function = onnx.FunctionProto.FromString(schema.get_function_with_opset_version(version))
            given = {a.name for a in function.attribute_proto}
            for name, attribute in schema.attributes.items():
                if name not in given and attribute.default_value.type:
                    function.attribute_proto.append(attribute.default_value)
            return function
        if schema.has_context_dependent_function:
            version = _version(schema.context_dependent_function_opset_versions, opset)
            types = [onnx.TypeProto() if t is None else to_type(t) for t in inputs]
            types += [onnx.TypeProto()] * (len(node.input) - len(types))
            body = schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), [t.SerializeToString() for t in types]
            )
            return onnx.FunctionProto.FromString(body) if body else None
    except (RuntimeError, ValueError, DecodeError):  # onnx found the node malformed or could not build a body
        return None
    return None


def _version(available: Sequence[int], opset: int) -> int:
    return max((v for v in available if v <= opset), default=min(available))


def call_attributes(
    function: onnx.FunctionProto, given: Mapping[str, onnx.AttributeProto]
) -> dict[str, onnx.AttributeProto]:
    """What the attribute references in a function body mean for one call: given values over defaults."""
    return {**{a.name: a for a in function.attribute_proto}, **given}


def opsets(function: onnx.FunctionProto, outer: Mapping[str, int]) -> dict[str, int]:
    """Opset versions inside the body: the function's own, and the caller's for domains it does not name."""
    return {**outer, **{clean_domain(o.domain): int(o.version) for o in function.opset_import}}
