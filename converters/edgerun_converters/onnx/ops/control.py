"""If, Loop, Scan and SequenceMap: importing branches and bodies with the types they will really see."""

from __future__ import annotations

from collections.abc import Sequence

from edgerun.dims import Dim, DimLike, free_symbols, maximum
from edgerun.dtypes import DType
from edgerun.errors import ShapeError, UnsupportedError
from edgerun.graph import Graph, Node
from edgerun.ops.control import as_optional, output_types
from edgerun.ops.registry import TensorType, fresh_symbol, normalize_axis, require
from edgerun.ops.sequence import common_shape, element
from edgerun_converters.onnx.builder import Builder, OnnxNode, Poisoned, lowering

MAX_ROUNDS = 8
"""Every round forgets at least one dimension of a carried value, or a rank; more means that the body never settles."""

_SCALAR_I64 = TensorType(DType.I64, ())
_SCALAR_BOOL = TensorType(DType.BOOL, ())


@lowering("If")
def if_(b: Builder, n: OnnxNode) -> None:
    """A known condition leaves only the branch that is taken, in place of the node."""
    condition = b.static(n.input(0))
    if condition is not None:
        require(condition.size == 1, f"the condition has the shape {condition.shape}, not one element")
        taken = n.attr("then_branch" if bool(condition.reshape(())) else "else_branch")
        n.bind(*n.model.inline(b, taken))
        return
    then_branch, then_error = _branch(b, n, "then")
    else_branch, else_error = _branch(b, n, "else")
    if then_branch is None and else_branch is None:
        raise then_error or else_error or ShapeError("neither branch fits the shapes")
    if then_branch is None:
        assert else_branch is not None
        then_branch = _failing_branch(b, output_types(else_branch), str(then_error), "then")
    if else_branch is None:
        else_branch = _failing_branch(b, output_types(then_branch), str(else_error), "else")
    then_types, else_types = output_types(then_branch), output_types(else_branch)
    if any(_rank(t) != _rank(e) for t, e in zip(then_types, else_types, strict=False)):
        message = "this branch gives a rank for which the rest of the model was not imported (bind the input shapes)"
        chosen = n.model.choice(n.name)
        if chosen == "then":
            else_branch = _failing_branch(b, then_types, message, "else")
        elif chosen == "else":
            then_branch = _failing_branch(b, else_types, message, "then")
    n.bind(*b.emit("if", [n.input(0)], then_branch=then_branch, else_branch=else_branch))


def _branch(b: Builder, n: OnnxNode, label: str) -> tuple[Graph | None, ShapeError | None]:
    """A branch, or the shape contradiction that means it can never run with these inputs.

    Models choose between variants for different input shapes this way. Other problems stay on record, as do those that
    may come from a rank that is only unknown until a choice is made (see `_search` of the importer).
    """
    mark = n.model.mark()
    choices = len(n.model.open_choices)
    try:
        graph = n.model.subgraph(b, n.attr(f"{label}_branch"), [], label)
    except ShapeError as e:
        return None, e
    except Poisoned:
        graph = None
    found = n.model.problems_since(mark)
    if len(n.model.open_choices) > choices and found:
        raise Poisoned
    if found and all(isinstance(e, ShapeError) for e in found):
        n.model.forget(mark)
        return None, found[0]
    if graph is None:
        raise Poisoned
    return graph, None


def _rank(t: TensorType) -> int | None:
    return None if t.shape is None else len(t.shape)


def _failing_branch(b: Builder, types: Sequence[TensorType], message: str, label: str) -> Graph:
    """A branch that fails with `message` when it is taken."""
    graph = Graph(label)
    name = f"{b.node_name}/{label}/fail"
    outputs = []
    for i, known in enumerate(types):
        graph.add_tensor(f"{name}.{i}", known.dtype, known.shape, kind=known.kind)
        outputs.append(f"{name}.{i}")
    attrs = {"message": message, "types": tuple((t.dtype, t.shape) for t in types)}
    graph.nodes.append(Node("fail", [], outputs, attrs, name))
    graph.outputs = list(outputs)
    return graph


