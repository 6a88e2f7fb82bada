"""The graph with some of its layers quantised, in each mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from edgerun.dtypes import DType
from edgerun.graph import Graph, Node
from edgerun_converters.passes.constants import fold_constants, merge_duplicates
from edgerun_converters.passes.editor import Editor
from edgerun_converters.passes.elementwise import fuse_elementwise
from edgerun_converters.passes.epilogue import fuse_epilogues
from edgerun_converters.passes.quantized import elementwise_scales, integer_layers, settle_dequantize
from edgerun_converters.passes.simplify import simplify
from edgerun_converters.quantize.layers import ADD, channel_axis, source
from edgerun_converters.quantize.weights import GROUP, codes_of_range, in_groups, per_channel

Ranges = Mapping[str, tuple[float, float]]


def activations_of(graph: Graph, chosen: set[str]) -> set[str]:
    """Tensors that the layers of outputs `chosen` read or make, by the names that hold their ranges."""
    producers = graph.producers()
    names = {t for n in graph.nodes if n.outputs[0] in chosen for t in (n.inputs[0], n.outputs[0])}
    return {source(producers, name) for name in names}


def static(graph: Graph, chosen: set[str], ranges: Ranges) -> Graph:
    """Layers whose outputs are in `chosen` on 8-bit codes with the given ranges. `graph` is unfused."""
    result = graph.copy()
    producers = graph.producers()
    made = activations_of(graph, chosen)
    holders = {n.outputs[0]: source(producers, n.inputs[0]) for n in graph.nodes if n.outputs[0] in chosen}
    editor = Editor(result)

    def coded(name: str, holder: str) -> str:
        scale, zero = (editor.const(p) for p in codes_of_range(*ranges[holder]))
        codes = editor.emit("quantize_linear", [name, scale, zero], dtype=DType.U8)
        return editor.emit("dequantize_linear", [codes, scale, zero])

    for node in editor:
        out = node.outputs[0]
        if out in chosen:
            x = coded(node.inputs[0], holders[out])
            x_scale = float(codes_of_range(*ranges[holders[out]])[0])
            y = editor.emit(node.op, [x, _weights(editor, node, x_scale), *node.inputs[2:3]], **node.attrs)
        elif out in made and len(node.outputs) == 1:
            y = editor.emit(node.op, node.inputs, **node.attrs)
        else:
            editor.keep(node)
            continue
        editor.replace(out, coded(y, out) if out in made else y)
    editor.finish()
    result.prune()
    return _finished(result)


def _weights(editor: Editor, node: Node, x_scale: float) -> str:
    """The dequantised weights; channels of tiny weights get a scale in which their bias fits 30 bits."""
    data = editor.constant(node.inputs[1])
    assert data is not None
    axis = channel_axis(node, data.ndim)
    bias = editor.constant(node.inputs[2]) if any(node.inputs[2:3]) else None
    least = 0.0 if bias is None else np.abs(bias) / np.float32(x_scale * 2**29)
    codes, scale = per_channel(data, axis, least)
    zero = editor.const(np.zeros(scale.shape, np.int8))
    return editor.emit("dequantize_linear", [editor.const(codes, node.inputs[1]), editor.const(scale), zero], axis=axis)


def dynamic(graph: Graph, chosen: set[str]) -> Graph:
    """Products whose outputs are in `chosen` on 8-bit codes over the range that each input has while running."""

    def product(editor: Editor, node: Node) -> str:
        data = _matrix(editor, node)
        codes, scale = per_channel(data, 0)
        x, x_scale, x_zero = _three(editor, node.inputs[0])
        y = editor.emit("matmul_integer", [x, editor.const(np.ascontiguousarray(codes.T), node.inputs[1]), x_zero])
        factor = editor.emit("elementwise", [editor.const(scale), x_scale], program=(("mul", DType.F32, 0, 1),))
        program = (("cast", DType.F32, 0), ("mul", DType.F32, 1, 2))
        y = editor.emit("elementwise", [y, factor], program=program)
        return _biased(editor, node, y)

    return _products(graph, chosen, product)


def _three(editor: Editor, x: str) -> tuple[str, str, str]:
    y = editor.emit("dynamic_quantize_linear", [x])
    node = editor.producer(y)
    assert node is not None
    return node.outputs[0], node.outputs[1], node.outputs[2]


def grouped(graph: Graph, chosen: set[str], bits: int) -> Graph:
    """Products whose outputs are in `chosen` by weights of `bits` bits with a scale for each GROUP of them."""

    def product(editor: Editor, node: Node) -> str:
        data = _matrix(editor, node)
        codes, scales = in_groups(data, bits)
        n, k = data.shape
        names = [editor.const(codes, node.inputs[1]), editor.const(scales)]
        bias = ["", "", *node.inputs[2:3]] if any(node.inputs[2:3]) else []
        return editor.emit("matmul_nbits", [node.inputs[0], *names, *bias], k=k, n=n, bits=bits, block=GROUP)

    return _products(graph, chosen, product)


def _matrix(editor: Editor, node: Node) -> np.ndarray:
    """The weights as [N, K]."""
    data = editor.constant(node.inputs[1])
    assert data is not None
    return np.ascontiguousarray(data if node.attrs.get("trans_b") else data.T)


def _biased(editor: Editor, node: Node, y: str) -> str:
    if len(node.inputs) < 3 or not node.inputs[2]:
        return y
    return editor.emit("elementwise", [y, node.inputs[2]], program=ADD)


def _products(graph: Graph, chosen: set[str], replace: Callable[[Editor, Node], str]) -> Graph:
    result = graph.copy()
    editor = Editor(result)
    for node in editor:
        if node.outputs[0] in chosen:
            editor.replace(node.outputs[0], replace(editor, node))
        else:
            editor.keep(node)
    editor.finish()
    result.prune()
    return _finished(result)


def _finished(graph: Graph) -> Graph:
    """What the pipeline does from its stage "quantised" on."""
    for _ in range(8):
        if not any([settle_dequantize(graph, {}), fold_constants(graph, {}), simplify(graph, {})]):
            break
    integer_layers(graph, {})
    settle_dequantize(graph, {})
    for _ in range(8):
        if not fuse_epilogues(graph, {}):
            break
    elementwise_scales(graph, {})
    for _ in range(2):
        if not any([fuse_elementwise(graph, {}), merge_duplicates(graph, {}), fold_constants(graph, {})]):
            break
    graph.prune()
    graph.check()
    return graph
