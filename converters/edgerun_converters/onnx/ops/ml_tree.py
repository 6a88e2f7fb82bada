"""TreeEnsemble, TreeEnsembleClassifier and TreeEnsembleRegressor of ai.onnx.ml, every version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.ops.ml_tree import AGGREGATES
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering
from edgerun_converters.onnx.scores import (
    TRANSFORMS,
    choose_label,
    class_labels,
    pair,
    pick_label,
    post_transform,
    rows_of_floats,
)

ML = "ai.onnx.ml"
_MODES = {
    "BRANCH_LEQ": 0, "BRANCH_LT": 1, "BRANCH_GTE": 2, "BRANCH_GT": 3, "BRANCH_EQ": 4, "BRANCH_NEQ": 5,
}  # fmt: skip
_MEMBER = 6


@dataclass
class _Forest:
    """The arrays of the tree_ensemble op while they are being built; references as there."""

    roots: list[int] = field(default_factory=list)
    features: list[int] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    thresholds: list[float] = field(default_factory=list)
    yes: list[int] = field(default_factory=list)
    no: list[int] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)
    leaves: list[list[tuple[int, float]]] = field(default_factory=list)

    def emit(self, b: Builder, x: str, outputs: int, aggregate: str) -> str:
        if aggregate not in AGGREGATES:
            raise UnsupportedError(f"there is no aggregate function {aggregate!r}")
        real = b.dtype(x).numpy
        flat = [item for leaf in self.leaves for item in leaf]
        if any(not 0 <= target < outputs for target, _ in flat):
            raise UnsupportedError(f"a leaf contributes to an output outside [0, {outputs})")
        offsets = np.cumsum([0, *map(len, self.leaves)])
        arrays: dict[str, np.ndarray] = {
            "roots": np.array(self.roots, np.int32),
            "features": np.array(self.features, np.int32),
            "modes": np.array(self.modes, np.uint8),
            "thresholds": np.array(self.thresholds, real),
            "yes": np.array(self.yes, np.int32),
            "no": np.array(self.no, np.int32),
            "missing": np.array(self.missing, bool),
            "offsets": offsets.astype(np.int32),
            "targets": np.array([t for t, _ in flat], np.int32),
            "weights": np.array([w for _, w in flat], real),
        }
        names = [b.const(a, hint=f"{b.node_name or 'trees'}.{k}") for k, a in arrays.items()]
        return b.one("tree_ensemble", [x, *names], width=outputs, aggregate=aggregate)


def _values(n: OnnxNode, name: str, count: int | None = None, default: float = 0.0) -> list[Any]:
    """A list attribute, or the tensor attribute of the same name with the ending _as_tensor."""
    tensor = n.attr(name + "_as_tensor", None)
    values = tensor.ravel().tolist() if tensor is not None else list(n.attr(name, ()))
    if count is not None and not values:
        return [default] * count
    if count is not None and len(values) != count:
        raise UnsupportedError(f"{n.op_type} has {len(values)} {name} for {count} entries")
    return values


def _read_forest(n: OnnxNode, prefix: str) -> _Forest:
    """The trees of TreeEnsembleClassifier (prefix "class") or TreeEnsembleRegressor ("target")."""
    trees, ids = _values(n, "nodes_treeids"), _values(n, "nodes_nodeids")
    count = len(trees)
    modes = list(n.attr("nodes_modes"))
    columns = [_values(n, f"nodes_{k}", count) for k in ("featureids", "values", "truenodeids", "falsenodeids")]
    features, thresholds, yes, no = columns
    missing = _values(n, "nodes_missing_value_tracks_true", count)
    if len(ids) != count or len(modes) != count:
        raise UnsupportedError(f"{n.op_type} has node attributes of different lengths")

    forest = _Forest()
    reference: dict[tuple[int, int], int] = {}
    for k in range(count):
        key = (trees[k], ids[k])
        if key in reference:
            raise UnsupportedError(f"node {ids[k]} of tree {trees[k]} is given twice")
        if modes[k] == "LEAF":
            reference[key] = -1 - len(forest.leaves)
            forest.leaves.append([])
            continue
        if modes[k] not in _MODES:
            raise UnsupportedError(f"there is no node mode {modes[k]!r}")
        reference[key] = len(forest.features)
        forest.features.append(features[k])
        forest.modes.append(_MODES[modes[k]])
        forest.thresholds.append(thresholds[k])
        forest.missing.append(bool(missing[k]))
    children = set()
    for k in range(count):
        if modes[k] != "LEAF":
            for branch, table in ((yes, forest.yes), (no, forest.no)):
                key = (trees[k], branch[k])
                if key not in reference:
                    raise UnsupportedError(f"node {branch[k]} of tree {trees[k]} is missing")
                children.add(key)
                table.append(reference[key])
    roots = [key for key in reference if key not in children]
    if sorted(t for t, _ in roots) != sorted(set(trees)):
        raise UnsupportedError(f"{n.op_type} has a tree without exactly one root")
    forest.roots = [reference[key] for key in roots]

    where = zip(_values(n, f"{prefix}_treeids"), _values(n, f"{prefix}_nodeids"), strict=True)
    for key, target, weight in zip(where, _values(n, f"{prefix}_ids"), _values(n, f"{prefix}_weights"), strict=True):
        leaf = reference.get(key, 0)
        if leaf >= 0:
            raise UnsupportedError(f"the weight of node {key[1]} of tree {key[0]} does not belong to a leaf")
        forest.leaves[-1 - leaf].append((target, weight))
    return forest


def _with_base(b: Builder, y: str, base: Sequence[float], width: int) -> str:
    if base and len(base) != width:
        raise UnsupportedError(f"there are {len(base)} base values for {width} scores")
    return b.scalar("add", y, b.const(np.array(base), b.dtype(y))) if base else y


@lowering("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(b: Builder, n: OnnxNode) -> None:
    x = rows_of_floats(b, n.input(0))
    targets = int(n.attr("n_targets", 1))
    y = _read_forest(n, "target").emit(b, x, targets, str(n.attr("aggregate_function", "SUM")).lower())
    y = _with_base(b, y, _values(n, "base_values"), targets)
    n.bind(b.cast(post_transform(b, y, n.attr("post_transform", "NONE")), DType.F32))


@lowering("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(b: Builder, n: OnnxNode) -> None:
    """The class of the highest score, except with two classes whose weights all name one class.

    Those, as exporters write and runtimes read them, give one score s: a probability (threshold 0.5) when no weight
    is negative, else a margin (threshold 0). Weights that all name class 0 then mean the second class, and the score
    of the first is 1 - s, -s for margins, or the other logistic.
    """
    x = rows_of_floats(b, n.input(0))
    labels, transform = class_labels(n), str(n.attr("post_transform", "NONE"))
    forest = _read_forest(n, "class")
    base = _values(n, "base_values")
    used = {target for leaf in forest.leaves for target, _ in leaf}
    threshold = 0.5 if all(weight >= 0 for leaf in forest.leaves for _, weight in leaf) else 0.0
    if len(labels) == 2 and used == {0} and len(base) <= 1:
        score = _with_base(b, forest.emit(b, x, 1, "sum"), base, 1)
        label = choose_label(b, b.scalar("gt", score, b.fill(score, threshold)), labels)
        n.bind(label, b.cast(_two_scores(b, score, threshold > 0, transform), DType.F32))
        return
    y = _with_base(b, forest.emit(b, x, len(labels), "sum"), base, len(labels))
    if len(labels) == 2 and used == {1} and not base:
        second = b.one("slice", [y], ranges=((1, 1, 1, 1),))
        label = choose_label(b, b.scalar("gt", second, b.fill(second, threshold)), labels)
    else:
        label = pick_label(b, y, labels)
    n.bind(label, b.cast(post_transform(b, y, transform), DType.F32))


def _two_scores(b: Builder, score: str, probability: bool, transform: str) -> str:
    if transform == "PROBIT":
        raise UnsupportedError("PROBIT of a single score for two classes is not defined")
    if transform == "LOGISTIC":
        return post_transform(b, pair(b, b.scalar("neg", score), score), transform)
    other = b.scalar("sub", b.fill(score, 1), score) if probability else b.scalar("neg", score)
    return pair(b, other, score)


@lowering("TreeEnsemble", domain=ML)
def tree_ensemble(b: Builder, n: OnnxNode) -> None:
    x = rows_of_floats(b, n.input(0))
    modes = np.asarray(n.attr("nodes_modes")).ravel().tolist()
    count = len(modes)
    columns = ("featureids", "splits", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    features, splits, yes, no, yes_leaf, no_leaf = (_array(n, f"nodes_{k}", count) for k in columns)
    missing = _array(n, "nodes_missing_value_tracks_true", count, optional=True)
    forest = _Forest(roots=[int(r) for r in n.attr("tree_roots")])
    forest.features, forest.thresholds, forest.modes = features, splits, modes
    forest.yes = [-1 - r if leaf else r for r, leaf in zip(yes, yes_leaf, strict=True)]
    forest.no = [-1 - r if leaf else r for r, leaf in zip(no, no_leaf, strict=True)]
    forest.missing = [bool(m) for m in missing]
    weights = np.asarray(n.attr("leaf_weights")).ravel().tolist()
    targets = _array(n, "leaf_targetids", len(weights))
    forest.leaves = [[item] for item in zip(targets, weights, strict=True)]
    references = [*forest.roots, *forest.yes, *forest.no]
    if any(not -len(weights) <= r < count for r in references) or any(r < 0 for r in forest.roots):
        raise UnsupportedError("a reference in TreeEnsemble points outside its nodes and leaves")
    _expand_members(n, forest)
    number = int(n.attr("aggregate_function", 1))
    transform = int(n.attr("post_transform", 0))
    if not 0 <= number < 4 or not 0 <= transform < len(TRANSFORMS):
        raise UnsupportedError(f"TreeEnsemble has the aggregate {number} and the post transform {transform}")
    y = forest.emit(b, x, int(n.attr("n_targets", 1)), ("average", "sum", "min", "max")[number])
    y = post_transform(b, y, TRANSFORMS[transform])
    n.bind(b.cast(y, b.dtype(n.input(0))))


def _array(n: OnnxNode, name: str, count: int, *, optional: bool = False) -> list[Any]:
    if optional and name not in n.attributes:
        return [0] * count
    values = np.asarray(n.attr(name)).ravel().tolist()
    if len(values) != count:
        raise UnsupportedError(f"TreeEnsemble has {len(values)} {name} for {count} entries")
    return values


def _expand_members(n: OnnxNode, forest: _Forest) -> None:
    """Turn each test for set membership into a chain of tests for equality."""
    sets: list[list[float]] = [[]]
    for value in np.asarray(n.attr("membership_values", np.zeros(0))).ravel().tolist():
        if value != value:
            sets.append([])
        else:
            sets[-1].append(value)
    members = iter(sets)
    for node in [k for k, mode in enumerate(forest.modes) if mode == _MEMBER]:
        values = next(members, None)
        if values is None:
            raise UnsupportedError("TreeEnsemble has fewer sets than nodes that test for membership")
        equal, otherwise = _MODES["BRANCH_EQ"], forest.no[node]
        forest.modes[node] = equal
        # An empty set matches nothing: no number equals NaN.
        forest.thresholds[node] = values[0] if values else float("nan")
        last = node
        for value in values[1:]:
            forest.no[last] = len(forest.features)
            last = len(forest.features)
            forest.features.append(forest.features[node])
            forest.modes.append(equal)
            forest.thresholds.append(value)
            forest.yes.append(forest.yes[node])
            forest.no.append(otherwise)
            forest.missing.append(forest.missing[node])
    if any(mode > _MEMBER for mode in forest.modes):
        raise UnsupportedError("TreeEnsemble has an unknown node mode")
