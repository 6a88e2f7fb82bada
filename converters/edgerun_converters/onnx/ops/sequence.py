"""Sequence operators."""

from __future__ import annotations

from edgerun.dtypes import DType, from_onnx
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering


@lowering("SequenceConstruct")
def sequence_construct(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("sequence_construct", n.inputs))


@lowering("SequenceEmpty")
def sequence_empty(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("sequence_empty", [], dtype=from_onnx(n.attr("dtype", DType.F32.onnx))))


@lowering("SequenceAt")
def sequence_at(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("sequence_at", n.inputs))


@lowering("SequenceInsert")
def sequence_insert(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("sequence_insert", n.inputs))


@lowering("SequenceErase")
def sequence_erase(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("sequence_erase", n.inputs))


@lowering("SequenceLength")
def sequence_length(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("sequence_length", n.inputs))


@lowering("SplitToSequence")
def split_to_sequence(b: Builder, n: OnnxNode) -> None:
    """`keepdims` only matters without `split`."""
    keepdims = bool(n.attr("keepdims", 1)) or bool(n.input(1))
    axis = b.axis(n.input(0), n.attr("axis", 0))
    n.bind(b.one("split_to_sequence", n.inputs, axis=axis, keepdims=keepdims))


@lowering("ConcatFromSequence")
def concat_from_sequence(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("concat_from_sequence", n.inputs, axis=n.attr("axis"), new_axis=bool(n.attr("new_axis", 0))))
