"""The importer: an ONNX model, of any opset from 6 on, becomes a Graph of core ops.

`import_model` reads and checks the file, then walks the nodes in order and lets each operator's lowering (see
`builder`) append core ops. Operators without a lowering are replaced by their function body, the model's own or the
standard's. Problems are collected over the whole model and raised together.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from edgerun import __version__
from edgerun.dims import Dim, DimLike, shape_text
from edgerun.dtypes import from_numpy
from edgerun.errors import EdgerunError, ImportFailure, ShapeError, UnsupportedError
from edgerun.graph import Graph, Node
from edgerun.ops.registry import TensorType
from edgerun_converters.onnx import attributes as attributes_of
from edgerun_converters.onnx import functions, legacy
from edgerun_converters.onnx.binding import DimOption, bind
from edgerun_converters.onnx.builder import Builder, OnnxNode, Poisoned
from edgerun_converters.onnx.builder import find as find_lowering
from edgerun_converters.onnx.load import Source, check_opset, clean_domain, read
from edgerun_converters.onnx.scope import Scope, in_order
from edgerun_converters.onnx.tensors import decode, decode_sparse, tensor_dtype
from edgerun_converters.onnx.types import Symbols, declared_shape, from_type

MAX_NODES = 500_000
"""Most nodes imported, function bodies counted per call: nested functions can multiply without bound."""
MAX_SHOWN = 20
"""Problems listed in a message; `UnsupportedError.problems` has all."""
MAX_ATTEMPTS = 64
"""Imports tried to find out which branches fit together."""


def import_model(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    *,
    shapes: Mapping[str, Sequence[DimLike]] | None = None,
    dims: Mapping[str, DimOption] | None = None,
) -> Graph:
    """Import an ONNX model.

    `shapes` gives input shapes by input name, `dims` gives symbolic dimensions by name: a number binds the dimension,
    (low, high) bounds it. Raises InputOutputError when the file cannot be read, ImportFailure when it is damaged or
    contradicts itself, UnsupportedError or ShapeError listing every node that cannot be imported, UsageError for
    unknown names in `shapes` and `dims`.
    """
    source = read(model)
    try:
        return _search(lambda choices: _Importer(source, shapes or {}, dims or {}, choices))
    except (UnicodeDecodeError, RecursionError, OverflowError, MemoryError) as e:
        raise ImportFailure(f"{source.origin} is malformed: {type(e).__name__}: {e}") from e


def _search(importer: Callable[[Mapping[str, str]], _Importer]) -> Graph:
    """Import, and where that fails because the branches of an If differ in rank, try what each of them leads to.

    Exporters write `squeeze` as an If on the size: which branch runs is only known with the shapes, but usually only
    one leads to shapes that the rest of the model can use. The other branch then fails when it is taken.
    """
    attempts = 0

    def visit(choices: dict[str, str]) -> Graph:
        nonlocal attempts
        attempts += 1
        attempt = importer(choices)
        try:
            return attempt.run()
        except (ShapeError, UnsupportedError):
            if not attempt.open_choices or attempts >= MAX_ATTEMPTS:
                raise
            name = attempt.open_choices[0]
            for choice in ("then", "else"):
                with contextlib.suppress(ShapeError, UnsupportedError):
                    return visit({**choices, name: choice})
            raise

    return visit({})


@dataclass(frozen=True)
class OnnxGraph:
    """A sub-graph attribute together with the scope whose names it may read."""

    proto: onnx.GraphProto
    scope: Scope


class _Enclosing:
    """The names in use in the graphs around a sub-graph: one of its own that is equal would hide what it captures."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def __contains__(self, name: object) -> bool:
        builder: Builder | None = self.builder
        while builder is not None:
            if name in builder.graph.tensors:
                return True
            builder = builder.outer
        return False


