"""Control flow in a flat plan: branches are guarded and passed over, loops of a known largest length are unrolled.

A branch becomes `skip_unless(condition)` and its nodes under names of their own; `select` then takes the result of the
branch that ran. So every tensor still has one writer, and the memory planner needs to know nothing about branches: a
run executes some of the nodes in the order of the plan, and what is alive between them is a part of what it assumes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from edgerun.backends.native.lowering import SKIP, Lowering, NativeTensor, lowers
from edgerun.backends.native.ops.movement import view
from edgerun.dims import product, shape_text
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Graph, Node, Tensor
from edgerun.ops.control import scan_length
from edgerun.ops.registry import TensorType, normalize_axis

MAX_UNROLLED = 2048
"""A loop is unrolled into at most so many nodes: the time to plan memory grows with their square."""


@lowers("if")
def if_(node: Node, cx: Lowering) -> None:
    """Refuses branches whose results differ in shape or type. A branch that fails ends the run when it is taken."""
    condition = node.inputs[0]
    then_branch, else_branch = node.attrs["then_branch"], node.attrs["else_branch"]
    if product(cx.shape(condition)) != 1:
        raise UnsupportedError(f"the condition has the shape {shape_text(cx.shape(condition))}, not one element")
    known = cx.constant(condition)
    if known is not None:
        chosen = then_branch if known.reshape(-1)[0] else else_branch
        _finish(cx, node.outputs, inline(cx, chosen, [], _prefix(cx, "if")))
        return
    messages = [_failure(then_branch), _failure(else_branch)]
    if None not in messages:
        raise UnsupportedError(f"neither branch can run: {messages[0]}; {messages[1]}")
    for message, wanted, works in ((messages[0], 1, else_branch), (messages[1], 0, then_branch)):
        if message is not None:
            cx.emit(SKIP, [condition], [], [wanted, 1], why="the branch cannot run")
            cx.emit("fail", [], [], [message], why="the branch cannot run")
            _finish(cx, node.outputs, inline(cx, works, [], _prefix(cx, "if")))
            return
    first = _guarded(cx, condition, 1, then_branch, _prefix(cx, "then"))
    second = _guarded(cx, condition, 0, else_branch, _prefix(cx, "else"))
    for name, a, b in zip(node.outputs, first, second, strict=True):
        if not name:
            continue
        if cx.shape(a) != cx.shape(b) or cx.dtype(a) is not cx.dtype(b):
            raise UnsupportedError(
                f"the branches give {cx.dtype(a).short}{shape_text(cx.shape(a))} and "
                f"{cx.dtype(b).short}{shape_text(cx.shape(b))}, so that sizes depend on the data"
            )
        cx.emit("select", [condition, a, b], [name], in_place=[(0, 1), (0, 2)], why="the result of the branch that ran")


@lowers("fail")
def fail(node: Node, cx: Lowering) -> None:
    """Outside of a branch there is nothing to choose from."""
    raise UnsupportedError(str(node.attrs["message"]))


@lowers("loop")
def loop(node: Node, cx: Lowering) -> None:
    """Unrolled: the trip count is a constant. Where the condition is computed, the iterations are guarded by it."""
    body: Graph = node.attrs["body"]
    trips = _trip_count(node, cx)
    _check_length(trips, body)
    carried = node.inputs[2:]
    rows: list[list[str]] = [[] for _ in body.outputs[1 + len(carried) :]]
    flag = node.inputs[1]
    with cx.unrolling():
        going = cx.weight(np.array(True), "condition")
        for i in range(trips):
            number = cx.weight(np.array(i, np.int64), "iteration")
            arguments, prefix = [number, going, *carried], _prefix(cx, f"loop.{i}")
            if not flag or cx.constant(flag) is not None:
                results = inline(cx, body, arguments, prefix)
            else:
                if rows:
                    raise UnsupportedError(
                        "a computed condition tells when the loop ends, so that sizes depend on the data",
                        hint="use --backend numpy",
                    )
                flag = _scalar(cx, flag)
                results = _guarded(cx, flag, 1, body, prefix, arguments)
                results[0] = _scalar(cx, results[0])
                results = [_select(cx, flag, a, b) for a, b in zip(results, [flag, *carried], strict=True)]
            flag, carried = results[0], results[1 : 1 + len(carried)]
            for column, row in zip(rows, results[1 + len(carried) :], strict=True):
                column.append(row)
            if (end := cx.constant(flag)) is not None and not end.all():
                break
    _finish(cx, node.outputs[: len(carried)], carried)
    for name, column in zip(node.outputs[len(carried) :], rows, strict=True):
        _stack(cx, column, 0, name)


@lowers("scan")
def scan(node: Node, cx: Lowering) -> None:
    """Unrolled: the scanned axes have a constant size."""
    body: Graph = node.attrs["body"]
    count = len(node.inputs) - node.attrs["num_scan_inputs"]
    states, sources = node.inputs[:count], node.inputs[count:]
    axes = [normalize_axis(a, len(cx.shape(s))) for s, a in zip(sources, node.attrs["input_axes"], strict=True)]
    length = scan_length([TensorType(cx.dtype(s), cx.shape(s)) for s in sources], axes)
    if not isinstance(length, int):
        raise UnsupportedError(f"the scanned axis has the free size {length}", hint="give it one size with --shape")
    _check_length(length, body)
    rows: list[list[str]] = [[] for _ in body.outputs[count:]]
    with cx.unrolling():
        for i in range(length):
            places = [length - 1 - i if back else i for back in node.attrs["input_reverse"]]
            slices = [_slice(cx, s, a, k) for s, a, k in zip(sources, axes, places, strict=True)]
            results = inline(cx, body, [*states, *slices], _prefix(cx, f"scan.{i}"))
            states = results[:count]
            for column, row in zip(rows, results[count:], strict=True):
                column.append(row)
    _finish(cx, node.outputs[:count], states)
    directions = zip(node.attrs["output_axes"], node.attrs["output_reverse"], strict=True)
    for name, column, (axis, back) in zip(node.outputs[count:], rows, directions, strict=True):
        _stack(cx, column[::-1] if back else column, axis, name)


# -- branches and bodies


def inline(cx: Lowering, graph: Graph, arguments: Sequence[str], prefix: str) -> list[str]:
    """Lower the nodes of a sub-graph with `arguments` for its inputs; the names of its outputs.

    Its tensors get names that start with `prefix`; tensors of the graphs around it keep theirs. Raises UnsupportedError
    for an argument of another type than the input's, and what the nodes' lowerings raise.
    """
    body = graph.copy()
    names: dict[str, str] = {}
    added: dict[str, Tensor] = {}
    for name, argument in zip(body.inputs, arguments, strict=True):
        wanted = body.tensors[name]
        if wanted.shape != cx.shape(argument) or wanted.dtype is not cx.dtype(argument):
            raise UnsupportedError(f"the size of {name!r} changes from one iteration to the next")
        names[name] = argument
        added[argument] = Tensor(argument, wanted.dtype, wanted.shape, cx.constant(argument))
    for old, t in body.tensors.items():
        if old in names:
            continue
        if t.data is not None:
            names[old] = cx.weight(t.data, f"{prefix}/{old}")
        else:
            if t.kind != "tensor":
                raise UnsupportedError(f"{old!r} is a {t.kind}", hint="use --backend numpy")
            if t.shape is None:
                raise UnsupportedError(f"the rank of tensor {old!r} depends on the data")
            names[old] = f"{prefix}/{old}"
            cx.tensors[names[old]] = NativeTensor(names[old], t.dtype, t.shape)
        added[names[old]] = Tensor(names[old], t.dtype, t.shape, t.data, t.kind)
    _rename(body, names)
    outer, cx.graph = cx.graph, replace(cx.graph, tensors={**cx.graph.tensors, **added})
    try:
        for node in body.nodes:
            try:
                cx.lower(node)
            except UnsupportedError as e:
                raise UnsupportedError(f"{node.op} (node {node.name!r} inside): {e.message}", hint=e.hint) from e
    finally:
        cx.graph = outer
    return body.outputs


def _rename(graph: Graph, names: Mapping[str, str]) -> None:
    """Rename what nodes and outputs refer to, in sub-graphs too unless they have a tensor of that name themselves."""
    graph.outputs = [names.get(o, o) for o in graph.outputs]
    for node in graph.nodes:
        node.inputs = [names.get(i, i) for i in node.inputs]
        node.outputs = [names.get(o, o) for o in node.outputs]
        for sub in node.subgraphs():
            _rename(sub, {old: new for old, new in names.items() if old not in sub.tensors})


def _guarded(
    cx: Lowering, condition: str, wanted: int, branch: Graph, prefix: str, arguments: Sequence[str] = ()
) -> list[str]:
    """The branch, passed over unless the condition equals `wanted`."""
    cx.emit(SKIP, [condition], [], [wanted, 0], why="a branch")
    guard, start = cx.nodes[-1], len(cx.nodes)
    results = inline(cx, branch, arguments, prefix)
    if len(cx.nodes) == start:
        cx.nodes.pop()
    guard.params[1] = len(cx.nodes) - start
    return results


def _failure(branch: Graph) -> str | None:
    """The message of a branch that fails whenever it is taken."""
    return next((str(n.attrs["message"]) for n in branch.nodes if n.op == "fail"), None)


def _prefix(cx: Lowering, hint: str) -> str:
    """A start of tensor names that nothing else uses."""
    return f"{hint}@{cx.fresh()}"


def _finish(cx: Lowering, outputs: Sequence[str], results: Sequence[str]) -> None:
    for name, result in zip(outputs, results, strict=True):
        if name:
            view(cx, result, name)


# -- loops


def _scalar(cx: Lowering, condition: str) -> str:
    """A condition of one element, of rank 0."""
    if cx.shape(condition) == ():
        return condition
    flag = cx.temp(DType.BOOL, (), condition)
    view(cx, condition, flag)
    return flag


def _select(cx: Lowering, flag: str, a: str, b: str) -> str:
    """`a` where the flag is true, else `b`; of one type."""
    if a == b:
        return a
    if cx.shape(a) != cx.shape(b) or cx.dtype(a) is not cx.dtype(b):
        raise UnsupportedError(f"the size of {a!r} changes from one iteration to the next")
    result = cx.temp(cx.dtype(a), cx.shape(b), a)
    cx.emit("select", [flag, a, b], [result], in_place=[(0, 1), (0, 2)], why="as it was where the loop has ended")
    return result


def _trip_count(node: Node, cx: Lowering) -> int:
    """The largest number of iterations."""
    trips, condition = node.inputs[0], node.inputs[1]
    start = cx.constant(condition) if condition else None
    if start is not None and not start.all():
        return 0
    count = cx.constant(trips) if trips else None
    if not trips:
        raise UnsupportedError("the loop has no largest number of iterations", hint="use --backend numpy")
    if count is None:
        raise UnsupportedError("the trip count is computed at run time", hint="use --backend numpy")
    return max(int(count.reshape(-1)[0]), 0)


def _check_length(trips: int, body: Graph) -> None:
    nodes = trips * _node_count(body)
    if nodes > MAX_UNROLLED:
        raise UnsupportedError(
            f"{trips} iterations of {_node_count(body)} nodes are {nodes} nodes when unrolled, at most {MAX_UNROLLED} "
            "are taken",
            hint="use --backend numpy",
        )


def _node_count(graph: Graph) -> int:
    """Nodes with those of sub-graphs, at least 1."""
    return 1 + sum(sum(_node_count(sub) for sub in n.subgraphs()) + 1 for n in graph.nodes)


def _slice(cx: Lowering, source: str, axis: int, index: int) -> str:
    """Slice `index` of an axis, without that axis."""
    shape = cx.shape(source)
    part = cx.temp(cx.dtype(source), (*shape[:axis], 1, *shape[axis + 1 :]), f"{source}[{index}]")
    cx.lower(Node("slice", [source], [part], {"ranges": ((axis, index, 1, 1),)}, source))
    row = cx.temp(cx.dtype(source), shape[:axis] + shape[axis + 1 :], f"{source}[{index}]")
    view(cx, part, row)
    return row


def _stack(cx: Lowering, rows: Sequence[str], axis: int, output: str) -> None:
    """Tensors of one shape, one after the other along a new axis."""
    if not output:
        return
    if not rows:
        shape = cx.shape(output)
        if not all(isinstance(d, int) for d in shape):
            raise UnsupportedError(f"the size {shape_text(shape)} of an output without elements depends on the data")
        view(cx, cx.weight(np.zeros(shape, cx.dtype(output).numpy), "empty"), output)
        return
    shape = cx.shape(rows[0])
    axis = normalize_axis(axis, len(shape) + 1)
    parts = [cx.temp(cx.dtype(row), (*shape[:axis], 1, *shape[axis:]), row) for row in rows]
    for row, part in zip(rows, parts, strict=True):
        view(cx, row, part)
    cx.lower(Node("concat", parts, [output], {"axis": axis}, output))
