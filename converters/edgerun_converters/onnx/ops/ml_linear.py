"""Linear models and support vector machines of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering
from edgerun_converters.onnx.scores import (
    choose_label,
    class_labels,
    pair,
    pick_label,
    post_transform,
    rows_of_floats,
)

ML = "ai.onnx.ml"


def _affine(b: Builder, x: str, coefficients: np.ndarray, intercepts: np.ndarray) -> str:
    """x [N, F] times coefficients [C, F] transposed, plus intercepts [C] (or none)."""
    y = b.one("matmul", [x, b.const(np.ascontiguousarray(coefficients.T), b.dtype(x))])
    return b.scalar("add", y, b.const(intercepts, b.dtype(y))) if intercepts.size else y


def _matrix(n: OnnxNode, rows: int) -> np.ndarray:
    values = np.array(n.attr("coefficients"))
    if rows <= 0 or values.size % rows:
        raise UnsupportedError(f"{values.size} coefficients do not make {rows} rows")
    return values.reshape(rows, -1)


@lowering("LinearRegressor", domain=ML)
def linear_regressor(b: Builder, n: OnnxNode) -> None:
    x = b.cast(rows_of_floats(b, n.input(0)), DType.F32)
    y = _affine(b, x, _matrix(n, int(n.attr("targets", 1))), np.array(n.attr("intercepts", ())))
    n.bind(post_transform(b, y, n.attr("post_transform", "NONE")))


@lowering("LinearClassifier", domain=ML)
def linear_classifier(b: Builder, n: OnnxNode) -> None:
    """The label of the highest score; a single score for two labels decides by its sign."""
    x = b.cast(rows_of_floats(b, n.input(0)), DType.F32)
    labels, transform = class_labels(n, "classlabels_ints"), str(n.attr("post_transform", "NONE"))
    intercepts = np.array(n.attr("intercepts", ()))
    rows = intercepts.size or len(labels)
    y = _affine(b, x, _matrix(n, rows), intercepts)
    if rows == 1 and len(labels) == 2:
        label = choose_label(b, b.scalar("gt", y, b.fill(y, 0)), labels)
        if transform == "LOGISTIC":
            second = post_transform(b, y, transform)
            n.bind(label, pair(b, b.scalar("sub", b.fill(y, 1), second), second))
        elif transform == "NONE":
            n.bind(label, pair(b, b.scalar("sub", b.fill(y, 1), y), y))
        else:
            raise UnsupportedError(f"LinearClassifier with a single score and {transform} is not supported")
        return
    n.bind(pick_label(b, y, labels), post_transform(b, y, transform))


def _kernel(b: Builder, n: OnnxNode, x: str, vectors: np.ndarray) -> str:
    gamma, coef0, degree = (*n.attr("kernel_params", ()), 0.0, 0.0, 0.0)[:3]
    kind = str(n.attr("kernel_type", "LINEAR")).lower()
    names = [x, b.const(vectors, b.dtype(x))]
    return b.one("svm_kernel", names, kind=kind, gamma=float(gamma), coef0=float(coef0), degree=float(degree))


@lowering("SVMRegressor", domain=ML)
def svm_regressor(b: Builder, n: OnnxNode) -> None:
    x = b.cast(rows_of_floats(b, n.input(0)), DType.F32)
    rho = np.array(n.attr("rho", ()) or (0.0,))[:1]
    supports = int(n.attr("n_supports", 0))
    if supports:
        vectors = np.array(n.attr("support_vectors")).reshape(supports, -1)
        y = _affine(b, _kernel(b, n, x, vectors), _matrix(n, 1), rho)
    else:
        y = _affine(b, x, _matrix(n, 1), rho)
    if n.attr("one_class", 0):
        y = b.scalar("where", b.scalar("gt", y, b.fill(y, 0)), b.fill(y, 1), b.fill(y, -1))
    n.bind(post_transform(b, y, n.attr("post_transform", "NONE")))


@lowering("SVMClassifier", domain=ML)
def svm_classifier(b: Builder, n: OnnxNode) -> None:
    x = b.cast(rows_of_floats(b, n.input(0)), DType.F32)
    labels, transform = class_labels(n, "classlabels_ints"), str(n.attr("post_transform", "NONE"))
    per_class = [int(v) for v in n.attr("vectors_per_class", ())]
    classes, rho = len(labels), np.array(n.attr("rho", ()))
    if not per_class:
        scores = _affine(b, x, _matrix(n, classes), rho[:1])
        n.bind(pick_label(b, scores, labels), post_transform(b, scores, transform))
        return
    if len(per_class) != classes or rho.size != classes * (classes - 1) // 2:
        raise UnsupportedError(
            f"SVMClassifier has {len(per_class)} groups and {rho.size} offsets for {classes} classes"
        )
    total = sum(per_class)
    vectors = np.array(n.attr("support_vectors")).reshape(total, -1)
    pairs = _affine(b, _kernel(b, n, x, vectors), _pair_weights(_matrix(n, classes - 1), per_class), rho)
    votes = _votes(b, pairs, classes)
    if n.attr("prob_a", ()):
        prob_a, prob_b = (b.const(np.array(n.attr(k)), DType.F32) for k in ("prob_a", "prob_b"))
        scores = b.one("pairwise_probability", [pairs, prob_a, prob_b], classes=classes)
        n.bind(pick_label(b, votes, labels), post_transform(b, scores, transform))
        return
    if classes == 2:
        scores = pair(b, b.scalar("neg", pairs), pairs)
    else:
        scores = pairs
    n.bind(pick_label(b, votes, labels), post_transform(b, scores, transform))


def _pair_weights(coefficients: np.ndarray, per_class: list[int]) -> np.ndarray:
    """One row of kernel weights [V] for every pair of classes i < j, in libsvm's order.

    coefficients [C - 1, V]: for a vector of class i the row j - 1 weighs it against class j > i, row j against j < i.
    """
    starts = np.cumsum([0, *per_class])
    rows = []
    for i in range(len(per_class)):
        for j in range(i + 1, len(per_class)):
            row = np.zeros(coefficients.shape[1])
            first, second = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
            row[first] = coefficients[j - 1, first]
            row[second] = coefficients[i, second]
            rows.append(row)
    return np.array(rows)


def _votes(b: Builder, pairs: str, classes: int) -> str:
    """How many of its pairs each class wins [N, C]: class i wins where the score of (i, j) is positive."""
    first, second = np.triu_indices(classes, 1)
    for_first, for_second = np.zeros((first.size, classes)), np.zeros((first.size, classes))
    for_first[np.arange(first.size), first] = 1
    for_second[np.arange(first.size), second] = 1
    won = b.cast(b.scalar("gt", pairs, b.fill(pairs, 0)), DType.F32)
    lost = b.scalar("sub", b.fill(won, 1), won)
    wins = b.one("matmul", [won, b.const(for_first, DType.F32)])
    return b.scalar("add", wins, b.one("matmul", [lost, b.const(for_second, DType.F32)]))
