"""NumPy kernel of tree ensembles: all samples and all trees descend together, one level a pass."""

from __future__ import annotations

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.errors import ShapeError

Array = np.ndarray
CHUNK = 1 << 20
"""Most (sample, tree) pairs held at once."""


@kernel("tree_ensemble")
def tree_ensemble(
    x: Array,
    roots: Array,
    features: Array,
    modes: Array,
    thresholds: Array,
    yes: Array,
    no: Array,
    missing: Array,
    offsets: Array,
    targets: Array,
    weights: Array,
    *,
    width: int,
    aggregate: str = "sum",
) -> Array:
    """See edgerun.ops.ml_tree.tree_ensemble. Raises ShapeError when x lacks a feature or a tree has a cycle."""
    if features.size and int(features.max()) >= x.shape[1]:
        raise ShapeError(f"the trees read feature {int(features.max())} of {x.shape[1]}")
    result = np.zeros((x.shape[0], width), x.dtype)
    rows = max(CHUNK // max(roots.size, 1), 1)
    for start in range(0, x.shape[0], rows):
        part = slice(start, start + rows)
        leaves = _descend(x[part], roots, features, modes, thresholds, yes, no, missing)
        result[part] = _aggregate(leaves, offsets, targets, weights, width, aggregate)
    return result


def _aggregate(leaves: Array, offsets: Array, targets: Array, weights: Array, width: int, aggregate: str) -> Array:
    """The contributions of the leaves [N, T] that were reached, per output, in float64: [N, width]."""
    first, count = offsets[leaves].ravel(), np.diff(offsets)[leaves].ravel()
    samples = np.repeat(np.arange(leaves.shape[0]), leaves.shape[1])
    if (count != 1).any():
        # Positions first, first + 1, ... of every leaf, one after the other.
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        first, samples = np.repeat(first, count) + within, np.repeat(samples, count)
    cells = samples * width + targets[first]
    size = leaves.shape[0] * width
    if aggregate in ("sum", "average"):
        values = np.bincount(cells, weights=weights[first], minlength=size)
        if aggregate == "average":
            values = values / leaves.shape[1]
    else:
        values = np.full(size, np.inf if aggregate == "min" else -np.inf)
        (np.minimum if aggregate == "min" else np.maximum).at(values, cells, weights[first])
        values[np.bincount(cells, minlength=size) == 0] = 0
    return values.reshape(-1, width)


def _descend(
    x: Array,
    roots: Array,
    features: Array,
    modes: Array,
    thresholds: Array,
    yes: Array,
    no: Array,
    missing: Array,
) -> Array:
    """The leaf that each sample reaches in each tree: [N, T]."""
    samples = np.repeat(np.arange(x.shape[0]), roots.size)
    references = np.tile(roots.astype(np.int64), x.shape[0])
    moving = np.flatnonzero(references >= 0)
    any_missing = bool(missing.any())
    uniform = int(modes[0]) if modes.size and (modes == modes[0]).all() else None
    for _ in range(features.size + 1):
        if not moving.size:
            return (-1 - references).reshape(x.shape[0], roots.size)
        nodes = references[moving]
        values = x[samples[moving], features[nodes]]
        limits = thresholds[nodes]
        taken = _compare(values, limits, modes[nodes] if uniform is None else uniform)
        if any_missing:
            taken |= missing[nodes] & np.isnan(values)
        following = np.where(taken, yes[nodes], no[nodes])
        references[moving] = following
        moving = moving[following >= 0]
    raise ShapeError("a tree has a cycle")


def _compare(values: Array, limits: Array, mode: Array | int) -> Array:
    functions = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
    if isinstance(mode, int):
        return functions[mode](values, limits)
    result = np.zeros(values.shape, bool)
    for number in np.unique(mode).tolist():
        chosen = mode == number
        result[chosen] = functions[number](values[chosen], limits[chosen])
    return result
