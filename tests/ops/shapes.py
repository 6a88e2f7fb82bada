"""Check that symbolic shapes, with the symbols replaced by actual sizes, are the shapes of the results."""

from __future__ import annotations

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.dims import Dim, evaluate, free_symbols
from tests.ops.single_node import NodeCase


def assert_symbolic_shapes(case: NodeCase) -> None:
    """Import `case` with hidden input sizes, run it, and compare every output shape with its symbolic inference."""
    case.symbolic = True
    graph = case.graph()
    sizes: dict[str, int] = {}
    for name in graph.inputs:
        for dim, size in zip(graph.tensors[name].shape or (), case.inputs[name].shape, strict=True):
            if isinstance(dim, Dim) and dim.is_symbol:
                sizes[str(dim)] = size
    results = NumpyExecutor(graph).run({k: case.inputs[k] for k in graph.inputs})
    for name in graph.outputs:
        shape = graph.tensors[name].shape
        assert shape is not None
        assert len(shape) == results[name].ndim
        for dim, size in zip(shape, results[name].shape, strict=True):
            if free_symbols(dim) <= sizes.keys():
                assert evaluate(dim, sizes) == size, f"{dim} is {evaluate(dim, sizes)}, the result has {size}"
