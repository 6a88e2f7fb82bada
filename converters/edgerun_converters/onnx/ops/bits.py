"""BitCast."""

from __future__ import annotations

from edgerun.dtypes import from_onnx
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering


@lowering("BitCast")
def bit_cast(b: Builder, n: OnnxNode) -> None:
    """To a type of the same width."""
    n.bind(b.one("bit_cast", [n.input(0)], dtype=from_onnx(n.attr("to"))))