class _Importer:
    """One import. Lowerings of control flow find it as `OnnxNode.model` and call `subgraph` and `inline`."""

    def __init__(
        self,
        source: Source,
        shapes: Mapping[str, Sequence[DimLike]],
        dims: Mapping[str, DimOption],
        choices: Mapping[str, str],
    ) -> None:
        self.source = source
        self.choices = choices
        """If node -> the branch ("then" or "else") that the shapes are taken from."""
        self.open_choices: list[str] = []
        """If nodes whose branches differ in rank and that have no choice."""
        self.shapes = shapes
        self.dims = dims
        self.symbols = Symbols()
        self.functions = functions.of_model(source.model)
        self.problems: dict[str, EdgerunError] = {}
        self.notes: list[str] = []
        self.count = 0

    def run(self) -> Graph:
        proto = self.source.model.graph
        reserved = {v.name for v in proto.input} | {t.name for t in proto.initializer}
        reserved |= {s.values.name for s in proto.sparse_initializer} | {o for n in proto.node for o in n.output}
        graph = Graph(proto.name or "graph", meta=self._provenance())
        scope = Scope(Builder(graph, reserved=reserved), self.source.opsets)
        try:
            self._initializers(scope, proto)
            self._inputs(scope, proto)
            self._nodes(scope, proto, declared={v.name: v for v in [*proto.value_info, *proto.output]})
            self._raise_problems()
            self._outputs(scope, proto)
        except ImportFailure as e:
            raise ImportFailure(f"{self.source.origin}: {e.message}", hint=e.hint) from e
        graph.prune()
        graph.meta["notes"] = self.notes
        graph.check()
        return graph

    def _provenance(self) -> dict[str, Any]:
        model = self.source.model
        return {
            "source": self.source.origin,
            "sha256": self.source.sha256,
            "ir_version": int(model.ir_version),
            "opset_imports": {domain or "ai.onnx": version for domain, version in self.source.opsets.items()},
            "producer": f"{model.producer_name} {model.producer_version}".strip(),
            "converter": f"edgerun {__version__}",
        }

    # -- constants, inputs, outputs
    def _initializers(self, scope: Scope, proto: onnx.GraphProto) -> None:
        for tensor in proto.initializer:
            data = decode(tensor, self.source.external, f"initializer {tensor.name!r}")
            self._constant(scope, tensor.name, data)
        for sparse in proto.sparse_initializer:
            data = decode_sparse(sparse, self.source.external, f"sparse initializer {sparse.values.name!r}")
            self._constant(scope, sparse.values.name, data)

    def _constant(self, scope: Scope, name: str, data: Any) -> None:
        """A weight that keeps its source name."""
        if not name:
            raise ImportFailure("an initializer has no name")
        scope.define(name, self._add_weight(scope, name, data))

    @staticmethod
    def _add_weight(scope: Scope, name: str, data: np.ndarray) -> str:
        b = scope.builder
        tensor = scope.prefix + name
        if tensor in b.graph.tensors:
            tensor = b.fresh(tensor)
        dtype, shape = from_numpy(data.dtype), tuple(data.shape)
        b.graph.add_tensor(tensor, dtype, shape, data)
        b.types[tensor] = TensorType(dtype, shape, data)
        return tensor

    def _inputs(self, scope: Scope, proto: onnx.GraphProto) -> None:
        types: dict[str, TensorType] = {}
        for value in proto.input:
            if value.name in scope.names:
                if self.source.model.ir_version >= 4:
                    self.notes.append(f"input {value.name!r} has a default; it is taken as a constant")
                continue
            if not value.name or value.name in types:
                raise ImportFailure(f"the input name {value.name!r} is empty or used twice")
            types[value.name] = from_type(value.type, self.symbols, value.name, f"input {value.name!r}")
        types, bounds = bind(types, self.shapes, self.dims, self.symbols)
        graph = scope.builder.graph
        for name, known in types.items():
            scope.define(name, name)
            graph.inputs.append(name)
            graph.add_tensor(name, known.dtype, known.shape, kind=known.kind)
            scope.builder.types[name] = known
        graph.symbols.update({k: v for k, v in bounds.items() if k in graph.free_symbols()})

    def _outputs(self, scope: Scope, proto: onnx.GraphProto) -> None:
        """Graph outputs carry their source names; a copy is made of inputs, weights and repeated values."""
        b = scope.builder
        b.node_name = ""
        for value in proto.output:
            tensor = scope.lookup(value.name)
            assert tensor is not None, "problems are raised before"
            if value.name in b.graph.outputs:
                raise ImportFailure(f"the output {value.name!r} is listed twice")
            made = any(tensor in n.outputs for n in b.graph.nodes)
            if tensor != value.name and made and tensor not in b.graph.outputs and tensor not in _names(proto.output):
                _rename(b, tensor, value.name, b.graph.nodes)
                scope.names = {k: value.name if v == tensor else v for k, v in scope.names.items()}
            elif tensor != value.name or not made:
                self._free_name(b, value.name, scope)
                copy = self.copy(b, scope.lookup(value.name) or "")
                _rename(b, copy, value.name, b.graph.nodes[-1:])
            b.graph.outputs.append(value.name)

    def _free_name(self, b: Builder, name: str, scope: Scope) -> None:
        """An output that is itself an input or weight needs its name for the copy, so a weight gives its name up."""
        if name in b.graph.inputs:
            raise UnsupportedError(f"output {name!r} is also an input", hint="rename one of them")
        tensor = b.graph.tensors.pop(name, None)
        if tensor is None:
            return
        tensor.name = b.graph.fresh(f"{name}.value")
        b.graph.tensors[tensor.name] = tensor
        b.types[tensor.name] = b.types.pop(name)
        for node in b.graph.nodes:
            node.inputs = [tensor.name if i == name else i for i in node.inputs]
            for sub in node.subgraphs():
                if name not in sub.tensors:
                    sub.replace_uses(name, tensor.name)
        scope.names = {k: tensor.name if v == name else v for k, v in scope.names.items()}

    @staticmethod
    def copy(b: Builder, tensor: str) -> str:
        """The same value under another name."""
        known = b.type(tensor)
        if known.kind != "tensor" or known.dtype.bits == 0:
            return b.one("copy", [tensor])
        if known.shape is not None:
            return b.one("reshape", [tensor], to=known.shape)
        return b.elementwise((("cast", known.dtype, 0),), [tensor])

    # -- nodes
    def _nodes(
        self, scope: Scope, proto: onnx.GraphProto, declared: Mapping[str, onnx.ValueInfoProto] | None = None
    ) -> None:
        for index, node in enumerate(in_order(proto.node, f"graph {proto.name!r}")):
            self._node(scope, node, index, declared or {})

    def _node(
        self, scope: Scope, proto: onnx.NodeProto, index: int, declared: Mapping[str, onnx.ValueInfoProto]
    ) -> None:
        self.count += 1
        if self.count > MAX_NODES:
            raise ImportFailure(f"the model has more than {MAX_NODES} nodes once its functions are expanded")
        name = scope.prefix + (proto.name or f"{proto.op_type}_{index}")
        b = scope.builder
        b.node_name = name
        start = len(b.graph.nodes)
        try:
            outputs = self._lower(scope, proto, name)
        except Poisoned:
            outputs = [None] * len(proto.output)
        except ImportFailure as e:
            raise ImportFailure(f"node {name!r} ({proto.op_type}): {e.message}", hint=e.hint) from e
        except (UnsupportedError, ShapeError) as e:
            self._problem(name, proto, e)
            outputs = [None] * len(proto.output)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, AssertionError) as e:
            error = ShapeError(f"its attributes or inputs are malformed ({type(e).__name__}: {e})")
            error.__cause__ = e
            self._problem(name, proto, error)
            outputs = [None] * len(proto.output)
        b.node_name = name
        fresh = {o for n in b.graph.nodes[start:] for o in n.outputs}
        for wanted, tensor in zip(proto.output, outputs, strict=False):
            if not wanted:
                continue
            if tensor is not None and tensor in fresh and self._is_free(b, scope.prefix + wanted):
                _rename(b, tensor, scope.prefix + wanted, b.graph.nodes[start:])
                outputs = [scope.prefix + wanted if o == tensor else o for o in outputs]
                tensor = scope.prefix + wanted
                fresh.discard(tensor)
            scope.define(wanted, tensor)
            if tensor is not None and wanted in declared:
                self._compare(b, tensor, declared[wanted], proto, name)

    @staticmethod
    def _is_free(b: Builder, name: str) -> bool:
        """Whether a tensor may be called `name`: in the main graph that is what the reserved names are for."""
        return name not in b.graph.tensors and (b.outer is None or name not in b.reserved)

    def _lower(self, scope: Scope, proto: onnx.NodeProto, name: str) -> list[str | None]:
        domain = clean_domain(proto.domain)
        inputs = [scope.lookup(i) if i else "" for i in proto.input]
        given = attributes_of.resolve(proto.attribute, scope.attributes)
        opset = scope.opsets.get(domain)
        if opset is None:
            if domain == "":
                raise ImportFailure(
                    "the model does not say which ai.onnx opset it uses", hint="add the opset_import entry"
                )
            opset = 1
        local = self.functions.get((domain, proto.op_type, proto.overload))
        lowering = None if local is not None else find_lowering(domain, proto.op_type)
        if any(i is None for i in inputs):
            if lowering is None and local is None and not functions.is_standard(domain, proto.op_type, opset):
                raise self._unknown(domain, proto.op_type, opset)
            raise Poisoned
        known = [i for i in inputs if i is not None]
        if domain == "" and proto.op_type == "Constant":
            return [self._constant_node(scope, proto, given, name)]
        if lowering is None:
            return self._call(scope, proto, given, known, opset, local, name)
        node = self._onnx_node(scope, proto, given, known, opset, name)
        legacy.modernize(scope.builder, node)
        try:
            lowering(scope.builder, node)
        except UnsupportedError:
            expanded = self._expand_instead(scope, proto, given, known, opset, name)
            if expanded is None:
                raise
            return expanded
        outputs: list[str | None] = [*node.outputs]
        for i, output in enumerate(proto.output):
            if output and (i >= len(outputs) or not outputs[i]):
                raise UnsupportedError(f"output {i} ({output!r}) is not supported")
        return outputs

    def _onnx_node(
        self,
        scope: Scope,
        proto: onnx.NodeProto,
        given: Mapping[str, onnx.AttributeProto],
        inputs: list[str],
        opset: int,
        name: str,
    ) -> OnnxNode:
        values: dict[str, Any] = {}
        for key, attribute in given.items():
            value = attributes_of.value(attribute, self.source.external, f"node {name!r}")
            if isinstance(value, onnx.GraphProto):
                value = OnnxGraph(value, scope)
            elif isinstance(value, tuple) and value and isinstance(value[0], onnx.GraphProto):
                value = tuple(OnnxGraph(g, scope) for g in value)
            values[key] = value
        return OnnxNode(
            proto.op_type,
            clean_domain(proto.domain),
            opset,
            inputs,
            len(proto.output),
            values,
            name,
            output_used=[bool(o) for o in proto.output],
            model=self,
        )

    def _constant_node(
        self, scope: Scope, proto: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto], name: str
    ) -> str:
        values = {k: attributes_of.value(a, self.source.external, f"node {name!r}") for k, a in given.items()}
        if len(proto.output) != 1:
            raise ShapeError("a Constant has exactly one output")
        return self._add_weight(scope, proto.output[0] or name, attributes_of.constant(values))

    # -- functions
    def _call(
        self,
        scope: Scope,
        proto: onnx.NodeProto,
        given: Mapping[str, onnx.AttributeProto],
        inputs: list[str],
        opset: int,
        function: onnx.FunctionProto | None,
        name: str,
    ) -> list[str | None]:
        """Import the body of a function in place of a node that calls it."""
        domain = clean_domain(proto.domain)
        if function is None:
            plain = onnx.NodeProto()
            plain.CopyFrom(proto)
            del plain.attribute[:]
            plain.attribute.extend(given.values())
            types = [scope.builder.type(i) if i else None for i in inputs]
            function = functions.of_standard(plain, domain, opset, types)
        if function is None:
            raise self._unknown(domain, proto.op_type, opset)
        scope.check_depth()
        opsets = functions.opsets(function, scope.opsets)
        check_opset(opsets.get(""), f"function {function.name!r}")
        body = Scope(
            scope.builder,
            opsets,
            prefix=f"{name}/",
            attributes=functions.call_attributes(function, given),
            depth=scope.depth + 1,
        )
        if len(inputs) > len(function.input) or len(proto.output) > len(function.output):
            raise ShapeError(f"function {function.name!r} is called with too many inputs or outputs")
        for i, formal in enumerate(function.input):
            body.define(formal, inputs[i] if i < len(inputs) else "")
        for index, node in enumerate(in_order(function.node, f"function {function.name!r}")):
            self._node(body, node, index, {})
        return [body.lookup(o) for o in function.output[: len(proto.output)]]

    def _expand_instead(
        self,
        scope: Scope,
        proto: onnx.NodeProto,
        given: Mapping[str, onnx.AttributeProto],
        inputs: list[str],
        opset: int,
        name: str,
    ) -> list[str | None] | None:
        """The standard's body for what a lowering does not cover, or None when there is none or it fails too."""
        if not functions.is_standard(clean_domain(proto.domain), proto.op_type, opset):
            return None
        mark = self.mark()
        try:
            outputs = self._call(scope, proto, given, inputs, opset, None, name)
        except (UnsupportedError, ShapeError, Poisoned):
            outputs = [None]
        if None in outputs or len(self.problems) > mark:
            self.forget(mark)
            return None
        return outputs

    def _unknown(self, domain: str, op_type: str, opset: int) -> UnsupportedError:
        return UnsupportedError(f"operator {domain or 'ai.onnx'}::{op_type} (opset {opset}) is not supported")

    # -- sub-graphs, for the lowerings of control flow
    def subgraph(self, b: Builder, graph: OnnxGraph, inputs: Sequence[TensorType], label: str) -> Graph:
        """Import a body or branch as a Graph of its own, given the types of its inputs.

        Its outputs are tensors of that Graph, never captured ones. Raises Poisoned when an output cannot be imported
        (the reason is on record), ImportFailure when the count of inputs is wrong.
        """
        proto = graph.proto
        formal = [v.name for v in proto.input if v.name not in {t.name for t in proto.initializer}]
        if len(formal) != len(inputs):
            raise ImportFailure(f"sub-graph {proto.name!r} takes {len(formal)} inputs but is given {len(inputs)}")
        prefix = f"{b.node_name}/{label}/"
        inner = Builder(Graph(proto.name or label), outer=b, prefix=prefix, reserved=_Enclosing(b))
        scope = graph.scope.inner(inner, prefix)
        self._initializers(scope, proto)
        for name, known in zip(formal, inputs, strict=True):
            tensor = inner.fresh(prefix + name)
            scope.define(name, tensor)
            inner.graph.inputs.append(tensor)
            inner.graph.add_tensor(tensor, known.dtype, known.shape, kind=known.kind)
            inner.types[tensor] = known
        saved = b.node_name
        self._nodes(scope, proto)
        b.node_name = saved
        inner.node_name = prefix + "output"
        for value in proto.output:
            tensor = scope.lookup(value.name) or ""
            if not tensor:
                raise Poisoned
            if tensor not in inner.graph.tensors:
                tensor = self.copy(inner, tensor)
            inner.graph.outputs.append(tensor)
        inner.graph.prune()
        return inner.graph

    def inline(self, b: Builder, graph: OnnxGraph, inputs: Sequence[str] = ()) -> list[str]:
        """Import a branch or body into the graph under construction; returns its output tensors. Raises Poisoned."""
        proto = graph.proto
        saved = b.node_name
        scope = graph.scope.inner(b, f"{b.node_name}/")
        self._initializers(scope, proto)
        formal = [v.name for v in proto.input if v.name not in scope.names]
        if len(formal) != len(inputs):
            raise ImportFailure(f"sub-graph {proto.name!r} takes {len(formal)} inputs but is given {len(inputs)}")
        for name, tensor in zip(formal, inputs, strict=True):
            scope.define(name, tensor)
        self._nodes(scope, proto)
        b.node_name = saved
        outputs = [scope.lookup(v.name) for v in proto.output]
        if any(not o for o in outputs):
            raise Poisoned
        return [o for o in outputs if o]

    # -- declared types
    def _compare(self, b: Builder, tensor: str, value: onnx.ValueInfoProto, proto: onnx.NodeProto, name: str) -> None:
        """Let the file's declaration refine what is unknown, and report where it contradicts what was inferred."""
        known = b.type(tensor)
        if known.kind != "tensor" or value.type.WhichOneof("value") != "tensor_type":
            return
        number = value.type.tensor_type.elem_type
        if number and number != known.dtype.onnx:
            declared = tensor_dtype(number, f"{value.name!r}").short
            self._problem(name, proto, ShapeError(f"{value.name!r} is declared {declared} but is {known.dtype.short}"))
            return
        shape = declared_shape(value.type)
        if shape is None:
            return
        if known.shape is None:
            dims = [self.symbols.fresh(f"{value.name}_{i}") if d is None else d for i, d in enumerate(shape)]
            self._retype(b, tensor, TensorType(known.dtype, tuple(dims)))
            return
        text = shape_text("?" if d is None else d for d in shape)  # type: ignore[misc]
        clash = len(shape) != len(known.shape) or any(
            isinstance(a, int) and d is not None and a != d for a, d in zip(known.shape, shape, strict=True)
        )
        if clash:
            message = f"{value.name!r} is declared {text} but its shape is {shape_text(known.shape)}"
            self._problem(name, proto, ShapeError(f"{message} (from {self._path(b, tensor)})"))
            return
        free = b.graph.free_symbols()
        dims = [
            d if d is not None and isinstance(a, Dim) and a.is_symbol and str(a) not in free else a
            for a, d in zip(known.shape, shape, strict=True)
        ]
        if tuple(dims) != known.shape:
            self._retype(b, tensor, TensorType(known.dtype, tuple(dims), known.value))

    def _retype(self, b: Builder, tensor: str, known: TensorType) -> None:
        if tensor in b.graph.tensors and b.graph.tensors[tensor].data is None:
            b.retype(tensor, known)

    def _path(self, b: Builder, tensor: str) -> str:
        """The last few nodes that lead to a tensor, with their shapes."""
        made = b.graph.producers()
        steps: list[str] = []
        while tensor and len(steps) < 5:
            steps.append(str(b.graph.tensors.get(tensor, tensor)))
            node = made.get(tensor)
            tensor = next((i for i in node.inputs if b.graph.constant(i) is None), "") if node is not None else ""
        return " <- ".join(steps)

    def choice(self, name: str) -> str | None:
        """Which branch of an If node gives the ranks: "then", "else", or None when that is open (and noted as such)."""
        if name not in self.choices:
            self.open_choices.append(name)
            return None
        chosen = self.choices[name]
        note = f"node {name!r} is taken to run its {chosen} branch: the other has a rank that the rest cannot use"
        if note not in self.notes:
            self.notes.append(note)
        return chosen

    # -- problems
    def mark(self) -> int:
        """A point in the record of problems that `forget` can return to."""
        return len(self.problems)

    def problems_since(self, mark: int) -> list[EdgerunError]:
        """The problems recorded since `mark`."""
        return list(self.problems.values())[mark:]

    def forget(self, mark: int) -> None:
        """Drop the problems recorded since `mark`, of an attempt that is made again with other types."""
        self.problems = dict(list(self.problems.items())[:mark])

    def _problem(self, name: str, proto: onnx.NodeProto, error: EdgerunError) -> None:
        text = str(error)
        if not text.startswith(f"node {name!r}"):
            text = f"node {name!r} ({proto.op_type}): {text}"
        self.problems.setdefault(text, error)

    def _raise_problems(self) -> None:
        if not self.problems:
            return
        problems = list(self.problems)
        shown = problems[:MAX_SHOWN]
        if len(problems) > len(shown):
            shown.append(f"and {len(problems) - len(shown)} more")
        lead = f"{self.source.origin} cannot be imported" + (": " if len(problems) == 1 else ":\n  ")
        message = lead + "\n  ".join(shown)
        cause = next(iter(self.problems.values()))
        if any(isinstance(e, UnsupportedError) for e in self.problems.values()):
            raise UnsupportedError(message, problems=problems) from cause
        raise ShapeError(message) from cause


def _names(values: Sequence[onnx.ValueInfoProto]) -> set[str]:
    return {v.name for v in values}


def _rename(b: Builder, name: str, to: str, nodes: Sequence[Node]) -> None:
    """Give a computed tensor another name; only `nodes` can mention it."""
    if name == to:
        return
    tensor = b.graph.tensors.pop(name)
    tensor.name = to
    b.graph.tensors[to] = tensor
    b.types[to] = b.types.pop(name)
    for node in nodes:
        node.inputs = [to if i == name else i for i in node.inputs]
        node.outputs = [to if o == name else o for o in node.outputs]
        for sub in node.subgraphs():
            if name not in sub.tensors:
                sub.replace_uses(name, to)


__all__ = ["OnnxGraph", "Poisoned", "import_model"]
