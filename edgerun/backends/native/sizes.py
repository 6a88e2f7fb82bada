"""Sizes that the data decide: integers of a tensor become symbols of the plan while it runs.

`integers` emits a `bind_sizes` node and gives the elements of a tensor as dims. From there on they are like the free
dimensions of the inputs: shapes, offsets and parameters of later nodes are expressions over them, which the runtime
evaluates and checks anew when the node has run. The bounds of the symbols decide what the arena reserves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from edgerun.backends.native.lowering import BIND_SIZES, Lowering, NativeTensor, Param
from edgerun.dims import Dim, DimLike, bounds, clean_symbol, maximum, minimum, product, substitute, symbol
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Graph
from edgerun.plan.model import SymbolPlace

WIDE = 1 << 30
"""Integers without bounds of their own are held to [-WIDE, WIDE)."""
MAX_INTEGERS = 64
"""A tensor of more elements holds no sizes."""


def integers(cx: Lowering, name: str, low: int = -WIDE, high: int = WIDE - 1, *, clamp: bool = False) -> list[DimLike]:
    """The elements of an integer tensor as dims: numbers for a weight, else symbols that the data decide.

    Values outside [low, high] end the run with an error, or are held to the bounds with `clamp`. Raises
    UnsupportedError when the number of elements is not known.
    """
    data = cx.constant(name)
    if data is not None:
        return [max(low, min(high, int(v))) if clamp else int(v) for v in data.reshape(-1)]
    count = product(cx.shape(name))
    if not isinstance(count, int) or count > MAX_INTEGERS:
        raise UnsupportedError(f"{count} numbers that decide sizes are computed at run time in {name!r}")
    from edgerun.backends.native.ops.elementwise import cast

    source = name if cx.dtype(name) in (DType.I64, DType.I32, DType.BOOL) else cast(cx, name, DType.I64)
    symbols = [clean_symbol(f"{name}.{k}@{cx.fresh()}") for k in range(count)]
    cx.symbols.update(dict.fromkeys(symbols, (0, high - low)))
    params: list[Param] = [int(clamp), -low, *(SymbolPlace(s) for s in symbols)]
    cx.emit(BIND_SIZES, [source], [], params, why="sizes that the data decide")
    return [symbol(s) + low for s in symbols]


def integer(cx: Lowering, name: str, low: int = -WIDE, high: int = WIDE - 1, *, clamp: bool = False) -> DimLike:
    """The one element of a tensor; see `integers`."""
    return integers(cx, name, low, high, clamp=clamp)[0]


def define(cx: Lowering, output: str, shape: Sequence[DimLike], *, most: int | None = None) -> None:
    """Say what the shape of `output` is. A dim that nobody knew becomes known; others are compared at run time.

    `most`: its largest number of elements, where the bounds of the dims say less. Raises UnsupportedError when a size
    stays without a bound.
    """
    declared = cx.tensor(output).shape
    pairs: list[Param] = []
    known = cx.symbols.keys() | cx.graph.free_symbols()
    for d, found in zip(declared or (), shape, strict=True) if declared is not None else ():
        name = str(d)
        if isinstance(d, Dim) and d.is_symbol and name not in known and name not in cx.definitions:
            cx.definitions[name] = found
    if declared is None:
        cx.tensors[output] = NativeTensor(output, cx.dtype(output), tuple(shape), most=most)
    elif most is not None:
        cx.tensors[output] = NativeTensor(output, cx.dtype(output), declared, most=most)
    for d, found in zip(cx.shape(output), shape, strict=True):
        if d != found:
            pairs += [found, d]
    if pairs:
        cx.emit("expect", [], [], pairs, why="declared sizes")
    for axis, d in enumerate(cx.shape(output)):
        high = bounds(d, cx.symbols)[1]
        if high is None or high >= WIDE:
            raise UnsupportedError(
                f"the size of axis {axis} of {output!r} depends on the data and has no bound",
                hint="declare the shape of this tensor in the model",
            )


def declared_sizes(graph: Graph) -> dict[str, DimLike]:
    """Sizes that the data decide, as the declared shapes of what is computed from them tell.

    They serve as bounds: the node that gives such a size compares it at run time.
    """
    free = graph.free_symbols()
    found: dict[str, DimLike] = {}
    for node in reversed(graph.nodes):
        if node.op != "elementwise":
            continue
        shapes = [graph.tensors[i].shape for i in node.inputs if graph.tensors[i].shape != ()]
        result = graph.tensors[node.outputs[0]].shape
        if result is None or not shapes or any(s is None or len(s) != len(result) or s != shapes[0] for s in shapes):
            continue
        for d, size in zip(shapes[0] or (), result, strict=True):
            size = substitute(size, found)
            if isinstance(d, Dim) and d.is_symbol and str(d) not in free and isinstance(size, int):
                found.setdefault(str(d), size)
    return found


# -- arithmetic of dims


def is_negative(d: DimLike) -> DimLike:
    """1 for a negative number, else 0."""
    return minimum(maximum(-d, 0), 1)


def is_zero(d: DimLike) -> DimLike:
    """1 for zero, else 0."""
    return 1 - minimum(maximum(d, -d), 1)


def within(d: DimLike, low: DimLike, high: DimLike) -> DimLike:
    """d held to [low, high]; high wins when they cross."""
    return minimum(maximum(d, low), high)


def axes_of(cx: Lowering, name: str, rank: int) -> list[DimLike]:
    """Axes at run time, counted from the front; one that a tensor of this rank lacks ends the run."""
    return [a % rank if isinstance(a, int) else (a + rank) % rank for a in integers(cx, name, -rank, rank - 1)]


def selected(axes: Sequence[DimLike], axis: int) -> list[DimLike]:
    """For each of `axes`, 1 where it is `axis`, else 0."""
    return [is_zero(a - axis) for a in axes]


def total(values: Iterable[DimLike]) -> DimLike:
    """The sum of dims."""
    result: DimLike = 0
    for v in values:
        result = result + v
    return result


def constant_or_none(cx: Lowering, node_inputs: Sequence[str], index: int) -> np.ndarray | None:
    """The elements of an optional input that is a weight; None when it is absent or computed."""
    return cx.constant(node_inputs[index]) if index < len(node_inputs) else None
