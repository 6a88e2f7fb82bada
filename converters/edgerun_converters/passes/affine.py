"""Fold per-channel scales and offsets (inference batch norm among them) into the weights of conv and matmul.

conv(x, w, b) * s + t  =  conv(x, s w, s b + t)         s and t vary along the last axis only
conv(x * s, w, b)      =  conv(x, w s)                   s varies along the input channels
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from edgerun.dtypes import DType
from edgerun.graph import Graph, Node, Tensor
from edgerun_converters.passes.editor import Editor, per_channel


def fold_affine(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """One sweep of both rules over convolutions and matmuls with constant float weights."""
    return _sweep(graph, outer, (_after, _before))


def fold_outputs(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """One sweep of the first rule: what follows a layer. The second would take the one half out of a gelu."""
    return _sweep(graph, outer, (_after,))


def _sweep(graph: Graph, outer: dict[str, Tensor], rules: tuple[Callable[[Editor, Node], str | None], ...]) -> bool:
    editor = Editor(graph, outer)
    for node in editor:
        new = next((found for rule in rules if (found := rule(editor, node)) is not None), None)
        if new is None:
            editor.keep(node)
        else:
            editor.replace(node.outputs[0], new)
    return editor.finish()


def _plain(node: Node) -> bool:
    """No epilogue fused yet: the output is the affine function itself."""
    return node.attrs.get("act", "none") == "none" and node.attrs.get("res", "none") == "none"


def _layer(editor: Editor, name: str) -> tuple[Node, np.ndarray, np.ndarray | None] | None:
    """(node, weight, bias) of the conv or matmul that computes `name`, when its parameters are float constants."""
    node = editor.producer(name)
    if node is None or node.op not in ("conv", "matmul", "conv_transpose") or not _plain(node):
        return None
    weight = editor.constant(node.inputs[1])
    has_bias = len(node.inputs) > 2 and bool(node.inputs[2])
    bias = editor.constant(node.inputs[2]) if has_bias else None
    if weight is None or weight.dtype.kind != "f" or (has_bias and bias is None):
        return None
    if node.op == "matmul" and (weight.ndim != 2 or node.attrs.get("trans_b")):
        return None
    return node, weight, bias


def _output_channels(node: Node, weight: np.ndarray) -> int:
    if node.op == "conv":
        return weight.shape[0]
    return weight.shape[-1] * (node.attrs.get("group", 1) if node.op == "conv_transpose" else 1)


def _scale_output(node: Node, weight: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Each output channel times its scale. `weight`: conv [O, ...]; matmul [K, N]; conv_transpose [C, ..., O/group]."""
    if node.op == "conv":
        return weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    if node.op == "matmul":
        return weight * scale
    groups = node.attrs.get("group", 1)
    per_group = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    return (per_group * scale.reshape(groups, *[1] * (weight.ndim - 1), -1)).reshape(weight.shape)


def _binary(node: Node) -> tuple[str, int, int] | None:
    """(function, operand, operand) of a one-instruction float program with two inputs."""
    if node.op != "elementwise" or len(node.attrs["program"]) != 1 or len(node.inputs) != 2:
        return None
    function, dtype, *operands = node.attrs["program"][0]
    if function not in ("add", "sub", "mul", "div") or dtype not in (DType.F32, DType.F64, DType.F16):
        return None
    return function, operands[0], operands[1]


def _after(editor: Editor, node: Node) -> str | None:
    found = _binary(node)
    if found is None:
        return None
    function, left, right = found
    for x, other, flipped in ((left, right, False), (right, left, True)):
        constant = editor.constant(node.inputs[other])
        name = node.inputs[x]
        if constant is None or not editor.only_use(name) or (function == "div" and flipped):
            continue
        layer = _layer(editor, name)
        if layer is None:
            continue
        source, weight, bias = layer
        shape = editor.tensor(name).shape
        if shape is None or editor.tensor(node.outputs[0]).shape != shape:
            continue
        vector = per_channel(constant, _output_channels(source, weight), len(shape))
        if vector is None:
            continue
        scale, offset = _as_affine(function, vector.astype(np.float64), flipped)
        new_weight = weight if np.all(scale == 1) else _scale_output(source, weight.astype(np.float64), scale)
        new_bias = (0.0 if bias is None else bias.astype(np.float64)) * scale + offset
        if not (np.isfinite(new_weight).all() and np.isfinite(new_bias).all()):
            continue
        return _rebuild(editor, source, new_weight.astype(weight.dtype), new_bias.astype(weight.dtype))
    return None


def _as_affine(function: str, c: np.ndarray, flipped: bool) -> tuple[np.ndarray, np.ndarray]:
    """(scale, offset) of x -> x <function> c, or c <function> x when flipped."""
    one, zero = np.ones_like(c), np.zeros_like(c)
    if function == "add":
        return one, c
    if function == "sub":
        return (-one, c) if flipped else (one, -c)
    return (c, zero) if function == "mul" else (1 / c, zero)


def _rebuild(editor: Editor, source: Node, weight: np.ndarray, bias: np.ndarray) -> str:
    editor.drop(source)
    w = editor.const(weight, source.inputs[1])
    b = editor.const(np.atleast_1d(bias), f"{source.inputs[1]}.bias")
    editor.name = source.name
    return editor.emit(source.op, [source.inputs[0], w, b], **source.attrs)


def _before(editor: Editor, node: Node) -> str | None:
    """conv(x * s): scale the weights of each input channel. Multiplication only: padding would break offsets."""
    if node.op not in ("conv", "matmul") or not _plain(node) or (node.op == "conv" and node.attrs.get("group", 1) != 1):
        return None
    weight = editor.constant(node.inputs[1])
    source = editor.producer(node.inputs[0])
    if weight is None or weight.dtype.kind != "f" or source is None or not editor.only_use(node.inputs[0]):
        return None
    if node.op == "matmul" and (weight.ndim != 2 or node.attrs.get("trans_b")):
        return None
    found = _binary(source)
    if found is None or found[0] not in ("mul", "div"):
        return None
    function, left, right = found
    channels = weight.shape[-1] if node.op == "conv" else weight.shape[0]
    for x, other in ((left, right), (right, left)):
        constant = editor.constant(source.inputs[other])
        shape = editor.tensor(source.inputs[x]).shape
        if constant is None or shape is None or shape != editor.tensor(source.outputs[0]).shape:
            continue
        if function == "div" and other != 1:
            continue
        vector = per_channel(constant, channels, len(shape))
        if vector is None:
            continue
        scale = vector.astype(np.float64)
        scale = 1 / scale if function == "div" else scale
        scaled = weight * (scale if node.op == "conv" else scale[:, None])
        if not np.isfinite(scaled).all():
            continue
        editor.drop(source)
        w = editor.const(scaled.astype(weight.dtype), node.inputs[1])
        editor.name = node.name
        return editor.emit(node.op, [source.inputs[x], w, *node.inputs[2:]], **node.attrs)
    return None
