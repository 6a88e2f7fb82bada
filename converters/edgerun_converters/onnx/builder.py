"""What an ONNX lowering function works with: the source node (`OnnxNode`) and the graph under construction (`Builder`).

    @lowering("Clip")
    def clip(b: Builder, n: OnnxNode) -> None:
        x, low, high = n.input(0), n.input(1), n.input(2)
        ...
        n.bind(b.elementwise(program, [x, low]))

A lowering handles every opset version of its operator (`n.opset` tells which) and binds each output it can compute. It
raises UnsupportedError for what it cannot express; the importer collects these for the whole model.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from edgerun.dims import Dim, DimLike
from edgerun.dtypes import DType
from edgerun.errors import ShapeError, UnsupportedError
from edgerun.graph import Graph, Node, Shape
from edgerun.ops.elementwise import SCALARS, Program, single
from edgerun.ops.registry import TensorType, normalize_axis, spec, static_value
from edgerun.ops.values import infer_values

REQUIRED: Any = object()


class Poisoned(Exception):
    """A value is needed that a node with a problem should have made; the problem is already on record."""


@dataclass
class OnnxNode:
    """One source node. Inputs are names of tensors in the graph under construction; "" = absent."""

    op_type: str
    domain: str
    """"" for ai.onnx."""
    opset: int
    """Version of this node's domain that the model imports."""
    inputs: list[str]
    output_count: int
    attributes: dict[str, Any]
    """Decoded attribute values: int, float, str (bytes when not UTF-8), np.ndarray, TypeProto, OnnxGraph (a sub-graph
    that is imported on demand, see `importer`), tuples of these."""
    name: str
    output_used: list[bool] = field(default_factory=list)
    """Whether each output has a name (an empty name means it is not wanted)."""
    outputs: list[str] = field(default_factory=list)
    """Filled by `bind`."""
    model: Any = None
    """The importer, for operators that need it (functions, sub-graphs)."""

    def input(self, index: int) -> str:
        """Name of input `index`, or "" when absent."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def attr(self, name: str, default: Any = REQUIRED) -> Any:
        """Attribute value. Raises UnsupportedError when a required one is missing."""
        if name in self.attributes:
            return self.attributes[name]
        if default is REQUIRED:
            raise UnsupportedError(f"attribute {name!r} is missing")
        return default

    def wants(self, index: int) -> bool:
        """Whether output `index` is used by the model."""
        return index < len(self.output_used) and self.output_used[index]

    def bind(self, *outputs: str) -> None:
        """Give the names of the computed outputs, in order; "" for one that is not wanted."""
        self.outputs = list(outputs)


class Builder:
    """Appends core ops to a graph, inferring types and known values as it goes.

    `graph` is the graph under construction; `outer` the builder of the enclosing graph for sub-graphs (its tensors
    may be used by name). `prefix` starts every name made here, so that names in sub-graphs differ from those around
    them; `reserved` are names that only the importer may give (those of the source model).
    """

    def __init__(
        self, graph: Graph, outer: Builder | None = None, prefix: str = "", reserved: Container[str] = ()
    ) -> None:
        self.graph = graph
        self.outer = outer
        self.prefix = prefix
        self.reserved = reserved
        self.types: dict[str, TensorType] = {}
        self.node_name = ""
        """Name of the source node being lowered; new nodes carry it."""
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    # -- what is known
    def type(self, name: str) -> TensorType:
        """Type of a tensor here or in an enclosing graph."""
        builder: Builder | None = self
        while builder is not None:
            if name in builder.types:
                return builder.types[name]
            builder = builder.outer
        raise ShapeError(f"tensor {name!r} is used before it is computed")

    def dtype(self, name: str) -> DType:
        return self.type(name).dtype

    def shape(self, name: str) -> Shape:
        """The shape. Raises ShapeError when the rank is unknown."""
        return self.type(name).dims

    def rank(self, name: str) -> int:
        return self.type(name).rank

    def axis(self, name: str, axis: int) -> int:
        """`axis` counted from the front; as given when the rank of `name` is unknown."""
        shape = self.type(name).shape
        return axis if shape is None else normalize_axis(axis, len(shape))

    def static(self, name: str) -> np.ndarray | None:
        """The elements when they are known numbers; None when absent, computed or symbolic."""
        return static_value(self.type(name)) if name else None

    def known(self, name: str) -> list[DimLike] | None:
        """The elements of a 0-d or 1-d integer tensor as ints and Dims, or None when they are computed at run time."""
        value = self.type(name).value if name else None
        if value is None or value.ndim > 1:
            return None
        return [v if isinstance(v, Dim) else int(v) for v in np.atleast_1d(value).tolist()]

    # -- building
    def fresh(self, hint: str) -> str:
        """A tensor name that is neither in use nor reserved, starting with `hint`."""
        name = self.graph.fresh(hint)
        while name in self.reserved:
            hint += "_"
            name = self.graph.fresh(hint)
        return name

    def retype(self, name: str, known: TensorType) -> None:
        """Note that a tensor of this graph has a more exact type than its op's rule could tell."""
        self.types[name] = known
        self.graph.tensors[name].shape = known.shape

    def const(self, array: Any, dtype: DType | None = None, hint: str = "const") -> str:
        """A constant tensor; equal small constants share one name."""
        array = np.asarray(array) if dtype is None else np.asarray(array).astype(dtype.numpy)
        key = (str(array.dtype), array.shape, array.tobytes()) if array.size <= 64 and array.dtype != object else None
        if key is not None and key in self._constants:
            return self._constants[key]
        name = self.graph.add_constant(array, self.fresh(self.prefix + hint))
        self.types[name] = TensorType(self.graph.tensors[name].dtype, tuple(array.shape), array)
        if key is not None:
            self._constants[key] = name
        return name

    def emit(self, op: str, inputs: Sequence[str], outputs: int | None = None, **attrs: Any) -> list[str]:
        """Append a core op and return its output names.

        `outputs` limits how many outputs the node gets. Raises ShapeError or UnsupportedError naming the source node.
        Trailing absent inputs are dropped; attributes equal to their default are not stored.
        """
        names = list(inputs)
        while names and not names[-1]:
            names.pop()
        types = [self.type(i) if i else None for i in names]
        results = infer_values(op, types, attrs, self.node_name)
        if outputs is not None:
            results = results[:outputs]
        defaults = spec(op).attributes
        stored = {k: v for k, v in attrs.items() if not _is_default(v, defaults.get(k))}
        made = []
        for result in results:
            name = self.fresh(self.node_name or self.prefix + op)
            self.graph.add_tensor(name, result.dtype, result.shape, kind=result.kind)
            self.types[name] = result
            made.append(name)
        self.graph.nodes.append(Node(op, names, made, stored, self.node_name))
        return made

    def one(self, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        """`emit` for an op with a single wanted output."""
        return self.emit(op, inputs, 1, **attrs)[0]

    # -- common shorthands
    def elementwise(self, program: Program, inputs: Sequence[str]) -> str:
        """Append an elementwise program."""
        return self.one("elementwise", inputs, program=program)

    def scalar(self, function: str, *inputs: str) -> str:
        """One scalar function of `edgerun.ops.elementwise.SCALARS` (not a cast) on broadcast inputs."""
        result = SCALARS[function].result
        dtype = DType.BOOL if result == "bool" else self.dtype(inputs[-1])
        return self.elementwise(single(function, dtype), inputs)

    def cast(self, x: str, dtype: DType, function: str = "cast") -> str:
        """Convert; `x` itself when it already has the dtype."""
        return x if self.dtype(x) is dtype else self.elementwise(((function, dtype, 0),), [x])

    def fill(self, like: str, value: float) -> str:
        """A rank-0 constant of the dtype of `like`."""
        return self.const(np.asarray(value), self.dtype(like))

    def transpose(self, x: str, perm: Sequence[int]) -> str:
        """Permute axes; `x` itself for the identity."""
        perm = tuple(int(p) for p in perm)
        return x if perm == tuple(range(len(perm))) else self.one("transpose", [x], perm=perm)

    def reshape(self, x: str, to: Sequence[DimLike]) -> str:
        """Reshape to known dimensions; `x` itself when it has them."""
        to = tuple(to)
        return x if self.type(x).shape == to else self.one("reshape", [x], to=to)

    def to_channels_last(self, x: str) -> str:
        """[N, C, *spatial] to [N, *spatial, C]."""
        rank = self.rank(x)
        return self.transpose(x, [0, *range(2, rank), 1])

    def to_channels_first(self, x: str) -> str:
        """[N, *spatial, C] to [N, C, *spatial]."""
        rank = self.rank(x)
        return self.transpose(x, [0, rank - 1, *range(1, rank - 1)])


def _is_default(value: Any, default: Any) -> bool:
    if isinstance(value, Graph) or value is None:
        return value is default
    return type(value) is type(default) and value == default


LoweringFunction: TypeAlias = Callable[[Builder, OnnxNode], None]
LOWERINGS: dict[tuple[str, str], LoweringFunction] = {}


def lowering(*op_types: str, domain: str = "") -> Callable[[LoweringFunction], LoweringFunction]:
    """Register the decorated function as the lowering of ONNX operators `op_types` of `domain`."""

    def register(function: LoweringFunction) -> LoweringFunction:
        for op_type in op_types:
            if (domain, op_type) in LOWERINGS:
                raise ValueError(f"the lowering of {domain}::{op_type} is defined twice")
            LOWERINGS[domain, op_type] = function
        return function

    return register


def find(domain: str, op_type: str) -> LoweringFunction | None:
    """The lowering of an operator, or None (it may still be an ONNX function that can be inlined)."""
    load_all()
    return LOWERINGS.get((domain, op_type))


@cache
def load_all() -> None:
    """Import every lowering module, filling LOWERINGS. A failure is raised again at the next call."""
    import edgerun_converters.onnx.ops as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"edgerun_converters.onnx.ops.{module.name}")
