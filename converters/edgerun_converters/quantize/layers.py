"""Which layers can be quantised, and how their fused epilogues come off again."""

from __future__ import annotations

from edgerun.dtypes import DType
from edgerun.graph import Graph, Node
from edgerun_converters.passes.activations import Activation, activation_program
from edgerun_converters.passes.editor import Editor

ADD = (("add", DType.F32, 0, 1),)
_EPILOGUE = ("act", "p0", "p1", "res")


def is_layer(graph: Graph, node: Node) -> bool:
    """A convolution or matrix product of f32 by constant weights."""
    if node.op not in ("conv", "matmul") or node.attrs.get("act") == "prelu":
        return False
    x, w = graph.tensors[node.inputs[0]], graph.tensors[node.inputs[1]]
    if w.data is None or w.data.dtype.name != "float32" or x.dtype is not DType.F32 or x.data is not None:
        return False
    bias = graph.tensors[node.inputs[2]].data if len(node.inputs) > 2 and node.inputs[2] else None
    if len(node.inputs) > 2 and node.inputs[2] and bias is None:
        return False
    return node.op == "conv" or w.data.ndim == 2


def channel_axis(node: Node, rank: int) -> int:
    """The axis of the weights that counts outputs."""
    if node.op == "conv":
        return 0
    return rank - (2 if node.attrs.get("trans_b") else 1)


def unfuse(graph: Graph, *, keep_clamps: bool) -> Graph:
    """A copy in which the residual additions and activations of layers are nodes of their own again.

    `keep_clamps`: clamps without a residual stay, since integer layers saturate in the same place.
    """
    result = graph.copy()
    editor = Editor(result)
    for node in editor:
        act, res = node.attrs.get("act", "none"), node.attrs.get("res", "none")
        plain = act == "none" or (act == "clamp" and keep_clamps)
        if not is_layer(result, node) or (plain and res == "none"):
            editor.keep(node)
            continue
        attrs = {k: v for k, v in node.attrs.items() if k not in _EPILOGUE}
        y = editor.emit(node.op, node.inputs[:3], **attrs)
        activation = Activation(act, node.attrs.get("p0", 0.0), node.attrs.get("p1", 0.0))
        if res == "before":
            y = editor.emit("elementwise", [y, node.inputs[3]], program=ADD)
        if act != "none":
            y = editor.emit("elementwise", [y], program=activation_program(activation))
        if res == "after":
            y = editor.emit("elementwise", [y, node.inputs[3]], program=ADD)
        editor.replace(node.outputs[0], y)
    editor.finish()
    result.prune()
    result.check()
    return result


def source(producers: dict[str, Node], name: str) -> str:
    """The tensor whose elements `name` holds in another order, or the largest of."""
    while (node := producers.get(name)) is not None:
        moved = node.op in ("transpose", "reshape") or (node.op == "pool" and node.attrs["kind"] == "max")
        if not moved:
            return name
        name = node.inputs[0]
    return name
