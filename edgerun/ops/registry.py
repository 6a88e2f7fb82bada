"""The table of core ops. One op = one function whose signature is the specification and whose body is the shape rule.

    @op("pool")
    def softmax(x: TensorType, *, axis: int, log: bool = False) -> TensorType:
        '''...'''
        return x.with_value(None)

Positional parameters are the inputs in order: `x: TensorType` is required, `b: TensorType | None = None` is optional,
`*xs: TensorType` is variadic. Keyword-only parameters are the attributes with their defaults. The function checks
dtypes and shapes (raise ShapeError with both shapes in the message) and returns one TensorType per output (a tuple for
several). The NumPy kernel of the same name (edgerun/backends/numpy/registry.py) has the same signature with arrays; a
test compares the two signatures for every op.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgerun.dims import Dim, DimLike, is_static, product, shape_text, symbol
from edgerun.dtypes import DType
from edgerun.errors import ShapeError, UnsupportedError
from edgerun.graph import Graph, Node, Shape, Tensor


@dataclass(frozen=True, slots=True)
class TensorType:
    """What is known about a tensor before running: dtype, shape (None = unknown rank) and perhaps its very elements."""

    dtype: DType
    shape: Shape | None
    value: np.ndarray | None = None
    """The elements when known: an ordinary array, or for shape arithmetic an object array of ints and Dims."""
    kind: str = "tensor"

    @property
    def rank(self) -> int:
        """The number of dimensions. Raises ShapeError when unknown."""
        if self.shape is None:
            raise ShapeError("the rank of an input is not known here")
        return len(self.shape)

    @property
    def dims(self) -> Shape:
        """The shape. Raises ShapeError when the rank is unknown."""
        if self.shape is None:
            raise ShapeError("the shape of an input is not known here")
        return self.shape

    def like(self, shape: Shape | None = None, dtype: DType | None = None) -> TensorType:
        """A computed tensor of this dtype and shape (or the given ones), value unknown."""
        return TensorType(dtype or self.dtype, self.shape if shape is None else tuple(shape))

    def __str__(self) -> str:
        return f"{self.dtype.short}{shape_text(self.shape)}"


@dataclass(frozen=True)
class OpSpec:
    """One row of the op table."""

    name: str
    family: str
    rule: Callable[..., Any]
    inputs: tuple[str, ...]
    """Names of the inputs; a variadic one is `*name`, optional ones end in `?`."""
    attributes: dict[str, Any] = field(default_factory=dict)
    """Attribute name -> default (inspect.Parameter.empty when required)."""
    macs: Callable[..., DimLike] | None = None
    symbolic: bool = False
    """Whether the NumPy kernel also works on object arrays of Dims, so that shape arithmetic is evaluated early."""
    pure: bool = True
    """False for random ops: never folded, never merged."""
    fold: bool = True
    """False for ops that make weights larger (dequantisation): passes decide when constants go through them."""

    @property
    def summary(self) -> str:
        """First line of the rule's docstring."""
        return (inspect.getdoc(self.rule) or "").split("\n")[0]


OPS: dict[str, OpSpec] = {}
_FRESH = itertools.count(1)


