"""Control flow: sub-graphs are callables from arrays to a list of arrays; see edgerun/ops/control.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.executor import Subgraph
from edgerun.backends.numpy.registry import kernel
from edgerun.dims import evaluate, free_symbols
from edgerun.errors import ShapeError


def _truth(condition: Any) -> bool:
    """The one element of a condition. Raises ShapeError when there are several."""
    array = np.asarray(condition)
    if array.size != 1:
        raise ShapeError(f"a condition has one element, not the shape {array.shape}")
    return bool(array.reshape(()))


@kernel("copy")
def copy(x: Any) -> Any:
    return x


@kernel("fail")
def fail(*, message: str, types: Any) -> Any:
    raise ShapeError(message)


@kernel("if")
def if_(condition: np.ndarray, *, then_branch: Subgraph, else_branch: Subgraph) -> tuple[Any, ...]:
    return tuple(then_branch() if _truth(condition) else else_branch())


@kernel("loop")
def loop(
    trips: np.ndarray | None = None, condition: np.ndarray | None = None, *carried: Any, body: Subgraph
) -> tuple[Any, ...]:
    limit = None if trips is None else int(np.asarray(trips).reshape(()))
    count = len(carried)
    values = list(carried)
    scanned: list[list[np.ndarray]] = [[] for _ in body.graph.outputs[1 + count :]]
    going = condition is None or _truth(condition)
    iteration = 0
    while going and (limit is None or iteration < limit):
        results = body(np.array(iteration, np.int64), np.array(True), *values)
        going = _truth(results[0])
        values = results[1 : 1 + count]
        for rows, row in zip(scanned, results[1 + count :], strict=True):
            rows.append(row)
        iteration += 1
    names = body.graph.outputs[1 + count :]
    return (*values, *(_stack(rows, body, name, 0) for rows, name in zip(scanned, names, strict=True)))


@kernel("scan")
def scan(
    *values: np.ndarray,
    body: Subgraph,
    num_scan_inputs: int,
    input_axes: tuple[int, ...],
    input_reverse: tuple[bool, ...],
    output_axes: tuple[int, ...],
    output_reverse: tuple[bool, ...],
) -> tuple[Any, ...]:
    count = len(values) - num_scan_inputs
    states = list(values[:count])
    sources = [np.moveaxis(v, axis, 0) for v, axis in zip(values[count:], input_axes, strict=True)]
    sources = [s[::-1] if back else s for s, back in zip(sources, input_reverse, strict=True)]
    lengths = {len(s) for s in sources}
    if len(lengths) != 1:
        raise ShapeError(f"the scanned axes have the sizes {sorted(lengths)}")
    scanned: list[list[np.ndarray]] = [[] for _ in output_axes]
    for slices in zip(*sources, strict=True):
        results = body(*states, *(np.asarray(s) for s in slices))
        states = results[:count]
        for rows, row in zip(scanned, results[count:], strict=True):
            rows.append(row)
    outputs = []
    for i, (rows, name) in enumerate(zip(scanned, body.graph.outputs[count:], strict=True)):
        outputs.append(_stack(rows[::-1] if output_reverse[i] else rows, body, name, output_axes[i]))
    return (*states, *outputs)


@kernel("sequence_map")
def sequence_map(*values: Any, body: Subgraph) -> tuple[list[Any], ...]:
    results: list[list[Any]] = [[] for _ in body.graph.outputs]
    for i in range(len(values[0])):
        arguments = [v[i] if isinstance(v, list) else v for v in values]
        for column, value in zip(results, body(*arguments), strict=True):
            column.append(value)
    return tuple(results)


def _stack(rows: list[np.ndarray], body: Subgraph, name: str, axis: int) -> np.ndarray:
    """The scanned values stacked; without any, an empty array of the declared type (sizes that only the body's own
    computation would tell count as 0)."""
    if rows:
        return np.stack(rows, axis)
    tensor = body.graph.tensors[name]
    known = body.symbols
    shape = [evaluate(d, known) if free_symbols(d) <= known.keys() else 0 for d in tensor.shape or ()]
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 0)
    return np.empty(shape, tensor.dtype.numpy)
