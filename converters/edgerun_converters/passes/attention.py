"""Recognise scaled dot-product attention: softmax(scale * q k^T + mask) v on [batch, heads, sequence, head size]."""

from __future__ import annotations

from edgerun.dtypes import DType
from edgerun.graph import Graph, Node, Tensor
from edgerun_converters.passes.editor import Editor

SWAP = (0, 1, 3, 2)


def recognise_attention(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """Replace each pattern at its last matmul. The scores must have no other reader."""
    editor = Editor(graph, outer)
    for node in editor:
        new = _attention(editor, node)
        if new is None:
            editor.keep(node)
        else:
            editor.replace(node.outputs[0], new)
    return editor.finish()


def _plain_matmul(editor: Editor, node: Node | None) -> bool:
    """A float32 product of two computed rank-4 tensors, without bias, residual or activation."""
    if node is None or node.op != "matmul" or any(node.inputs[2:]) or node.attrs.get("act", "none") != "none":
        return False
    return all(
        editor.tensor(i).dtype is DType.F32 and len(editor.tensor(i).shape or ()) == 4 and editor.constant(i) is None
        for i in node.inputs[:2]
    )


def _scaled(editor: Editor, name: str) -> tuple[str, float]:
    """(x, factor) with `name` = x * factor; factor 1 when `name` is anything else."""
    node = editor.producer(name)
    if node is None or node.op != "elementwise" or len(node.attrs["program"]) != 1 or len(node.inputs) != 2:
        return name, 1.0
    function, dtype, *operands = node.attrs["program"][0]
    if dtype is not DType.F32 or function not in ("mul", "div"):
        return name, 1.0
    first, second = (node.inputs[k] for k in operands)
    for x, other in ((first, second), (second, first)) if function == "mul" else ((first, second),):
        data = editor.constant(other)
        if data is not None and data.size == 1 and editor.tensor(x).shape == editor.tensor(name).shape:
            factor = float(data.reshape(()))
            if factor != 0.0:
                return x, factor if function == "mul" else 1.0 / factor
    return name, 1.0


def _masked(editor: Editor, name: str) -> tuple[str, str]:
    """(scores, mask) with `name` = scores + mask; mask "" when there is none."""
    node = editor.producer(name)
    if node is None or node.op != "elementwise" or len(node.attrs["program"]) != 1 or len(node.inputs) != 2:
        return name, ""
    function, dtype, *operands = node.attrs["program"][0]
    if function != "add" or dtype is not DType.F32:
        return name, ""
    shape = editor.tensor(name).shape
    first, second = (node.inputs[k] for k in operands)
    for scores, mask in ((first, second), (second, first)):
        mask_shape = editor.tensor(mask).shape
        # A mask whose last axis is broadcast means something else to the attention op.
        if editor.tensor(scores).shape == shape and shape and mask_shape and mask_shape[-1] == shape[-1]:
            found = editor.producer(_scaled(editor, scores)[0])
            if _plain_matmul(editor, found):
                return scores, mask
    return name, ""


def _attention(editor: Editor, node: Node) -> str | None:
    if not _plain_matmul(editor, node) or node.attrs.get("trans_b"):
        return None
    weights, v = node.inputs[:2]
    softmax = editor.producer(weights)
    if softmax is None or softmax.op != "softmax" or softmax.attrs.get("log") or not editor.only_use(weights):
        return None
    if softmax.attrs["axis"] not in (3, -1):
        return None
    logits = softmax.inputs[0]
    biased, mask = _masked(editor, logits)
    scores, scale = _scaled(editor, biased)
    product = editor.producer(scores)
    if product is None or not _plain_matmul(editor, product):
        return None
    if not all(editor.only_use(n) for n in {logits, biased, scores}):
        return None
    q, q_scale = _scaled(editor, product.inputs[0])
    right, k_scale = _scaled(editor, product.inputs[1])
    k = _keys(editor, right, bool(product.attrs.get("trans_b")))
    shapes = [editor.tensor(n).shape for n in (q, v)]
    if shapes[0] is None or shapes[1] is None or shapes[0][:2] != shapes[1][:2]:
        return None
    return editor.emit("attention", [q, k, v, mask] if mask else [q, k, v], outputs=1, scale=scale * q_scale * k_scale)


def _keys(editor: Editor, name: str, transposed: bool) -> str:
    """Keys [B, H, T, D] from the right operand of the product."""
    if transposed:
        return name
    source = editor.producer(name)
    if source is not None and source.op == "transpose" and source.attrs["perm"] == SWAP:
        return source.inputs[0]
    return editor.emit("transpose", [name], perm=SWAP)
