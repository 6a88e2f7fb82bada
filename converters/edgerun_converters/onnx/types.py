"""ONNX type declarations: TypeProto to TensorType and back, with names for the symbolic dimensions."""

from __future__ import annotations

import itertools

import onnx

from edgerun.dims import DimLike, clean_symbol, symbol
from edgerun.dtypes import DType
from edgerun.errors import ImportFailure, UnsupportedError
from edgerun.ops.registry import TensorType
from edgerun_converters.onnx.tensors import MAX_RANK, tensor_dtype

MAX_DIM = 1 << 40


class Symbols:
    """Names for dimensions: a `dim_param` keeps its name (cleaned), an unnamed dimension gets a fresh one."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._used: set[str] = set()

    def named(self, param: str) -> DimLike:
        """The symbol of a dim_param; two different params never share one."""
        if param not in self._names:
            self._names[param] = self._unique(clean_symbol(param))
        return symbol(self._names[param])

    def fresh(self, hint: str) -> DimLike:
        """A symbol nobody else has."""
        return symbol(self._unique(clean_symbol(hint)))

    def known(self, param: str) -> str | None:
        """The symbol's name for a dim_param seen before."""
        return self._names.get(param)

    def _unique(self, name: str) -> str:
        candidates = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(2)))
        found = next(c for c in candidates if c not in self._used)
        self._used.add(found)
        return found


def from_type(proto: onnx.TypeProto, symbols: Symbols, name: str, what: str) -> TensorType:
    """The declared type. `name` names unnamed dimensions, `what` the value in messages.

    Raises ImportFailure for malformed declarations, UnsupportedError for kinds of value that do not exist here.
    """
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return _tensor(proto.tensor_type, symbols, name, what)
    if kind == "sequence_type":
        element = proto.sequence_type.elem_type
        if element.WhichOneof("value") == "map_type":
            return TensorType(_map_value(element.map_type, what), None, kind="sequence")
        if element.WhichOneof("value") != "tensor_type":
            raise UnsupportedError(f"{what} is a sequence of something else than tensors")
        dtype = tensor_dtype(element.tensor_type.elem_type, what)
        return TensorType(dtype, None, kind="sequence")
    if kind == "optional_type":
        inner = from_type(proto.optional_type.elem_type, symbols, name, what)
        if inner.kind not in ("tensor", "sequence"):
            raise UnsupportedError(f"{what} is an optional of something else than a tensor or a sequence")
        return TensorType(inner.dtype, None, kind="optional" if inner.kind == "tensor" else "optional_sequence")
    if kind == "map_type":
        return TensorType(_map_value(proto.map_type, what), None, kind="map")
    raise UnsupportedError(f"{what} has no type, or one that is not a tensor, sequence, optional or map")


def _map_value(proto: onnx.TypeProto.Map, what: str) -> DType:
    if proto.value_type.WhichOneof("value") != "tensor_type":
        raise UnsupportedError(f"{what} is a map to something else than tensors")
    return tensor_dtype(proto.value_type.tensor_type.elem_type, what)


def _tensor(proto: onnx.TypeProto.Tensor, symbols: Symbols, name: str, what: str) -> TensorType:
    dtype = tensor_dtype(proto.elem_type, what)
    if not proto.HasField("shape"):
        return TensorType(dtype, None)
    if len(proto.shape.dim) > MAX_RANK:
        raise ImportFailure(f"{what} has {len(proto.shape.dim)} dimensions; at most {MAX_RANK} are possible")
    return TensorType(dtype, tuple(_dim(d, symbols, f"{name}_{i}", what) for i, d in enumerate(proto.shape.dim)))


def _dim(proto: onnx.TensorShapeProto.Dimension, symbols: Symbols, hint: str, what: str) -> DimLike:
    if proto.HasField("dim_value") and proto.dim_value >= 0:
        if proto.dim_value > MAX_DIM:
            raise ImportFailure(f"{what} has the absurd dimension {proto.dim_value}")
        return int(proto.dim_value)
    if proto.HasField("dim_param") and any(c.isalnum() for c in proto.dim_param.removeprefix("-1")):
        return symbols.named(proto.dim_param)
    return symbols.fresh(hint)  # unnamed; some exporters write -1, or "?" for every dimension that is free


def declared_shape(proto: onnx.TypeProto) -> list[int | None] | None:
    """The shape of a declared tensor with None for what is not a number; None when the rank is not declared."""
    if proto.WhichOneof("value") != "tensor_type" or not proto.tensor_type.HasField("shape"):
        return None
    dims = proto.tensor_type.shape.dim
    return [int(d.dim_value) if d.HasField("dim_value") and d.dim_value >= 0 else None for d in dims]


def to_type(t: TensorType) -> onnx.TypeProto:
    """The TypeProto of an inferred type, as ONNX's own function bodies want it; symbolic dimensions become unknown."""
    proto = onnx.TypeProto()
    tensor = proto.tensor_type
    if t.kind == "sequence":
        tensor = proto.sequence_type.elem_type.tensor_type
    elif t.kind == "optional":
        tensor = proto.optional_type.elem_type.tensor_type
    elif t.kind == "optional_sequence":
        tensor = proto.optional_type.elem_type.sequence_type.elem_type.tensor_type
    tensor.elem_type = t.dtype.onnx
    if t.shape is not None:
        tensor.shape.SetInParent()
        for dim in t.shape:
            entry = tensor.shape.dim.add()
            if isinstance(dim, int):
                entry.dim_value = dim
    return proto
