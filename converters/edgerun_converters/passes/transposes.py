"""Sink transposes towards the outputs until they meet their inverse.

The importer surrounds each channels-last op with transposes. Here every op that can work on permuted data is rewritten
from op(T(x)) to T(op(x)); `simplify` then joins neighbouring transposes, and inverse ones vanish. What remains is where
the model itself fixes an order: its inputs, its outputs, and reshapes that mix axes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgerun.graph import Graph, Node, Tensor
from edgerun_converters.passes.editor import Editor
from edgerun_converters.passes.simplify import moves_only_ones

Perm = tuple[int, ...]


def sink_transposes(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """One sweep: each node whose inputs come transposed is moved above the transpose where that is possible."""
    editor = Editor(graph, outer)
    for node in editor:
        handler = _HANDLERS.get(node.op)
        new = handler(editor, node) if handler is not None else None
        if new is None:
            editor.keep(node)
        else:
            editor.replace(node.outputs[0], new)
    return editor.finish()


def inverse(perm: Perm) -> Perm:
    """The permutation that undoes `perm`."""
    result = [0] * len(perm)
    for i, p in enumerate(perm):
        result[p] = i
    return tuple(result)


def _transposed(editor: Editor, name: str) -> tuple[str, Perm] | None:
    """(x, perm) when `name` is transpose(x, perm)."""
    source = editor.producer(name)
    if source is None or source.op != "transpose":
        return None
    return source.inputs[0], source.attrs["perm"]


def _undo(editor: Editor, name: str, perm: Perm) -> str | None:
    """A tensor t, found at no cost, with transpose(t, perm) equal to `name` broadcast to the rank of perm.

    Constants are permuted now; a tensor whose long axes keep their order is only reshaped.
    """
    back = inverse(perm)
    found = _transposed(editor, name)
    if found is not None and found[1] == perm:
        return found[0]
    tensor = editor.tensor(name)
    if tensor.shape is None or len(tensor.shape) > len(perm):
        return None
    padded = (1,) * (len(perm) - len(tensor.shape)) + tensor.shape
    if tensor.data is not None:
        if tensor.data.size == 1:
            return name
        return editor.const(tensor.data.reshape(padded).transpose(back), f"{name}.permuted")
    if all(d == 1 for d in tensor.shape):
        return name
    if moves_only_ones(padded, back):
        return editor.emit("reshape", [name], to=tuple(padded[p] for p in back))
    return None


def _elementwise(editor: Editor, node: Node) -> str | None:
    perm = _common_perm(editor, node, node.inputs)
    if perm is None:
        return None
    inputs = _undo_all(editor, node.inputs, perm)
    if inputs is None:
        return None
    return editor.emit("transpose", [editor.emit("elementwise", inputs, **node.attrs)], perm=perm)


def _common_perm(editor: Editor, node: Node, names: list[str]) -> Perm | None:
    """The permutation of the first transposed input of full rank."""
    shape = editor.tensor(node.outputs[0]).shape
    for name in names:
        found = _transposed(editor, name)
        if found is not None and shape is not None and len(found[1]) == len(shape):
            return found[1]
    return None


def _undo_all(editor: Editor, names: list[str], perm: Perm) -> list[str] | None:
    # Ask first, edit after: a failed attempt must leave no nodes behind.
    for name in names:
        found = _transposed(editor, name)
        tensor = editor.tensor(name)
        if found is not None and found[1] == perm:
            continue
        if tensor.shape is None or len(tensor.shape) > len(perm):
            return None
        padded = (1,) * (len(perm) - len(tensor.shape)) + tensor.shape
        if tensor.data is None and not moves_only_ones(padded, inverse(perm)):
            return None
    result = [_undo(editor, name, perm) for name in names]
    return None if any(r is None for r in result) else [r for r in result if r is not None]


def _single(remap: Callable[[dict[str, Any], Perm], dict[str, Any] | None]) -> Callable[[Editor, Node], str | None]:
    """A handler for an op with one data input: `remap` rewrites its attributes for the untransposed input."""

    def handle(editor: Editor, node: Node) -> str | None:
        found = _transposed(editor, node.inputs[0])
        if found is None or len(node.outputs) > 1 or any(node.inputs[1:]):
            return None
        x, perm = found
        attrs = remap(node.attrs, perm)
        if attrs is None:
            return None
        return editor.emit("transpose", [editor.emit(node.op, [x], **attrs)], perm=perm)

    return handle


def _slice_attrs(attrs: dict[str, Any], perm: Perm) -> dict[str, Any] | None:
    if attrs.get("ranges") is None:
        return None
    ranges = tuple(sorted(((perm[r[0]], *r[1:]) for r in attrs["ranges"]), key=lambda r: r[0]))
    return {**attrs, "ranges": ranges}


def _pad_attrs(attrs: dict[str, Any], perm: Perm) -> dict[str, Any] | None:
    if attrs.get("widths") is None:
        return None
    return {**attrs, "widths": tuple(attrs["widths"][i] for i in inverse(perm))}


def _axis_attrs(attrs: dict[str, Any], perm: Perm) -> dict[str, Any]:
    return {**attrs, "axis": perm[attrs["axis"]]}


def _over_attrs(attrs: dict[str, Any], perm: Perm) -> dict[str, Any] | None:
    over = attrs.get("over")
    return None if over is None else {**attrs, "over": tuple(sorted(perm[a] for a in over))}


def _axes_attrs(attrs: dict[str, Any], perm: Perm) -> dict[str, Any] | None:
    """resize: axes and the per-axis lists beside them keep their pairing."""
    if attrs.get("axes") is None:
        return None
    order = sorted(range(len(attrs["axes"])), key=lambda i: perm[attrs["axes"][i]])
    result = {**attrs, "axes": tuple(perm[attrs["axes"][i]] for i in order)}
    for key in ("factors", "to"):
        if attrs.get(key) is not None:
            result[key] = tuple(attrs[key][i] for i in order)
    return result


def _reduce(editor: Editor, node: Node) -> str | None:
    found = _transposed(editor, node.inputs[0])
    over = node.attrs.get("over")
    if found is None or over is None or any(node.inputs[1:]):
        return None
    x, perm = found
    attrs = {**node.attrs, "over": tuple(sorted(perm[a] for a in over))}
    reduced = editor.emit(node.op, [x], **attrs)
    return _restore_order(editor, reduced, perm, set(over), bool(node.attrs.get("keepdims", True)))


def _argreduce(editor: Editor, node: Node) -> str | None:
    found = _transposed(editor, node.inputs[0])
    if found is None:
        return None
    x, perm = found
    axis = node.attrs["axis"]
    reduced = editor.emit(node.op, [x], **{**node.attrs, "axis": perm[axis]})
    return _restore_order(editor, reduced, perm, {axis}, bool(node.attrs["keepdims"]))


def _restore_order(editor: Editor, name: str, perm: Perm, removed: set[int], keepdims: bool) -> str:
    """The transpose that brings a reduced tensor back into the order that `perm` had given its source."""
    if keepdims:
        return editor.emit("transpose", [name], perm=perm)
    left = [p for i, p in enumerate(perm) if i not in removed]
    order = sorted(left)
    rest = tuple(order.index(p) for p in left)
    return name if rest == tuple(range(len(rest))) else editor.emit("transpose", [name], perm=rest)


def _concat(editor: Editor, node: Node) -> str | None:
    perm = _common_perm(editor, node, node.inputs)
    if perm is None:
        return None
    rank = len(perm)
    if any(len(editor.tensor(i).shape or ()) != rank for i in node.inputs):
        return None
    for name in node.inputs:
        found = _transposed(editor, name)
        if (found is None or found[1] != perm) and editor.constant(name) is None:
            return None
    inputs: list[str] = []
    for name in node.inputs:
        data = editor.constant(name)
        if data is not None:
            inputs.append(editor.const(data.transpose(inverse(perm)), f"{name}.permuted"))
        else:
            found = _transposed(editor, name)
            assert found is not None
            inputs.append(found[0])
    return editor.emit("transpose", [editor.emit("concat", inputs, axis=perm[node.attrs["axis"]])], perm=perm)


def _quantize(editor: Editor, node: Node) -> str | None:
    """Scale and zero point are rank 0, or rank 1 along `axis`; blocked ones stay where they are."""
    found = _transposed(editor, node.inputs[0])
    if found is None or node.attrs.get("block"):
        return None
    x, perm = found
    axis = node.attrs.get("axis")
    attrs = {**node.attrs, "axis": perm[axis]} if axis is not None else dict(node.attrs)
    return editor.emit("transpose", [editor.emit(node.op, [x, *node.inputs[1:]], **attrs)], perm=perm)


_HANDLERS: dict[str, Callable[[Editor, Node], str | None]] = {
    "elementwise": _elementwise,
    "slice": _single(_slice_attrs),
    "pad": _single(_pad_attrs),
    "softmax": _single(_axis_attrs),
    "hardmax": _single(_axis_attrs),
    "cumsum": _single(_over_attrs),
    "resize": _single(_axes_attrs),
    "reduce": _reduce,
    "argreduce": _argreduce,
    "concat": _concat,
    "quantize_linear": _quantize,
    "dequantize_linear": _quantize,
}
