"""The `.edge` bundle: one graph with its weights, as a valid safetensors file.

    u64 length of the header | header (JSON, padded with spaces) | tensor data

Tensors are weights. `__metadata__` holds `edgerun.format` ("1") and `edgerun.graph` (the graph as JSON), both strings
as safetensors wants. Tensor data starts at multiples of 64 bytes so that weights can be used from the mapped file;
since safetensors forbids holes, the gaps are tensors called `__pad.N`. Types that safetensors lacks are stored as U8
with the true dtype in the graph. There is no executable content. docs/bundle-format.md is the specification.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.dims import Dim, parse
from edgerun.dtypes import DType, from_code, from_numpy, from_short
from edgerun.errors import BundleError, EdgerunError, InputOutputError, ShapeError
from edgerun.files import atomic_write, pieces
from edgerun.graph import KINDS, Graph, Node, Shape, Tensor

FORMAT = "1"
ALIGNMENT = 64
MAX_HEADER = 100_000_000
"""The limit that safetensors itself sets on the header."""
MAX_NESTING = 16
"""Deepest nesting of sub-graphs and of tuples in attributes."""

_SAFETENSORS = {
    DType.F64: "F64", DType.F32: "F32", DType.F16: "F16", DType.BF16: "BF16", DType.I64: "I64", DType.I32: "I32",
    DType.I16: "I16", DType.I8: "I8", DType.U64: "U64", DType.U32: "U32", DType.U16: "U16", DType.U8: "U8",
    DType.BOOL: "BOOL",
}  # fmt: skip
_ITEMSIZE = {name: dtype.itemsize for dtype, name in _SAFETENSORS.items()}


# -- writing


def save(graph: Graph, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write `graph` to `path` atomically. Raises InputOutputError when the file exists and `force` is false."""
    header, chunks = _encode(graph)
    with atomic_write(Path(path), force=force) as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for chunk in chunks:
            for piece in pieces(np.frombuffer(chunk, np.uint8)):
                file.write(piece)


def to_bytes(graph: Graph) -> bytes:
    """The bundle in memory."""
    header, chunks = _encode(graph)
    return b"".join([len(header).to_bytes(8, "little"), header, *(bytes(c) for c in chunks)])


def _encode(graph: Graph) -> tuple[bytes, list[bytes | memoryview]]:
    weights: list[np.ndarray] = []
    document = json.dumps(_graph_to_json(graph, weights), separators=(",", ":"), allow_nan=False)
    count, assets = len(weights), list(graph.assets)
    weights += graph.assets.values()
    entries: dict[str, Any] = {"__metadata__": {"edgerun.format": FORMAT, "edgerun.graph": document}}
    chunks: list[bytes | memoryview] = []
    position = 0
    for index, array in enumerate(weights):
        gap = -position % ALIGNMENT
        if gap:
            entries[f"__pad.{index}"] = {
                "dtype": "U8",
                "shape": [gap],
                "data_offsets": [position, position + gap],
            }
            chunks.append(bytes(gap))
            position += gap
        dtype, shape, data = _encode_weight(array)
        key = f"w{index}" if index < count else f"asset.{assets[index - count]}"
        entries[key] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + len(data)]}
        chunks.append(data)
        position += len(data)
    header = json.dumps(entries, separators=(",", ":"), allow_nan=False).encode()
    header += b" " * (-(len(header) + 8) % ALIGNMENT)
    if len(header) > MAX_HEADER:
        raise BundleError(f"the graph takes {len(header)} bytes of header; the format allows {MAX_HEADER}")
    return header, chunks


def _encode_weight(array: np.ndarray) -> tuple[str, list[int], bytes | memoryview]:
    dtype = from_numpy(array.dtype)
    if dtype is DType.STRING:
        text = json.dumps([_text(v) for v in array.ravel().tolist()]).encode()
        return "U8", [len(text)], text
    array = np.ascontiguousarray(array)
    raw = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    if dtype in _SAFETENSORS:
        return _SAFETENSORS[dtype], list(array.shape), raw
    return "U8", [len(raw)], raw


