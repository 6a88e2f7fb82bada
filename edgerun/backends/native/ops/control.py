"""Conditionals: both branches run and an elementwise pass selects, since all ops are pure. Plans have no jumps."""

from __future__ import annotations

from dataclasses import replace

from edgerun.backends.native.lowering import Lowering, NativeTensor, find, lowers
from edgerun.backends.native.ops.elementwise import apply
from edgerun.backends.native.ops.movement import view
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Graph, Node, Tensor


@lowers("if")
def if_(node: Node, cx: Lowering) -> None:
    """Refuses branches whose results differ in shape or type."""
    condition = node.inputs[0]
    data = cx.constant(condition)
    branches = [node.attrs["then_branch"], node.attrs["else_branch"]]
    if data is not None:
        chosen = _inline(cx, branches[0 if data.reshape(-1)[0] else 1], f"if{len(cx.tensors)}")
        for name, result in zip(node.outputs, chosen, strict=True):
            if name:
                view(cx, result, name)
        return
    flag = cx.temp(DType.BOOL, (), "condition")
    view(cx, condition, flag)
    failing = [any(inner.op == "fail" for inner in branch.nodes) for branch in branches]
    if any(failing):
        _checked(node, cx, branches[0 if failing[1] else 1], flag, works_when=failing[1])
        return
    results = [_inline(cx, branch, f"if{len(cx.tensors)}.{k}") for k, branch in enumerate(branches)]
    for name, first, second in zip(node.outputs, *results, strict=True):
        if not name:
            continue
        if cx.shape(first) != cx.shape(second) or cx.dtype(first) is not cx.dtype(second):
            raise UnsupportedError(f"the branches give {cx.shape(first)} and {cx.shape(second)}")
        apply(cx, (("where", cx.dtype(first), 0, 1, 2),), [flag, first, second], name)


def _checked(node: Node, cx: Lowering, branch: Graph, flag: str, *, works_when: bool) -> None:
    """The branch that can run; NaN where the condition takes the other, whose shapes contradict each other."""
    if any(inner.op == "fail" for inner in branch.nodes):
        raise UnsupportedError("no branch can run with the given shapes")
    for name, result in zip(node.outputs, _inline(cx, branch, f"if{len(cx.tensors)}"), strict=True):
        dtype = cx.dtype(result)
        if name and not dtype.is_float:
            raise UnsupportedError("one branch cannot run with the given shapes, and the condition is computed")
        if name:
            order = (0, 1, 2) if works_when else (0, 2, 1)
            apply(cx, (("const", dtype, float("nan")), ("where", dtype, *order)), [flag, result], name)


def _inline(cx: Lowering, branch: Graph, prefix: str) -> list[str]:
    """Lower the nodes of a sub-graph under names of their own; the names of its outputs."""
    body = branch.copy()
    added: dict[str, Tensor] = {}
    for old in list(body.tensors):
        new, tensor = f"{prefix}/{old}", body.tensors.pop(old)
        added[new] = Tensor(new, tensor.dtype, tensor.shape, tensor.data, tensor.kind)
        for node in body.nodes:
            node.outputs = [new if o == old else o for o in node.outputs]
        body.replace_uses(old, new)
    for name, tensor in added.items():
        if tensor.shape is None:
            raise UnsupportedError(f"the rank of tensor {name!r} in a branch depends on the data")
        cx.tensors[name] = NativeTensor(name, tensor.dtype, tensor.shape, tensor.data)
    cx.graph = replace(cx.graph, tensors={**cx.graph.tensors, **added})
    for node in body.nodes:
        try:
            find(node.op)(node, cx)
        except UnsupportedError as e:
            raise UnsupportedError(f"{node.op} (node {node.name!r} of a branch): {e.message}") from e
    return body.outputs
