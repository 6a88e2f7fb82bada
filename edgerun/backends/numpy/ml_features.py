"""NumPy kernels of feature operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.dtypes import DType
from edgerun.errors import ShapeError

Array = np.ndarray


@kernel("lookup")
def lookup(x: Array, keys: Array, values: Array, default: Array | None = None) -> Array:
    """See edgerun.ops.ml_features.lookup. Raises ShapeError for an unknown element without a default."""
    table = {_key(k): i for i, k in enumerate(keys.tolist())}
    numbers = np.array([table.get(_key(v), -1) for v in x.ravel().tolist()], np.int64).reshape(x.shape)
    unknown = numbers < 0
    if unknown.any() and default is None:
        raise ShapeError(f"there is no entry for {x[unknown].ravel()[0]!r}")
    if not values.size:
        return np.broadcast_to(np.asarray(default).reshape(()), x.shape).copy()
    found = values[numbers]
    if default is not None and unknown.any():
        found = found.copy()
        found[unknown] = default.reshape(-1)[0]
    return np.asarray(found)


def _key(value: Any) -> Any:
    """Equal for equal elements; NaN equals NaN here."""
    return "nan" if isinstance(value, float) and value != value else value


@kernel("svm_kernel")
def svm_kernel(
    x: Array,
    vectors: Array,
    *,
    kind: str = "linear",
    gamma: float = 0.0,
    coef0: float = 0.0,
    degree: float = 0.0,
) -> Array:
    """See edgerun.ops.ml_features.svm_kernel."""
    if kind == "rbf":
        # |x - v|^2 by the differences: the expanded square would cancel.
        squares = np.stack([((x - v) ** 2).sum(axis=1) for v in vectors], axis=1) if len(vectors) else x[:, :0]
        return np.exp(-gamma * squares).astype(x.dtype)
    product = x @ vectors.T
    if kind == "linear":
        return product
    shifted = gamma * product + coef0
    return (np.tanh(shifted) if kind == "sigmoid" else shifted**degree).astype(x.dtype)


@kernel("pairwise_probability")
def pairwise_probability(scores: Array, prob_a: Array, prob_b: Array, *, classes: int) -> Array:
    """See edgerun.ops.ml_features.pairwise_probability."""
    pairs = np.clip(1 / (1 + np.exp(scores.astype(np.float64) * prob_a + prob_b)), 1e-7, 1 - 1e-7)
    first, second = np.triu_indices(classes, 1)
    r = np.zeros((scores.shape[0], classes, classes))
    r[:, first, second] = pairs
    r[:, second, first] = 1 - pairs
    return np.stack([_couple(m) for m in r]).astype(scores.dtype) if len(r) else scores[:, :0].reshape(0, classes)


def _couple(r: Array) -> Array:
    """Probabilities p that minimise the sum of (r[j, i] p[i] - r[i, j] p[j])^2; r[i, j] = P(i | i or j)."""
    count = r.shape[0]
    q = -r.T * r
    np.fill_diagonal(q, (r**2).sum(axis=0))
    p = np.full(count, 1.0 / count)
    for _ in range(max(100, count)):
        qp = q @ p
        total = p @ qp
        if np.abs(qp - total).max() < 0.005 / count:
            break
        for t in range(count):
            step = (total - qp[t]) / q[t, t]
            p[t] += step
            total = (total + step * (step * q[t, t] + 2 * qp[t])) / (1 + step) ** 2
            qp = (qp + step * q[t]) / (1 + step)
            p /= 1 + step
    return p


@kernel("zip_map")
def zip_map(x: Array, labels: Array) -> list[dict[Any, Any]]:
    """See edgerun.ops.ml_features.zip_map."""
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if rows.shape[1] != labels.size:
        raise ShapeError(f"{labels.size} labels for {rows.shape[1]} columns")
    names = labels.tolist()
    return [dict(zip(names, row, strict=True)) for row in rows.tolist()]


@kernel("map_to_tensor")
def map_to_tensor(x: dict[Any, Any], keys: Array | None = None, *, dtype: DType, size: int | None = None) -> Array:
    """See edgerun.ops.ml_features.map_to_tensor. Raises ShapeError for a key outside [0, size)."""
    empty: Any = "" if dtype is DType.STRING else 0
    if keys is not None:
        row = [x.get(k, empty) for k in keys.tolist()]
    elif size is None:
        row = [x[k] for k in sorted(x)]
    else:
        row = [empty] * size
        for key, value in x.items():
            if not 0 <= int(key) < size:
                raise ShapeError(f"the key {key!r} is outside [0, {size})")
            row[int(key)] = value
    if dtype is DType.STRING:
        return np.array([str(v) for v in row], dtype=object)[None]
    return np.array([float(v) if dtype.is_float else int(float(v)) for v in row], dtype.numpy)[None]
