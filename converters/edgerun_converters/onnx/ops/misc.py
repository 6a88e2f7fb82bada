"""Operators that leave nothing behind: the importer only notes which value is which.

(`Constant` is handled by the importer itself, like an initialiser.)
"""

from __future__ import annotations

from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering


@lowering("Identity")
def identity(b: Builder, n: OnnxNode) -> None:
    """The input under another name: tensors, sequences and optionals."""
    n.bind(n.input(0))