@lowering("Loop")
def loop(b: Builder, n: OnnxNode) -> None:
    """Trip count and start condition may both be absent. Scanned outputs whose trip count is known get their size."""
    trips, condition, carried = n.input(0), n.input(1), n.inputs[2:]
    require(all(carried), "a carried value has no start value")
    types = [b.type(c) for c in carried]
    fixed = [_SCALAR_I64, _SCALAR_BOOL]
    body, types = _settle(b, n, n.attr("body"), fixed, types, skip=1)
    outputs = b.emit("loop", [trips, condition, *carried], body=body)
    _note_finals(b, outputs, types)
    length = _trip_count(b, n.input(0), n.input(1), body)
    for name, known in zip(outputs[len(carried) :], output_types(body)[1 + len(carried) :], strict=True):
        _note_stacked(b, name, known, length)
    n.bind(*outputs)


@lowering("Scan")
def scan(b: Builder, n: OnnxNode) -> None:
    if n.opset < 9:
        _scan_8(b, n)
        return
    count = n.attr("num_scan_inputs")
    require(0 < count <= len(n.inputs), f"num_scan_inputs is {count} with {len(n.inputs)} inputs")
    states, sources = n.inputs[: len(n.inputs) - count], n.inputs[len(n.inputs) - count :]
    axes = n.attr("scan_input_axes", (0,) * count)
    axes = tuple(b.axis(s, a) for s, a in zip(sources, axes, strict=True))
    slices = [_slice_type(b.type(s), a) for s, a in zip(sources, axes, strict=True)]
    body, types = _settle(b, n, n.attr("body"), [], [b.type(s) for s in states], skip=0, extra=slices)
    scanned = len(body.outputs) - len(states)
    outputs = b.emit(
        "scan",
        [*states, *sources],
        body=body,
        num_scan_inputs=count,
        input_axes=axes,
        input_reverse=tuple(bool(d) for d in n.attr("scan_input_directions", (0,) * count)),
        output_axes=tuple(n.attr("scan_output_axes", (0,) * scanned)),
        output_reverse=tuple(bool(d) for d in n.attr("scan_output_directions", (0,) * scanned)),
    )
    _note_finals(b, outputs, types)
    n.bind(*outputs)


def _scan_8(b: Builder, n: OnnxNode) -> None:
    """Scan of opset 8: every input has a batch axis in front. It is a scan over the batch whose body is the scan."""
    if n.input(0):
        raise UnsupportedError(
            "Scan of opset 8 with sequence_lens is not supported", hint="export with opset 9 or newer"
        )
    inputs = n.inputs[1:]
    count = n.attr("num_scan_inputs")
    require(0 < count <= len(inputs), f"num_scan_inputs is {count} with {len(inputs)} inputs")
    reverse = tuple(bool(d) for d in n.attr("directions", (0,) * count))
    split = len(inputs) - count
    rows = [_slice_type(b.type(i), 0) for i in inputs]
    slices = [_slice_type(t, 0) for t in rows[split:]]
    body, _ = _settle(b, n, n.attr("body"), [], rows[:split], skip=0, extra=slices)
    scanned = len(body.outputs) - split
    prefix = f"{b.node_name}/batch/"
    outer = Builder(Graph("batch"), outer=b, prefix=prefix)
    outer.node_name = prefix + "scan"
    for source, row in zip(inputs, rows, strict=True):
        name = outer.fresh(prefix + source)
        outer.graph.inputs.append(name)
        outer.graph.add_tensor(name, row.dtype, row.shape, kind=row.kind)
        outer.types[name] = row
    outer.graph.outputs = outer.emit(
        "scan",
        outer.graph.inputs,
        body=body,
        num_scan_inputs=count,
        input_axes=(0,) * count,
        input_reverse=reverse,
        output_axes=(0,) * scanned,
        output_reverse=(False,) * scanned,
    )
    total = len(outer.graph.outputs)
    n.bind(
        *b.emit(
            "scan",
            inputs,
            body=outer.graph,
            num_scan_inputs=len(inputs),
            input_axes=(0,) * len(inputs),
            input_reverse=(False,) * len(inputs),
            output_axes=(0,) * total,
            output_reverse=(False,) * total,
        )
    )


@lowering("SequenceMap")
def sequence_map(b: Builder, n: OnnxNode) -> None:
    types = [b.type(i) for i in n.inputs]
    body = n.model.subgraph(b, n.attr("body"), [element(t) if t.kind == "sequence" else t for t in types], "body")
    n.bind(*b.emit("sequence_map", n.inputs, body=body))