def op(
    family: str, *, name: str = "", symbolic: bool = False, pure: bool = True, fold: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated shape rule as a core op; see the module docstring."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        key = name or rule.__name__.rstrip("_")
        if key in OPS:
            raise ValueError(f"op {key!r} is defined twice")
        inputs, attributes = describe_signature(rule)
        OPS[key] = OpSpec(key, family, rule, inputs, attributes, symbolic=symbolic, pure=pure, fold=fold)
        return rule

    return register


def macs(name: str) -> Callable[[Callable[..., DimLike]], Callable[..., DimLike]]:
    """Register the decorated function as the multiply-accumulate count of op `name`.

    It receives the same arguments as the rule plus `out`, the first output's TensorType.
    """

    def register(function: Callable[..., DimLike]) -> Callable[..., DimLike]:
        OPS[name] = replace(OPS[name], macs=function)
        return function

    return register


def describe_signature(function: Callable[..., Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """(input names, attributes with defaults) of a rule or kernel, as OpSpec stores them."""
    inputs: list[str] = []
    attributes: dict[str, Any] = {}
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.VAR_POSITIONAL:
            inputs.append("*" + p.name)
        elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
            inputs.append(p.name if p.default is p.empty else p.name + "?")
        elif p.kind is p.KEYWORD_ONLY:
            attributes[p.name] = p.default
    return tuple(inputs), attributes


def spec(name: str) -> OpSpec:
    """The row of op `name`. Raises UnsupportedError when there is none."""
    if name not in OPS:
        load_all()
    found = OPS.get(name)
    if found is None:
        raise UnsupportedError(f"there is no core op {name!r}")
    return found


def load_all() -> None:
    """Import every op family, filling OPS."""
    import importlib
    import pkgutil

    import edgerun.ops as package

    for module in pkgutil.iter_modules(package.__path__):
        if module.name != "registry":
            importlib.import_module(f"edgerun.ops.{module.name}")


def tensor_type(tensor: Tensor) -> TensorType:
    """What the tensor's declaration says, with its data as the value."""
    return TensorType(tensor.dtype, tensor.shape, tensor.data, tensor.kind)


def infer(
    name: str, inputs: Sequence[TensorType | None], attrs: dict[str, Any], node_name: str = ""
) -> list[TensorType]:
    """Apply the shape rule of op `name`; one TensorType per output.

    Raises ShapeError or UnsupportedError naming the node.
    """
    row = spec(name)
    unknown = attrs.keys() - row.attributes.keys()
    if unknown:
        raise UnsupportedError(f"op {name!r} (node {node_name!r}) has no attribute {sorted(unknown)[0]!r}")
    try:
        result = row.rule(*inputs, **attrs)
    except ShapeError as e:
        given = ", ".join(str(i) if i is not None else "-" for i in inputs)
        raise ShapeError(f"node {node_name!r} ({name}) with inputs {given}: {e.message}", hint=e.hint) from e
    return list(result) if isinstance(result, tuple | list) else [result]


def infer_node(graph: Graph, node: Node) -> list[TensorType]:
    """Shape rule of a node in its graph (sub-graph nodes must find all inputs in `graph.tensors`)."""
    types = [tensor_type(graph.tensors[i]) if i else None for i in node.inputs]
    return infer(node.op, types, node.attrs, node.name)


def count_macs(graph: Graph, node: Node) -> DimLike:
    """Multiply-accumulates of a node; 0 for ops that only move or compare data."""
    row = spec(node.op)
    if row.macs is None:
        return 0
    types = [tensor_type(graph.tensors[i]) if i else None for i in node.inputs]
    return row.macs(*types, **node.attrs, out=tensor_type(graph.tensors[node.outputs[0]]))


def size(t: TensorType) -> DimLike:
    """Number of elements."""
    return product(t.dims)


def static_value(t: TensorType | None) -> np.ndarray | None:
    """The elements when all are numbers, else None."""
    if t is None or t.value is None:
        return None
    if t.value.dtype == object and t.dtype is not DType.STRING:
        if not is_static(t.value.ravel().tolist()):
            return None
        return t.value.astype(t.dtype.numpy)
    return t.value


def fresh_symbol(hint: str) -> Dim:
    """A symbol no other tensor uses, for a size that only the data decides; executors learn its value as they run."""
    return symbol(f"{hint}@{next(_FRESH)}")


def require(condition: bool, message: str) -> None:
    """Raise ShapeError(message) unless `condition`."""
    if not condition:
        raise ShapeError(message)


def may_equal(a: DimLike, b: DimLike) -> bool:
    """Whether two dimensions can be equal: all but two different numbers."""
    return a == b or isinstance(a, Dim) or isinstance(b, Dim)


def compatible(a: Shape, b: Shape) -> bool:
    """Whether two shapes can be equal."""
    return len(a) == len(b) and all(may_equal(p, q) for p, q in zip(a, b, strict=True))


def normalize_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front. Raises ShapeError when out of range."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} is outside a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis
