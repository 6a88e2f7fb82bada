"""Control flow: ops that run sub-graphs. The native backend unrolls loops whose largest length is known.

A branch or body reads the tensors around it by name; its own inputs and outputs are given in order. Rules see a body as
a Graph, kernels as a callable that takes arrays and returns a list.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgerun.dims import Dim, DimLike, free_symbols
from edgerun.dtypes import DType
from edgerun.graph import Graph, Shape
from edgerun.ops.optional import WRAPPED
from edgerun.ops.registry import TensorType, fresh_symbol, normalize_axis, op, require, tensor_type
from edgerun.ops.sequence import common_shape


@op("control")
def copy(x: TensorType) -> TensorType:
    """The same value under another name, where an output needs its own: for sequences, optionals and strings."""
    return TensorType(x.dtype, x.shape, kind=x.kind)


@op("control", fold=False)
def fail(*, message: str, types: tuple[tuple[DType, Shape | None], ...]) -> tuple[TensorType, ...]:
    """An error when it runs: a branch whose shapes contradict each other, which other inputs would have taken."""
    return tuple(TensorType(dtype, shape) for dtype, shape in types)


@op("control", name="if")
def if_(condition: TensorType, *, then_branch: Graph, else_branch: Graph) -> tuple[TensorType, ...]:
    """Run one of two branches without inputs; the outputs are that branch's. The condition has one element."""
    require(condition.dtype is DType.BOOL, f"the condition is {condition.dtype.short}, not bool")
    first, second = output_types(then_branch), output_types(else_branch)
    require(len(first) == len(second), f"the branches have {len(first)} and {len(second)} outputs")
    return tuple(join(a, b) for a, b in zip(first, second, strict=True))


@op("control")
def loop(
    trips: TensorType | None = None, condition: TensorType | None = None, *carried: TensorType, body: Graph
) -> tuple[TensorType, ...]:
    """Run `body` up to `trips` times (None: without limit) while `condition` holds (None: always).

    Body: (iteration number, condition, *carried) -> (condition, *carried, *scanned). Outputs: the carried values after
    the last iteration, then each scanned value stacked along a new first axis.
    """
    require(trips is None or trips.dtype in (DType.I32, DType.I64), "the trip count is not an integer")
    require(condition is None or condition.dtype is DType.BOOL, "the condition is not bool")
    require(len(body.inputs) == len(carried) + 2, f"the body takes {len(body.inputs)} inputs, not {len(carried) + 2}")
    require(len(body.outputs) > len(carried), "the body has too few outputs")
    results = output_types(body)[1:]
    finals = [join(a, b) for a, b in zip(carried, results, strict=False)]
    known = _symbols(carried)
    scanned = [_stacked(t, fresh_symbol("trips"), 0, known) for t in results[len(carried) :]]
    return (*finals, *scanned)


@op("control")
def scan(
    *values: TensorType,
    body: Graph,
    num_scan_inputs: int,
    input_axes: tuple[int, ...],
    input_reverse: tuple[bool, ...],
    output_axes: tuple[int, ...],
    output_reverse: tuple[bool, ...],
) -> tuple[TensorType, ...]:
    """Run `body` over slices of the last `num_scan_inputs` inputs; the first inputs are states carried along.

    Body: (*states, *slices) -> (*states, *scanned). Outputs: the final states, then each scanned value stacked along
    its output axis (from the back to the front where reversed).
    """
    count = len(values) - num_scan_inputs
    require(count >= 0 and num_scan_inputs > 0, f"scan has {len(values)} inputs, {num_scan_inputs} of them scanned")
    require(len(input_axes) == len(input_reverse) == num_scan_inputs, "scan needs an axis and direction for each input")
    require(len(body.inputs) == len(values), f"the body takes {len(body.inputs)} inputs, not {len(values)}")
    results = output_types(body)
    require(len(results) == count + len(output_axes) == count + len(output_reverse), "the body's outputs do not fit")
    length = scan_length(values[count:], input_axes)
    known = _symbols(values)
    scanned = [_stacked(t, length, axis, known) for t, axis in zip(results[count:], output_axes, strict=True)]
    return (*(join(a, b) for a, b in zip(values[:count], results, strict=False)), *scanned)


@op("control")
def sequence_map(*values: TensorType, body: Graph) -> tuple[TensorType, ...]:
    """Run `body` for each element of the sequence `values[0]`; outputs are sequences of its results.

    Other sequences (equally long) go along element by element, tensors are passed whole.
    """
    require(len(values) > 0 and values[0].kind == "sequence", "the first input is not a sequence")
    require(len(body.inputs) == len(values), f"the body takes {len(body.inputs)} inputs, not {len(values)}")
    known = _symbols(values)
    shapes = [(t, _visible(t.shape, known)) for t in output_types(body)]
    return tuple(
        TensorType(t.dtype, None if s is None else common_shape(s, t.shape), kind="sequence") for t, s in shapes
    )


def scan_length(inputs: Sequence[TensorType], axes: Sequence[int]) -> DimLike:
    """The common size of the scanned axes. Raises ShapeError when two differ."""
    length: DimLike | None = None
    for t, axis in zip(inputs, axes, strict=True):
        if t.shape is None:
            continue
        size = t.shape[normalize_axis(axis, len(t.shape))]
        require(
            length is None or isinstance(length, Dim) or isinstance(size, Dim) or length == size,
            f"the scanned axes have the sizes {length} and {size}",
        )
        length = size if length is None or isinstance(length, Dim) else length
    return fresh_symbol("steps") if length is None else length


def output_types(body: Graph) -> list[TensorType]:
    """The types of a sub-graph's outputs, without values."""
    types = [tensor_type(body.tensors[o]) for o in body.outputs]
    return [TensorType(t.dtype, t.shape, kind=t.kind) for t in types]


def join(a: TensorType, b: TensorType) -> TensorType:
    """The type of a value that is either `a` or `b`: an optional when one of them is.

    Raises ShapeError when dtype or kind differ otherwise.
    """
    a, b = as_optional(a, b), as_optional(b, a)
    require(
        a.dtype is b.dtype and a.kind == b.kind,
        f"a {a.kind} of {a.dtype.short} may also be a {b.kind} of {b.dtype.short}",
    )
    if a.kind != "tensor":
        return TensorType(a.dtype, common_shape(a.shape, b.shape), kind=a.kind)
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return TensorType(a.dtype, None)
    return TensorType(
        a.dtype, tuple(x if x == y else fresh_symbol("either") for x, y in zip(a.shape, b.shape, strict=True))
    )


def as_optional(t: TensorType, other: TensorType) -> TensorType:
    """`t` as a present optional when `other` is an optional of its kind."""
    wraps = WRAPPED.get(t.kind) == other.kind
    return TensorType(t.dtype, t.shape, kind=other.kind) if wraps else t


def _symbols(types: Sequence[TensorType]) -> set[str]:
    return {s for t in types for d in t.shape or () for s in free_symbols(d)}


def _visible(shape: Shape | None, known: set[str]) -> Shape | None:
    """The shape with a fresh symbol for each dimension that is written in symbols of the body."""
    if shape is None:
        return None
    return tuple(d if free_symbols(d) <= known else fresh_symbol("inner") for d in shape)


def _stacked(t: TensorType, length: DimLike, axis: int, known: set[str]) -> TensorType:
    require(t.kind == "tensor", f"a {t.kind} cannot be stacked")
    shape = _visible(t.shape, known)
    if shape is None:
        return TensorType(t.dtype, None)
    dims = list(shape)
    dims.insert(normalize_axis(axis, len(dims) + 1), length)
    return TensorType(t.dtype, tuple(dims))
