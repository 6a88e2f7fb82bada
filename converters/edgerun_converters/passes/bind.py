"""Bind symbolic dimensions: give input shapes or symbols their numbers, and infer every type again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgerun.dims import Dim, DimLike, shape_text, substitute
from edgerun.errors import UsageError
from edgerun.graph import Graph, Node, Tensor
from edgerun.ops.registry import TensorType, tensor_type
from edgerun.ops.values import infer_values


def bind(graph: Graph, shapes: Mapping[str, Sequence[int]], dims: Mapping[str, Any]) -> Graph:
    """A copy of `graph` with input shapes and symbols bound.

    `shapes`: input name -> full shape. `dims`: symbol -> number, or (low, high) to bound it. Raises UsageError for
    unknown names and for contradictions.
    """
    values: dict[str, int] = {}
    result = graph.copy()
    for name, shape in shapes.items():
        _match_shape(graph, name, shape, values)
    free = graph.free_symbols()
    for name, value in dims.items():
        if name not in free:
            raise UsageError(f"there is no dimension {name!r}", hint="the model's are: " + ", ".join(sorted(free)))
        if isinstance(value, int):
            _assign(name, value, values)
        else:
            result.symbols[name] = (int(value[0]), int(value[1]))
    for name in values:
        result.symbols.pop(name, None)
    if values:
        apply_values(result, values)
    return result


def _match_shape(graph: Graph, name: str, shape: Sequence[int], values: dict[str, int]) -> None:
    if name not in graph.inputs:
        raise UsageError(f"there is no input {name!r}", hint="the model's inputs are: " + ", ".join(graph.inputs))
    tensor = graph.tensors[name]
    if tensor.shape is None or len(tensor.shape) != len(shape):
        raise UsageError(f"input {tensor} cannot have the shape {list(shape)}")
    for dim, number in zip(tensor.shape, shape, strict=True):
        if isinstance(dim, int) and dim != number:
            raise UsageError(f"input {tensor} cannot have the shape {list(shape)}: {dim} is fixed")
        if isinstance(dim, Dim):
            if not dim.is_symbol:
                raise UsageError(f"input {tensor}: the dimension {dim} is derived", hint="bind its symbols with --dim")
            _assign(str(dim), number, values)


def _assign(name: str, value: int, values: dict[str, int]) -> None:
    if value < 0:
        raise UsageError(f"dimension {name} cannot be {value}")
    if values.setdefault(name, value) != value:
        raise UsageError(f"dimension {name} is bound to {values[name]} and to {value}")


def apply_values(graph: Graph, values: Mapping[str, int], outer: Mapping[str, Tensor] | None = None) -> None:
    """Substitute symbols in shapes and attributes, then run every shape rule again (in place)."""
    for tensor in graph.tensors.values():
        tensor.shape = _shape(tensor.shape, values)
    known: dict[str, TensorType] = {k: tensor_type(t) for k, t in (outer or {}).items()}
    known |= {k: tensor_type(t) for k, t in graph.tensors.items()}
    for node in graph.nodes:
        node.attrs = {k: _attr(v, values) for k, v in node.attrs.items()}
        for sub in node.subgraphs():
            apply_values(sub, values, {**(outer or {}), **graph.tensors})
        _infer_again(graph, node, known)


def _infer_again(graph: Graph, node: Node, known: dict[str, TensorType]) -> None:
    results = infer_values(node.op, [known[i] if i else None for i in node.inputs], node.attrs, node.name)
    for name, result in zip(node.outputs, results, strict=False):
        if not name:
            continue
        tensor = graph.tensors[name]
        known[name] = result
        if result.shape is not None and not _refines(tensor.shape, result.shape):
            tensor.shape = result.shape
        known[name] = TensorType(result.dtype, tensor.shape, result.value, result.kind)


def _refines(old: tuple[DimLike, ...] | None, new: tuple[DimLike, ...]) -> bool:
    """Whether the declared shape already says at least as much as the inferred one."""
    if old is None or len(old) != len(new):
        return False
    return all(isinstance(a, int) or isinstance(b, Dim) for a, b in zip(old, new, strict=True))


def _shape(shape: tuple[DimLike, ...] | None, values: Mapping[str, int]) -> tuple[DimLike, ...] | None:
    return None if shape is None else tuple(substitute(d, values) for d in shape)


def _attr(value: Any, values: Mapping[str, int]) -> Any:
    if isinstance(value, Dim):
        return substitute(value, values)
    if isinstance(value, tuple):
        return tuple(_attr(v, values) for v in value)
    return value


def describe(graph: Graph) -> str:
    """The inputs with their shapes, for messages."""
    return "; ".join(f"{i} {shape_text(graph.tensors[i].shape)}" for i in graph.inputs)