def _text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _graph_to_json(graph: Graph, weights: list[np.ndarray]) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for name, t in graph.tensors.items():
        row: dict[str, Any] = {"dtype": t.dtype.short}
        if t.shape is not None:
            row["shape"] = [d if isinstance(d, int) else str(d) for d in t.shape]
        if t.kind != "tensor":
            row["kind"] = t.kind
        if t.data is not None:
            row["weight"] = len(weights)
            weights.append(t.data)
        tensors[name] = row
    return {
        "name": graph.name,
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "symbols": {k: list(v) for k, v in graph.symbols.items()},
        "states": graph.states,
        "tensors": tensors,
        "nodes": [
            {
                "op": n.op,
                "name": n.name,
                "inputs": n.inputs,
                "outputs": n.outputs,
                "attrs": {k: _attr_to_json(v, weights) for k, v in n.attrs.items()},
            }
            for n in graph.nodes
        ],
        "meta": graph.meta,
    }


def _attr_to_json(value: Any, weights: list[np.ndarray]) -> Any:
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, tuple | list):
        return [_attr_to_json(v, weights) for v in value]
    if isinstance(value, Dim):
        return {"dim": str(value)}
    if isinstance(value, DType):
        return {"dtype": value.code}
    if isinstance(value, Graph):
        return {"graph": _graph_to_json(value, weights)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    raise BundleError(f"an attribute of type {type(value).__name__} cannot be stored in a bundle")


# -- reading


def load(path: str | os.PathLike[str], *, validate: bool = True) -> Graph:
    """Read a bundle; weights stay in the mapped file. Raises BundleError for a damaged or hostile file.

    `validate` re-runs every shape rule and compares it with what the file declares.
    """
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 8:
                raise BundleError(f"{path} is not a bundle: it has {size} bytes")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as e:
        raise InputOutputError(f"cannot read {path}: {e.strerror}") from e
    return from_buffer(data, str(path), validate=validate)


def from_buffer(data: Any, origin: str = "bundle", *, validate: bool = True) -> Graph:
    """Read a bundle from memory (bytes, mmap); weights are read-only views of it. Same errors as `load`."""
    try:
        graph = _decode(np.frombuffer(data, np.uint8))
        if validate:
            check_types(graph)
        else:
            graph.check()
    except BundleError as e:
        raise BundleError(f"{origin}: {e.message}", hint=e.hint) from e
    except EdgerunError as e:
        raise BundleError(f"{origin}: the graph is not valid: {e}") from e
    except RecursionError as e:
        raise BundleError(f"{origin}: the graph is nested too deeply") from e
    return graph


def _decode(data: np.ndarray) -> Graph:
    if data.size < 8:
        raise BundleError("not a bundle: too short")
    length = int.from_bytes(data[:8].tobytes(), "little")
    if length > MAX_HEADER or length > data.size - 8:
        raise BundleError("not a bundle, or truncated: the header is longer than the file")
    header = _parse_json(data[8 : 8 + length].tobytes(), "header")
    metadata = header.pop("__metadata__", None)
    if not isinstance(metadata, dict) or not isinstance(metadata.get("edgerun.graph"), str):
        raise BundleError("a safetensors file, but not a bundle: it holds no graph", hint="use `edgerun convert`")
    if metadata.get("edgerun.format") != FORMAT:
        raise BundleError(
            f"bundle format {metadata.get('edgerun.format')!r} is not {FORMAT!r}", hint="convert it again"
        )
    weights = _decode_weights(header, data[8 + length :])
    document = _parse_json(metadata["edgerun.graph"].encode(), "graph")
    graph = _Reader(weights).graph(document, 0)
    graph.assets = {k.removeprefix("asset."): v for k, v in weights.items() if k.startswith("asset.")}
    if not all(a.dtype == np.uint8 and a.ndim == 1 for a in graph.assets.values()):
        raise BundleError("an asset is no row of bytes")
    _check_names(graph)
    return graph


def _parse_json(text: bytes, what: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            raise BundleError(f"the {what} names a key twice")
        return table

    try:
        document = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as e:
        raise BundleError(f"the {what} is not valid JSON") from e
    if not isinstance(document, dict):
        raise BundleError(f"the {what} is not a JSON object")
    return document


def _decode_weights(entries: dict[str, Any], data: np.ndarray) -> dict[str, np.ndarray]:
    """Every tensor as a read-only array, after checking that they tile the data section without holes or overlap."""
    spans: list[tuple[int, int, str]] = []
    weights: dict[str, np.ndarray] = {}
    for key, row in entries.items():
        try:
            dtype, shape, (start, end) = row["dtype"], row["shape"], row["data_offsets"]
        except (TypeError, KeyError, ValueError) as e:
            raise BundleError(f"the entry of tensor {key!r} is malformed") from e
        if not isinstance(dtype, str) or dtype not in _ITEMSIZE:
            raise BundleError(f"tensor {key!r} has the unknown type {dtype!r}")
        if not isinstance(shape, list) or len(shape) > 32 or not all(_is_count(d) for d in [*shape, start, end]):
            raise BundleError(f"the entry of tensor {key!r} is malformed")
        if not start <= end <= data.size or math.prod(shape) * _ITEMSIZE[dtype] != end - start:
            raise BundleError(f"tensor {key!r} does not fit its bytes, or the file is truncated")
        spans.append((start, end, key))
        raw = data[start:end]
        numpy_dtype = next(d for d, name in _SAFETENSORS.items() if name == dtype).numpy
        if start % ALIGNMENT:
            raw = raw.copy()
        weights[key] = raw.view(numpy_dtype).reshape(shape)
    position = 0
    for start, end, key in sorted(spans):
        if start != position:
            raise BundleError(f"there is a hole or an overlap before tensor {key!r}")
        position = end
    if position != data.size:
        raise BundleError("there are bytes after the last tensor, or the file is truncated")
    return weights


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


class _Reader:
    """Turns the graph document into a Graph, checking every field's type."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = weights

    def graph(self, document: Any, depth: int) -> Graph:
        if depth > MAX_NESTING or not isinstance(document, dict):
            raise BundleError("the graph is malformed or nested too deeply")
        graph = Graph(
            name=self.text(document.get("name", "")),
            inputs=self.names(document.get("inputs")),
            outputs=self.names(document.get("outputs")),
            meta=self.table(document, "meta"),
        )
        for name, index in self.table(document, "states").items():
            if not _is_count(index):
                raise BundleError(f"the next value of state {name!r} is malformed")
            graph.states[name] = index
        for name, pair in self.table(document, "symbols").items():
            if not (isinstance(pair, list) and len(pair) == 2 and _is_count(pair[0])):
                raise BundleError(f"the bounds of symbol {name!r} are malformed")
            if pair[1] is not None and not (_is_count(pair[1]) and pair[0] <= pair[1]):
                raise BundleError(f"the bounds of symbol {name!r} are malformed")
            graph.symbols[name] = (pair[0], pair[1])
        for name, row in self.table(document, "tensors").items():
            graph.tensors[name] = self.tensor(name, row)
        nodes = document.get("nodes")
        if not isinstance(nodes, list):
            raise BundleError("the graph has no list of nodes")
        graph.nodes = [self.node(row, depth) for row in nodes]
        return graph

    def tensor(self, name: str, row: Any) -> Tensor:
        if not isinstance(row, dict) or row.get("kind", "tensor") not in KINDS:
            raise BundleError(f"the declaration of tensor {name!r} is malformed")
        try:
            dtype = from_short(row.get("dtype"))  # type: ignore[arg-type]
        except (KeyError, TypeError) as e:
            raise BundleError(f"tensor {name!r} has the unknown type {row.get('dtype')!r}") from e
        shape: Shape | None = None
        if row.get("shape") is not None:
            if not isinstance(row["shape"], list) or len(row["shape"]) > 64:
                raise BundleError(f"the shape of tensor {name!r} is malformed")
            shape = tuple(self.dim(d) for d in row["shape"])
        data = None
        if "weight" in row:
            data = self.weight(name, row["weight"], dtype, shape)
        return Tensor(name, dtype, shape, data, row.get("kind", "tensor"))

    def weight(self, name: str, key: Any, dtype: DType, shape: Shape | None) -> np.ndarray:
        raw = self.weights.get(f"w{key}") if _is_count(key) else None
        if raw is None or shape is None or not all(isinstance(d, int) for d in shape):
            raise BundleError(f"the data of weight {name!r} is missing")
        numbers = tuple(int(d) for d in shape)
        if dtype is DType.STRING:
            values = _parse_json(b'{"values":' + raw.tobytes() + b"}", f"text of weight {name!r}")["values"]
            if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
                raise BundleError(f"the text of weight {name!r} is malformed")
            array = np.array(values, dtype=object)
        else:
            array = raw if dtype in _SAFETENSORS else raw.view(dtype.numpy)
            if from_numpy(array.dtype) is not dtype:
                raise BundleError(f"weight {name!r} is declared {dtype.short} but stored as {array.dtype}")
        if array.size != math.prod(numbers):
            raise BundleError(f"weight {name!r} of shape {list(numbers)} has {array.size} elements")
        return array.reshape(numbers)

    def node(self, row: Any, depth: int) -> Node:
        if not isinstance(row, dict) or not isinstance(row.get("attrs"), dict):
            raise BundleError("a node is malformed")
        attrs = {self.text(k): self.attr(v, depth) for k, v in row["attrs"].items()}
        return Node(
            self.text(row.get("op")),
            self.names(row.get("inputs")),
            self.names(row.get("outputs")),
            attrs,
            self.text(row.get("name", "")),
        )

    def attr(self, value: Any, depth: int) -> Any:
        if depth > MAX_NESTING:
            raise BundleError("an attribute is nested too deeply")
        if isinstance(value, list):
            return tuple(self.attr(v, depth + 1) for v in value)
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (tag, content), *_ = value.items()
            try:
                if tag == "dim":
                    return parse(self.text(content))
                if tag == "dtype":
                    return from_code(content)
                if tag == "float":
                    return float(content)
                if tag == "bytes":
                    return bytes.fromhex(content)
            except (KeyError, TypeError, ValueError, ShapeError) as e:
                raise BundleError(f"an attribute holds a malformed {tag}") from e
            if tag == "graph":
                return self.graph(content, depth + 1)
        raise BundleError("an attribute is malformed")

    def dim(self, value: Any) -> Any:
        if _is_count(value):
            return value
        if isinstance(value, str):
            return parse(value)
        raise BundleError(f"the dimension {value!r} is malformed")

    def text(self, value: Any) -> str:
        if not isinstance(value, str) or len(value) > 1 << 20:
            raise BundleError("a name in the graph is malformed")
        return value

    def names(self, value: Any) -> list[str]:
        if not isinstance(value, list):
            raise BundleError("a list of names in the graph is malformed")
        return [self.text(v) for v in value]

    def table(self, document: dict[str, Any], key: str) -> dict[str, Any]:
        table = document.get(key, {})
        if not isinstance(table, dict):
            raise BundleError(f"the table of {key} is malformed")
        return table


def _check_names(graph: Graph) -> None:
    for name in [*graph.inputs, *graph.outputs]:
        if name not in graph.tensors:
            raise BundleError(f"the input or output {name!r} is not declared")


def check_types(graph: Graph, outer: dict[str, Tensor] | None = None) -> None:
    """Run every shape rule and compare it with the declared types. Raises EdgerunError at the first difference."""
    from edgerun.ops.registry import TensorType, infer, spec, tensor_type

    if outer is None:
        graph.check()
    scope = {**(outer or {}), **graph.tensors}
    for node in graph.nodes:
        row = spec(node.op)
        for sub in node.subgraphs():
            _check_names(sub)
            check_types(sub, scope)
        types: list[TensorType | None] = [tensor_type(scope[i]) if i else None for i in node.inputs]
        try:
            results = infer(node.op, types, node.attrs, node.name)
        except EdgerunError:
            raise
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, AssertionError) as e:
            raise BundleError(f"the attributes of node {node.name!r} ({row.name}) are malformed") from e
        for name, result in zip(node.outputs, results, strict=False):
            if name:
                _compare(graph.tensors[name], result.dtype, result.shape, node)


def _compare(declared: Tensor, dtype: DType, shape: Shape | None, node: Node) -> None:
    """Numbers must agree; symbolic or unknown dimensions may differ in form."""
    if declared.dtype is not dtype:
        raise BundleError(f"{declared} of node {node.name!r} should be {dtype.short}")
    if declared.shape is None or shape is None:
        return
    if len(declared.shape) != len(shape):
        raise BundleError(f"{declared} of node {node.name!r} should have rank {len(shape)}")
    for a, b in zip(declared.shape, shape, strict=True):
        if isinstance(a, int) and isinstance(b, int) and a != b:
            raise BundleError(f"{declared} of node {node.name!r} should have the dimension {b} instead of {a}")
