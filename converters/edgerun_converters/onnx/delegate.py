"""Lower one operator by way of another: a lowering may call the lowering of a standard operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, find


def delegate(
    b: Builder,
    n: OnnxNode,
    op_type: str,
    inputs: Sequence[str],
    *,
    opset: int,
    outputs: int = 1,
    **attributes: Any,
) -> list[str]:
    """Append ai.onnx operator `op_type` of version `opset` in place of `n`; returns the names of its outputs.

    Raises UnsupportedError when the operator has no lowering.
    """
    function = find("", op_type)
    if function is None:
        raise UnsupportedError(f"{n.domain}::{n.op_type} needs {op_type}, which is not implemented")
    node = OnnxNode(op_type, "", opset, list(inputs), outputs, attributes, n.name, [True] * outputs, model=n.model)
    function(b, node)
    return node.outputs


def absent_unless(n: OnnxNode, supported: Sequence[int], names: Sequence[str]) -> None:
    """Raise UnsupportedError for a present input whose index is not in `supported`; `names` says what each one is."""
    for index, name in enumerate(names):
        if index not in supported and n.input(index):
            raise UnsupportedError(f"{n.domain}::{n.op_type} with the input {name!r} is not supported")


def refuse_attributes(n: OnnxNode, **neutral: Any) -> None:
    """Raise UnsupportedError for an attribute that differs from the only value that is supported."""
    for name, value in neutral.items():
        given = n.attr(name, value)
        if given != value:
            raise UnsupportedError(f"{n.domain}::{n.op_type} with {name} = {given!r} is not supported")
