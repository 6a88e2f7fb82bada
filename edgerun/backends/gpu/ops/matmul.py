"""Matrix products with broadcast batches, on tiles."""

from __future__ import annotations

import numpy as np

from edgerun.backends.gpu.lowering import Lowering, lowers
from edgerun.backends.gpu.ops.epilogue import epilogue
from edgerun.backends.gpu.ops.tiles import Operand, Product, emit
from edgerun.backends.gpu.wgsl import strides
from edgerun.errors import UnsupportedError
from edgerun.graph import Node


def batch_place(shape: tuple[int, ...], batch: tuple[int, ...], z: str = "z") -> str:
    """Where the matrix of batch element z begins, in matrices of a tensor [*shape] that is broadcast to `batch`."""
    shift, steps, terms = len(batch) - len(shape), strides(shape), []
    for axis, step in enumerate(strides(batch)):
        own = axis - shift
        if own >= 0 and shape[own] > 1:
            terms.append(f"(({z} / {step}u) % {batch[axis]}u) * {steps[own]}u")
    return " + ".join(terms) or "0u"


@lowers("matmul")
def matmul(node: Node, cx: Lowering) -> None:
    a, b, *rest = (*node.inputs, "", "")
    bias, residual = rest[0], rest[1]
    out = node.outputs[0]
    if not cx.dtype(out).is_float:
        raise UnsupportedError("an integer product has no GPU kernel")
    left, right, trans = cx.shape(a), cx.shape(b), node.attrs.get("trans_b", False)
    left = (1, *left) if len(left) == 1 else left
    right = (*right, 1) if len(right) == 1 else right
    m, k = left[-2:]
    n = right[-2] if trans else right[-1]
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    count = int(np.prod(batch))
    if batch and not int(np.prod(right[:-2])) > 1 and len(left) > 2:
        m, count, batch, left = m * count, 1, (), (m * count, k)  # one matrix b: the rows of all batches are one matrix
        right = right[-2:]
    if min(m, n, count) == 0:
        return
    at_a = f"({batch_place(left[:-2], batch)}) * {m * k}u + m * {k}u + k"
    inner = f"n * {k}u + k" if trans else f"k * {n}u + n"
    at_b = f"({batch_place(right[:-2], batch)}) * {k * n}u + {inner}"
    tail = epilogue(node, cx, 2, bias=bias, residual=residual, element=f"(z * {m}u + m) * {n}u + n")
    p = Product(count, m, n, k, flat(0, at_a, k % 4 == 0), flat(1, at_b, n % 4 == 0 and not trans))
    emit(cx, [a, b], p, out, tail.text, tail.buffers)


def flat(buffer: int, at: str, vector: bool) -> Operand:
    """An element of a buffer, or the four that begin at it."""
    return Operand(f"b{buffer}[({at}) / 4u]" if vector else f"b{buffer}[{at}]", vector=vector)
