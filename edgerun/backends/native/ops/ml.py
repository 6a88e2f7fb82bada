"""Classical models: tree ensembles."""

from __future__ import annotations

from edgerun.backends.native.lowering import Lowering, lowers
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node

AGGREGATES = ("sum", "average", "min", "max")


@lowers("tree_ensemble")
def tree_ensemble(node: Node, cx: Lowering) -> None:
    for name in node.inputs[1:]:
        if cx.constant(name) is None:
            raise UnsupportedError(f"{name!r}, a table of a tree ensemble, is computed at run time")
    inputs = list(node.inputs)
    if cx.dtype(inputs[8]) is not DType.I32:
        data = cx.constant(inputs[8])
        assert data is not None
        inputs[8] = cx.weight(data.astype("int32"), inputs[8])
    cx.emit(
        "tree_ensemble", inputs, [node.outputs[0]], [AGGREGATES.index(node.attrs.get("aggregate", "sum"))],
        thread_scratch=cx.shape(node.outputs[0])[1] * 16, why="tree by tree for each sample",
    )  # fmt: skip
