"""Recognise layer and RMS normalisation written out in elementary operations.

d = x - mean(x);  y = d / sqrt(mean(d*d) + eps) [* scale] [+ bias]        layer norm over the last axes
y = x / sqrt(mean(x*x) + eps) [* scale]                                     RMS norm over the last axes
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgerun.dtypes import DType
from edgerun.graph import Graph, Node, Tensor
from edgerun_converters.passes.editor import Editor


def recognise_norms(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """Replace each pattern at its division, then let scales and offsets that follow join the norm."""
    editor = Editor(graph, outer)
    for node in editor:
        new = _normalisation(editor, node) or _scale_or_bias(editor, node)
        if new is None:
            editor.keep(node)
        else:
            editor.replace(node.outputs[0], new)
    return editor.finish()


@dataclass(frozen=True, slots=True)
class _Moment:
    """mean(value * value) + epsilon over the axes from `axis` on, under a square root."""

    value: str
    axis: int
    epsilon: float


def _single(editor: Editor, name: str, functions: tuple[str, ...]) -> tuple[str, list[str]] | None:
    """(function, operand tensors) when `name` is one of these scalar functions of tensors, alone in its node."""
    node = editor.producer(name)
    if node is None or node.op != "elementwise" or len(node.attrs["program"]) != 1:
        return None
    function, dtype, *operands = node.attrs["program"][0]
    if function not in functions or dtype is not DType.F32:
        return None
    return function, [node.inputs[k] for k in operands]


def _scalar(editor: Editor, name: str) -> float | None:
    data = editor.constant(name)
    return float(data.reshape(())) if data is not None and data.size == 1 else None


def _mean(editor: Editor, name: str) -> tuple[str, int] | None:
    """(x, first axis) when `name` is the mean of x over all axes from that one on, kept as ones."""
    node = editor.producer(name)
    if node is None or node.op != "reduce" or node.attrs["kind"] != "mean" or not node.attrs.get("keepdims", True):
        return None
    over, shape = node.attrs.get("over"), editor.tensor(node.inputs[0]).shape
    if not over or shape is None or tuple(over) != tuple(range(over[0], len(shape))):
        return None
    return node.inputs[0], over[0]


def _root_mean_square(editor: Editor, name: str) -> _Moment | None:
    """The moment whose square root `name` is."""
    root = _single(editor, name, ("sqrt", "pow"))
    if root is None:
        return None
    if root[0] == "pow" and _scalar(editor, root[1][1]) != 0.5:
        return None
    shifted = _single(editor, root[1][0], ("add",))
    if shifted is None:
        return None
    for mean_name, epsilon_name in (shifted[1], shifted[1][::-1]):
        epsilon = _scalar(editor, epsilon_name)
        mean = _mean(editor, mean_name)
        if epsilon is None or mean is None:
            continue
        square = _single(editor, mean[0], ("mul", "pow"))
        if square is None:
            continue
        function, (a, b) = square
        if (function == "mul" and a == b) or (function == "pow" and _scalar(editor, b) == 2.0):
            return _Moment(a, mean[1], epsilon)
    return None


def _normalisation(editor: Editor, node: Node) -> str | None:
    if node.op != "elementwise" or len(node.attrs["program"]) != 1 or len(node.inputs) != 2:
        return None
    function, dtype, *operands = node.attrs["program"][0]
    if dtype is not DType.F32 or function not in ("div", "mul"):
        return None
    a, b = (node.inputs[k] for k in operands)
    for value, denominator in ((a, b),) if function == "div" else ((a, b), (b, a)):
        if function == "mul":
            inverse = _single(editor, denominator, ("reciprocal", "div"))
            if inverse is None or (inverse[0] == "div" and _scalar(editor, inverse[1][0]) != 1.0):
                continue
            denominator = inverse[1][-1]
        moment = _root_mean_square(editor, denominator)
        if moment is None or moment.value != value:
            continue
        centred = _single(editor, value, ("sub",))
        if centred is not None:
            x, mean_name = centred[1]
            mean = _mean(editor, mean_name)
            if mean == (x, moment.axis):
                return editor.emit("layer_norm", [x], outputs=1, axis=moment.axis, epsilon=moment.epsilon)
        shape = editor.tensor(value).shape
        if shape is None or not all(isinstance(d, int) for d in shape[moment.axis :]):
            return None
        ones = editor.const(np.ones([int(d) for d in shape[moment.axis :]], np.float32), "ones")
        return editor.emit("rms_norm", [value, ones], axis=moment.axis, epsilon=moment.epsilon)
    return None


def _scale_or_bias(editor: Editor, node: Node) -> str | None:
    """norm(x) * scale and norm(x) + bias with constants of the normalised shape."""
    if node.op != "elementwise" or len(node.attrs["program"]) != 1 or len(node.inputs) != 2:
        return None
    function, dtype, *operands = node.attrs["program"][0]
    if dtype is not DType.F32 or function not in ("mul", "add"):
        return None
    first, second = (node.inputs[k] for k in operands)
    for name, constant in ((first, second), (second, first)):
        data = editor.constant(constant)
        norm = editor.producer(name)
        if data is None or norm is None or norm.op not in ("layer_norm", "rms_norm") or not editor.only_use(name):
            continue
        if len(norm.outputs) != 1 or editor.tensor(node.outputs[0]).shape != editor.tensor(name).shape:
            continue
        parameter = _parameter(editor, name, norm.attrs["axis"], data)
        if parameter is None:
            continue
        attrs = dict(norm.attrs)
        scale, bias = (*norm.inputs[1:], "", "")[:2]
        if function == "mul" and not bias and (not scale or _all_ones(editor, scale)):
            inputs = [norm.inputs[0], editor.const(parameter, f"{constant}.scale")]
        elif function == "add" and norm.op == "layer_norm" and not bias:
            inputs = [norm.inputs[0], scale, editor.const(parameter, f"{constant}.bias")]
        else:
            continue
        editor.drop(norm)
        return editor.emit(norm.op, inputs, outputs=1, **attrs)
    return None


def _parameter(editor: Editor, name: str, axis: int, data: np.ndarray) -> np.ndarray | None:
    """`data` broadcast to the normalised shape, when it does not vary over the other axes."""
    shape = editor.tensor(name).shape
    if shape is None or not all(isinstance(d, int) for d in shape[axis:]) or data.ndim > len(shape):
        return None
    target = tuple(int(d) for d in shape[axis:])
    outer = data.shape[: max(0, data.ndim - len(target))]
    if any(d != 1 for d in outer):
        return None
    inner = data.reshape(data.shape[len(outer) :])
    return np.ascontiguousarray(np.broadcast_to(inner, target)).astype(np.float32)


def _all_ones(editor: Editor, name: str) -> bool:
    data = editor.constant(name)
    return data is not None and bool((data == 1).all())
