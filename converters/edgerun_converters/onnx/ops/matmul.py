"""Matrix products of ai.onnx: MatMul, Gemm, Det. Einsum has a module of its own."""

from __future__ import annotations

import numpy as np

from edgerun.dims import DimLike
from edgerun.errors import ShapeError, UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering
from edgerun_converters.onnx.windows import permuted


@lowering("MatMul")
def matmul(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("matmul", [n.input(0), n.input(1)]))


@lowering("Det")
def det(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("det", [n.input(0)]))


@lowering("Gemm")
def gemm(b: Builder, n: OnnxNode) -> None:
    """alpha * A' B' + beta * C. Factors and transposes go into constants where there are any."""
    x, w, c = n.input(0), n.input(1), n.input(2)
    alpha, beta = float(n.attr("alpha", 1.0)), float(n.attr("beta", 1.0))
    if b.rank(x) != 2 or b.rank(w) != 2:
        raise ShapeError(f"Gemm multiplies matrices, not {b.type(x)} and {b.type(w)}")
    if n.attr("transA", 0):
        x = permuted(b, x, (1, 0))
    trans_b = bool(n.attr("transB", 0))
    if trans_b and b.static(w) is not None:
        w, trans_b = permuted(b, w, (1, 0)), False
    if b.static(w) is not None:
        w, alpha = _scaled(b, w, alpha), 1.0
    if c and beta == 0:
        c = ""
    if c:
        c = _scaled(b, c, beta)
    columns = b.shape(w)[0 if trans_b else 1]
    bias = _bias(b, c, columns) if c and alpha == 1 else ""
    y = _scaled(b, b.one("matmul", [x, w, bias], trans_b=trans_b), alpha)
    n.bind(b.scalar("add", y, c) if c and not bias else y)


def _scaled(b: Builder, x: str, factor: float) -> str:
    """factor * x, computed now when x is constant."""
    if factor == 1:
        return x
    if b.dtype(x).is_integer and factor != int(factor):
        raise UnsupportedError(f"Gemm of {b.dtype(x).short} with the factor {factor}")
    data = b.static(x)
    if data is None:
        return b.scalar("mul", x, b.fill(x, factor))
    wide = data.astype(np.int64 if b.dtype(x).is_integer else np.float64)
    return b.const(wide * (int(factor) if b.dtype(x).is_integer else factor), b.dtype(x), hint=f"{x}.scaled")


def _bias(b: Builder, c: str, columns: DimLike) -> str:
    """C as a vector over the columns, or "" when it is something else."""
    shape = b.shape(c)
    if shape in ((columns,), (1, columns)):
        return b.reshape(c, (columns,))
    data = b.static(c)
    if data is not None and data.size == 1 and isinstance(columns, int) and len(shape) <= 2:
        return b.const(np.full(columns, data.reshape(())), b.dtype(c), hint=f"{c}.vector")
    return ""