def _slice_type(t: TensorType, axis: int) -> TensorType:
    """One slice of a scanned input: without the axis, and without its elements."""
    if t.shape is None:
        return TensorType(t.dtype, None)
    axis = normalize_axis(axis, len(t.shape))
    return TensorType(t.dtype, t.shape[:axis] + t.shape[axis + 1 :])


def _settle(
    b: Builder,
    n: OnnxNode,
    body: object,
    fixed: list[TensorType],
    carried: list[TensorType],
    *,
    skip: int,
    extra: Sequence[TensorType] = (),
) -> tuple[Graph, list[TensorType]]:
    """Import a body until the types of its carried inputs allow those of its outputs.

    The body's inputs are `fixed`, carried, `extra`; its carried outputs start after `skip`. A size that changes from
    one iteration to the next becomes a symbol of the body, a rank that changes becomes unknown. Raises ShapeError when
    a dtype changes.
    """
    types = [TensorType(t.dtype, t.shape, kind=t.kind) for t in carried]
    for _ in range(MAX_ROUNDS):
        mark = n.model.mark()
        graph = n.model.subgraph(b, body, [*fixed, *types, *extra], "body")
        results = output_types(graph)[skip : skip + len(types)]
        require(len(results) == len(types), f"the body has too few outputs for {len(types)} carried values")
        wider = [_widen(a, r, i) for i, (a, r) in enumerate(zip(types, results, strict=True))]
        if wider == types:
            return graph, types
        types = wider
        n.model.forget(mark)  # problems that this round's types caused: the next round judges anew
    raise ShapeError("the shapes of the carried values never settle")


def _widen(given: TensorType, result: TensorType, index: int) -> TensorType:
    """`given`, made as general as needed to hold `result` too."""
    given, result = as_optional(given, result), as_optional(result, given)
    require(
        given.dtype is result.dtype and given.kind == result.kind,
        f"carried value {index} is a {given.kind} of {given.dtype.short} at first, then a {result.kind} of "
        f"{result.dtype.short}",
    )
    if given.shape is None:
        return given
    if given.kind != "tensor":
        shape = common_shape(given.shape, result.shape)
        return given if shape == given.shape else TensorType(given.dtype, shape, kind=given.kind)
    if result.shape is None or len(result.shape) != len(given.shape):
        return TensorType(given.dtype, None)
    dims = tuple(
        a if a == r or _is_carried(a) else fresh_symbol("carried")
        for a, r in zip(given.shape, result.shape, strict=True)
    )
    return given if dims == given.shape else TensorType(given.dtype, dims)


def _is_carried(dim: int | Dim) -> bool:
    return isinstance(dim, Dim) and str(dim).startswith("carried@")


def _trip_count(b: Builder, trips: str, condition: str, body: Graph) -> DimLike | None:
    """How often a Loop runs, when the trip count is known and the condition cannot end it early."""
    start = b.static(condition)
    end = body.constant(body.outputs[0])
    forever = body.outputs[0] == body.inputs[1] or (end is not None and bool(end.all()))
    if not forever or (condition and (start is None or not start.all())):
        return None
    known = b.known(trips) if trips else None
    return maximum(known[0], 0) if known is not None and len(known) == 1 else None


def _note_stacked(b: Builder, name: str, row: TensorType, length: DimLike | None) -> None:
    """A scanned output along axis 0: its length, and those sizes of its rows that follow from the model's inputs."""
    root = b
    while root.outer is not None:
        root = root.outer
    known = root.graph.free_symbols()
    shape = b.type(name).shape
    if shape is None or row.shape is None:
        return
    dims = [new if free_symbols(new) <= known else old for old, new in zip(shape[1:], row.shape, strict=True)]
    b.retype(name, TensorType(row.dtype, (shape[0] if length is None else length, *dims)))


def _note_finals(b: Builder, outputs: Sequence[str], types: Sequence[TensorType]) -> None:
    """A carried value leaves with a size of its own wherever the body may change it."""
    for name, known in zip(outputs, types, strict=False):
        if known.kind == "tensor" and known.shape is not None:
            dims = tuple(fresh_symbol("final") if _is_carried(d) else d for d in known.shape)
            b.retype(name, TensorType(known.dtype, dims))
