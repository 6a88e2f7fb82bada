"""Optional operators."""

from __future__ import annotations

import numpy as np

from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering
from edgerun_converters.onnx.types import Symbols, from_type


@lowering("Optional")
def optional(b: Builder, n: OnnxNode) -> None:
    """A present optional, or without an input an absent one of the type given as attribute."""
    if n.input(0):
        n.bind(b.one("optional", n.inputs))
        return
    known = from_type(n.attr("type"), Symbols(), "optional", f"the type of {n.name!r}")
    n.bind(b.one("optional_none", [], dtype=known.dtype, sequence=known.kind == "sequence"))


@lowering("OptionalGetElement")
def optional_get_element(b: Builder, n: OnnxNode) -> None:
    """From opset 18 on the input may be no optional at all: then it is the output."""
    plain = b.type(n.input(0)).kind in ("tensor", "sequence")
    n.bind(n.input(0) if plain else b.one("optional_get_element", n.inputs))


@lowering("OptionalHasElement")
def optional_has_element(b: Builder, n: OnnxNode) -> None:
    """From opset 18 on the input may be missing (no element) or no optional (an element)."""
    if not n.input(0):
        n.bind(b.const(np.array(False)))
    elif b.type(n.input(0)).kind in ("tensor", "sequence"):
        n.bind(b.const(np.array(True)))
    else:
        n.bind(b.one("optional_has_element", n.inputs))
