"""Constant folding and common subexpressions."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import find
from edgerun.dims import is_static
from edgerun.dtypes import from_numpy
from edgerun.errors import EdgerunError
from edgerun.files import content_hash
from edgerun.graph import Graph, Node, Shape, Tensor, captured
from edgerun.ops.registry import spec
from edgerun_converters.passes.editor import Editor, is_symbolic

GROWTH_LIMIT = 1 << 20
"""Bytes that a fold may add to the weights beyond its inputs: a large expanded constant costs more than it saves."""


def fold_constants(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """Compute, with the NumPy kernels, every pure node whose inputs are all weights, and the dims that are numbers."""
    editor = Editor(graph, outer)
    for node in editor:
        values = _evaluate(editor, node)
        if values is None:
            editor.keep(node)
            continue
        for name, value in zip(node.outputs, values, strict=False):
            if name:
                tensor = graph.tensors[name]
                tensor.data = value
                tensor.shape = tuple(value.shape)
        editor.changed = True
    return editor.finish()


def _evaluate(editor: Editor, node: Node) -> list[np.ndarray] | None:
    if (
        not (spec(node.op).pure and spec(node.op).fold)
        or any(True for _ in node.subgraphs())
        or is_symbolic(tuple(node.attrs.values()))
    ):
        return None
    arrays = [editor.constant(i) if i else None for i in node.inputs]
    if node.op == "shape":
        arrays = [_of_shape(editor.tensor(node.inputs[0]).shape, node)]
    if any(a is None and i for a, i in zip(arrays, node.inputs, strict=True)):
        return None
    if any(editor.graph.tensors[o].kind != "tensor" for o in node.outputs if o):
        return None
    try:
        with np.errstate(all="ignore"):
            result: Any = find(node.op)(*arrays, **node.attrs)
    except (EdgerunError, ValueError, IndexError, TypeError):
        return None  # the node fails the same way when it runs, with its name in the message
    results = [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]
    added = sum(r.nbytes for r in results) - sum(a.nbytes for a in arrays if a is not None)
    if added > GROWTH_LIMIT:
        return None
    for name, value in zip(node.outputs, results, strict=False):
        if name and from_numpy(value.dtype) is not editor.graph.tensors[name].dtype:
            raise EdgerunError(f"node {node.name!r} ({node.op}) computed {value.dtype}, declared otherwise")
    return results


def _of_shape(shape: Shape | None, node: Node) -> np.ndarray | None:
    """A stand-in without memory for the input of `shape`, when the dims it asks for are numbers."""
    dims = None if shape is None else shape[slice(node.attrs.get("start", 0), node.attrs.get("end"))]
    if shape is None or dims is None or not is_static(dims):
        return None
    return np.broadcast_to(np.zeros((), np.bool_), [d if isinstance(d, int) else 0 for d in shape])


def merge_duplicates(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """Compute equal pure nodes once, and store equal weights once (common subexpression elimination)."""
    _merge_weights(graph)
    seen: dict[Any, Node] = {}
    editor = Editor(graph, outer)
    for node in editor:
        key = _key(node)
        twin = seen.get(key) if key is not None else None
        if twin is None or any(o in graph.outputs for o in node.outputs) or len(twin.outputs) != len(node.outputs):
            if key is not None:
                seen.setdefault(key, node)
            editor.keep(node)
            continue
        for mine, other in zip(node.outputs, twin.outputs, strict=True):
            if mine and other:
                editor.replace(mine, other)
    return editor.finish()


def _key(node: Node) -> Any:
    if not (spec(node.op).pure and spec(node.op).fold) or any(True for _ in node.subgraphs()) or captured(node):
        return None
    attrs = tuple(sorted((k, repr(v)) for k, v in node.attrs.items()))
    return (node.op, tuple(node.inputs), attrs, tuple(bool(o) for o in node.outputs))


def _merge_weights(graph: Graph) -> None:
    alike: dict[Any, list[str]] = {}
    for name, tensor in graph.tensors.items():
        if tensor.data is not None and tensor.data.dtype != object and name not in graph.outputs:
            alike.setdefault((tensor.dtype, tensor.data.shape), []).append(name)
    for names in alike.values():
        # A weight without its like is not read at all: it may be larger than the memory.
        seen: dict[bytes, str] = {}
        for name in names if len(names) > 1 else ():
            data = graph.tensors[name].data
            assert data is not None
            twin = seen.setdefault(content_hash(data), name)
            if twin != name:
                graph.replace_uses(name, twin)
                del graph.tensors[name]
