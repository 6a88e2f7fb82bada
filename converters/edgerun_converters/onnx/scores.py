"""What the classifiers and regressors of ai.onnx.ml share: post transforms, labels, two scores out of one."""

from __future__ import annotations

import math

import numpy as np

from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""By the numbers that TreeEnsemble uses."""


def post_transform(b: Builder, scores: str, kind: str) -> str:
    """Scores [N, C] after the transform that an ai.onnx.ml operator names."""
    if kind == "NONE":
        return scores
    if kind == "LOGISTIC":
        return b.scalar("sigmoid", scores)
    if kind == "SOFTMAX":
        return b.one("softmax", [scores], axis=1)
    if kind == "SOFTMAX_ZERO":
        return _softmax_zero(b, scores)
    if kind == "PROBIT":
        return _probit(b, scores)
    raise UnsupportedError(f"there is no post transform {kind!r}")


def _softmax_zero(b: Builder, scores: str) -> str:
    """Softmax over the scores that are not zero; zeros stay zero."""
    nonzero = b.scalar("gt", b.scalar("abs", scores), b.fill(scores, 1e-7))
    largest = b.one("reduce", [scores], kind="max", over=(1,))
    powers = b.scalar("exp", b.scalar("sub", scores, largest))
    powers = b.scalar("where", nonzero, powers, b.fill(scores, 0))
    total = b.one("reduce", [powers], kind="sum", over=(1,))
    # A row of zeros divides by one.
    empty = b.scalar("eq", total, b.fill(total, 0))
    return b.scalar("div", powers, b.scalar("where", empty, b.fill(total, 1), total))


def _probit(b: Builder, scores: str) -> str:
    """sqrt(2) erfinv(2 x - 1), with Winitzki's approximation of erfinv (a = 0.147), as runtimes compute it."""
    one = b.fill(scores, 1)
    y = b.scalar("sub", b.scalar("mul", scores, b.fill(scores, 2)), one)
    log = b.scalar("log", b.scalar("mul", b.scalar("sub", one, y), b.scalar("add", one, y)))
    half = b.scalar("add", b.scalar("mul", log, b.fill(log, 0.5)), b.fill(log, 2 / (math.pi * 0.147)))
    rest = b.scalar("mul", log, b.fill(log, 1 / 0.147))
    inner = b.scalar("sqrt", b.scalar("sub", b.scalar("mul", half, half), rest))
    root = b.scalar("sqrt", b.scalar("sub", inner, half))
    return b.scalar("mul", b.scalar("mul", b.scalar("sign", y), root), b.fill(log, math.sqrt(2)))


def class_labels(n: OnnxNode, integers: str = "classlabels_int64s") -> np.ndarray:
    """The labels of a classifier as i64 or strings. Raises UnsupportedError when there are none."""
    strings = n.attr("classlabels_strings", ())
    if strings:
        return np.array(strings, dtype=object)
    numbers = n.attr(integers, ())
    if not numbers:
        raise UnsupportedError(f"{n.op_type} has no class labels")
    return np.array(numbers, np.int64)


def pick_label(b: Builder, scores: str, labels: np.ndarray) -> str:
    """The label of the highest score in each row [N]; the first of equal ones."""
    best = b.one("argreduce", [scores], kind="max", axis=1, keepdims=False)
    return b.one("gather", [b.const(labels), best], axis=0)


def choose_label(b: Builder, condition: str, labels: np.ndarray) -> str:
    """labels[1] where the bool [N] or [N, 1] holds, else labels[0]."""
    if b.rank(condition) == 2:
        condition = b.reshape(condition, b.shape(condition)[:1])
    return b.one("gather", [b.const(labels[:2]), b.cast(condition, DType.I64)], axis=0)


def pair(b: Builder, first: str, second: str) -> str:
    """Two score columns [N, 1] side by side."""
    return b.one("concat", [first, second], axis=1)


def rows_of_floats(b: Builder, x: str) -> str:
    """An input as f32 or f64 [N, F]: other types become f32, a vector one row."""
    if b.dtype(x) not in (DType.F32, DType.F64):
        x = b.cast(x, DType.F32)
    return b.reshape(x, (1, *b.shape(x))) if b.rank(x) == 1 else x
