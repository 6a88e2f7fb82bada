"""Fuse activations and residual additions into the store of a convolution or matmul."""

from __future__ import annotations

from edgerun.dtypes import DType
from edgerun.graph import Graph, Node, Tensor
from edgerun_converters.passes.activations import match
from edgerun_converters.passes.editor import Editor, per_channel

_SLOPE_INPUT = {"conv": 4, "conv_transpose": 3}
_RESIDUAL_INPUT = {"conv": 3, "matmul": 3}


def fuse_epilogues(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """One sweep; an addition and the activation after it need two."""
    editor = Editor(graph, outer)
    for node in editor:
        new = _residual(editor, node) or _activation(editor, node)
        if new is None:
            editor.keep(node)
        else:
            editor.replace(node.outputs[0], new)
    return editor.finish()


def _layer(editor: Editor, name: str) -> Node | None:
    """The float32 layer that computes `name` for one reader only."""
    source = editor.producer(name)
    if source is None or source.op not in ("conv", "matmul", "conv_transpose") or not editor.only_use(name):
        return None
    if editor.tensor(name).dtype is not DType.F32 or source.attrs.get("act", "none") != "none":
        return None
    if source.op == "matmul" and len(editor.tensor(name).shape or ()) < 1:
        return None
    return source


def _activation(editor: Editor, node: Node) -> str | None:
    if node.op != "elementwise":
        return None
    found = match(editor, node)
    if found is None:
        return None
    x, activation, slope = found
    source = _layer(editor, x)
    if source is None or source.attrs.get("res", "none") == "after":
        return None
    inputs = list(source.inputs)
    if activation.name == "prelu":
        place = _SLOPE_INPUT.get(source.op)
        shape = editor.tensor(x).shape
        data = editor.constant(slope)
        if place is None or shape is None or data is None or not isinstance(shape[-1], int):
            return None
        vector = per_channel(data, shape[-1], len(shape))
        if vector is None:
            return None
        inputs = [*inputs, *[""] * (place + 1 - len(inputs))]
        inputs[place] = editor.const(vector, f"{slope}.channel")
    editor.drop(source)
    attrs = {**source.attrs, "act": activation.name, "p0": activation.p0, "p1": activation.p1}
    editor.name = _joined(source, node)
    return editor.emit(source.op, inputs, **attrs)


def _residual(editor: Editor, node: Node) -> str | None:
    if node.op != "elementwise" or len(node.inputs) != 2 or node.inputs[0] == node.inputs[1]:
        return None
    program = node.attrs["program"]
    if len(program) != 1 or program[0][0] != "add" or program[0][1] is not DType.F32:
        return None
    a, b = (editor.tensor(i) for i in node.inputs)
    if a.shape is None or a.shape != b.shape or a.data is not None or b.data is not None:
        return None
    # The operand computed last absorbs the addition: the other one is finished by then.
    for main, other in sorted(
        zip(node.inputs, reversed(node.inputs), strict=True), key=lambda p: -_place(editor, p[0])
    ):
        source = editor.producer(main)
        place = _RESIDUAL_INPUT.get(source.op) if source is not None else None
        if source is None or place is None or not editor.only_use(main) or source.attrs.get("res", "none") != "none":
            continue
        if editor.tensor(main).dtype is not DType.F32:
            continue
        mode = "before" if source.attrs.get("act", "none") == "none" else "after"
        inputs = [*source.inputs, *[""] * (place + 1 - len(source.inputs))]
        inputs[place] = other
        editor.drop(source)
        editor.name = _joined(source, node)
        return editor.emit(source.op, inputs, **{**source.attrs, "res": mode})
    return None


def _place(editor: Editor, name: str) -> int:
    found = editor.position(name)
    return -1 if found is None else found


def _joined(source: Node, node: Node) -> str:
    """Names of fused source nodes, for messages; a long chain keeps its first and last."""
    parts = [p for p in f"{source.name}+{node.name}".split("+") if p]
    return "+".join(parts if len(parts) <= 3 else [parts[0], "...", parts[-1]])
