"""Local rewrites: ops that do nothing disappear, chains of the same movement become one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgerun.dims import Dim
from edgerun.dtypes import DType
from edgerun.graph import Graph, Node, Tensor
from edgerun_converters.passes.editor import Editor

Rule = Callable[[Editor, Node], "str | None"]
"""Returns the tensor that replaces the node's output, or None when the rule does not apply."""


def simplify(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """Apply every local rule once to each node."""
    editor = Editor(graph, outer)
    for node in editor:
        rules = _RULES.get(node.op, ())
        for rule in rules:
            new = rule(editor, node)
            if new is not None:
                editor.replace(node.outputs[0], new)
                break
        else:
            editor.keep(node)
    return editor.finish()


def _same_type(editor: Editor, a: str, b: str) -> bool:
    x, y = editor.tensor(a), editor.tensor(b)
    return x.dtype is y.dtype and x.shape is not None and x.shape == y.shape


def _is_copy_of_input(editor: Editor, node: Node) -> bool:
    """A copy that gives a graph output its own name must stay."""
    return node.outputs[0] in editor.graph.outputs


def _reshape(editor: Editor, node: Node) -> str | None:
    x = node.inputs[0]
    if node.attrs.get("to") is None:
        return None
    if _same_type(editor, x, node.outputs[0]) and not _is_copy_of_input(editor, node):
        return x
    source = editor.producer(x)
    if source is not None and source.op == "reshape" and source.attrs.get("to") is not None:
        return editor.emit("reshape", [source.inputs[0]], to=node.attrs["to"])
    return None


def _transpose(editor: Editor, node: Node) -> str | None:
    x, perm = node.inputs[0], node.attrs["perm"]
    if perm == tuple(range(len(perm))) and not _is_copy_of_input(editor, node):
        return x
    source = editor.producer(x)
    if source is not None and source.op == "transpose":
        inner = source.attrs["perm"]
        joined = tuple(inner[p] for p in perm)
        if joined == tuple(range(len(joined))):
            return source.inputs[0]
        return editor.emit("transpose", [source.inputs[0]], perm=joined)
    shape = editor.tensor(x).shape
    if shape is not None and moves_only_ones(shape, perm):
        return editor.emit("reshape", [x], to=tuple(shape[p] for p in perm))
    return None


def moves_only_ones(shape: tuple[int | Dim, ...], perm: tuple[int, ...]) -> bool:
    """Whether a transpose keeps the order of all axes longer than one, so that it is a mere reshape."""
    long = [p for p in perm if shape[p] != 1]
    return long == sorted(long)


def _expand(editor: Editor, node: Node) -> str | None:
    return node.inputs[0] if _same_type(editor, node.inputs[0], node.outputs[0]) else None


def _slice(editor: Editor, node: Node) -> str | None:
    ranges = node.attrs.get("ranges")
    if ranges is None:
        return None
    if _same_type(editor, node.inputs[0], node.outputs[0]) and all(r[1] == 0 and r[3] == 1 for r in ranges):
        return node.inputs[0]
    return None


def _pad(editor: Editor, node: Node) -> str | None:
    widths = node.attrs.get("widths")
    if widths is not None and all(w == (0, 0) for w in widths):
        return node.inputs[0]
    return None


def _concat(editor: Editor, node: Node) -> str | None:
    axis = node.attrs["axis"]
    shapes = [editor.tensor(i).shape for i in node.inputs]
    full = [i for i, s in zip(node.inputs, shapes, strict=True) if s is None or s[axis] != 0]
    if len(full) == 1 and not _is_copy_of_input(editor, node):
        return full[0]
    if 1 < len(full) < len(node.inputs):
        return editor.emit("concat", full, axis=axis)
    return None


def _tile(editor: Editor, node: Node) -> str | None:
    times = node.attrs.get("times")
    return node.inputs[0] if times is not None and all(t == 1 for t in times) else None


def _reduce(editor: Editor, node: Node) -> str | None:
    """A sum, mean, max, min or product over axes of length one is a reshape."""
    over, shape = node.attrs.get("over"), editor.tensor(node.inputs[0]).shape
    out = editor.tensor(node.outputs[0]).shape
    if over is None or shape is None or out is None or node.attrs["kind"] not in ("sum", "mean", "max", "min", "prod"):
        return None
    if not all(shape[a] == 1 for a in over):
        return None
    return editor.emit("reshape", [node.inputs[0]], to=out)


def _elementwise(editor: Editor, node: Node) -> str | None:
    """Drop x+0 (integers), x*1, x/1, casts to the same type; a program that returns an input unchanged."""
    program = node.attrs["program"]
    if len(program) != 1 or _is_copy_of_input(editor, node):
        return None
    function, dtype, *operands = program[0]
    if function in ("cast", "cast_wrap"):
        return node.inputs[0] if editor.tensor(node.inputs[0]).dtype is dtype else None
    neutral = {"mul": (1, True), "div": (1, False), "add": (0, True), "sub": (0, False), "pow": (1, False)}.get(
        function
    )
    if neutral is None or operands != [0, 1]:
        return None
    value, commutes = neutral
    # x + (-0.0) is x, x + 0.0 turns -0.0 into 0.0: not a difference anybody may rely on, except through 1/x.
    if function in ("add", "sub") and dtype.is_float and dtype is not DType.F32:
        return None
    for x, other in ((0, 1), (1, 0)) if commutes else ((0, 1),):
        constant = editor.constant(node.inputs[other])
        if constant is None or not _same_type(editor, node.inputs[x], node.outputs[0]):
            continue
        if constant.size and bool(np.all(constant == value)):
            return node.inputs[x]
    return None


_RULES: dict[str, tuple[Rule, ...]] = {
    "reshape": (_reshape,),
    "transpose": (_transpose,),
    "expand": (_expand,),
    "slice": (_slice,),
    "pad": (_pad,),
    "concat": (_concat,),
    "tile": (_tile,),
    "reduce": (_reduce,),
    "elementwise": (_elementwise,),
}
