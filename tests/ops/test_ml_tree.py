"""Tree ensembles against onnxruntime and a node-by-node walk."""

import numpy as np
import pytest

from edgerun.errors import EdgerunError
from tests.ops.single_node import NodeCase, assert_same

f32 = np.float32
ML = "ai.onnx.ml"
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def forest(trees=7, depth=4, features=5, classes=(0, 1, 2), modes=("BRANCH_LEQ",), seed=0, positive=False, every=False):
    """Attributes of random full trees: node k has the children 2k + 1 and 2k + 2."""
    r = np.random.default_rng(seed)
    count = 2**depth - 1
    inner = 2 ** (depth - 1) - 1
    table: dict[str, list] = {
        k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    }
    table["missing_value_tracks_true"] = []
    weights: dict[str, list] = {"treeids": [], "nodeids": [], "ids": [], "weights": []}
    for tree in range(trees):
        for k in range(count):
            leaf = k >= inner
            row = (tree, k, int(r.integers(features)), float(np.round(r.standard_normal(), 1)))
            rest = ("LEAF" if leaf else str(r.choice(modes)), 0 if leaf else 2 * k + 1, 0 if leaf else 2 * k + 2)
            for key, value in zip(table, (*row, *rest, int(r.integers(2))), strict=True):
                table[key].append(value)
            if leaf:
                for c in classes if every else [r.choice(classes)]:
                    weight = float(r.standard_normal())
                    new = (tree, k, int(c), abs(weight) / trees if positive else weight)
                    for key, value in zip(weights, new, strict=True):
                        weights[key].append(value)
    return {f"nodes_{k}": v for k, v in table.items()}, weights


def regressor(x, nodes, weights, targets, **attributes):
    attributes |= nodes | {f"target_{k}": v for k, v in weights.items()} | {"n_targets": targets}
    return NodeCase("TreeEnsembleRegressor", {"x": x}, attributes, opset=3, domain=ML)


def classifier(x, nodes, weights, labels, **attributes):
    attributes |= nodes | {f"class_{k}": v for k, v in weights.items()}
    attributes |= {"classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s": labels}
    return NodeCase("TreeEnsembleClassifier", {"x": x}, attributes, outputs=2, opset=3, domain=ML)


def samples(n=50, features=5, seed=1, missing=False):
    r = np.random.default_rng(seed)
    x = np.round(r.standard_normal((n, features)), 1).astype(f32)
    if missing:
        x[r.random(x.shape) < 0.2] = np.nan
    return x


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_regression(aggregate, targets):
    # Every leaf speaks of every target: onnxruntime leaves the base value out where none does.
    nodes, weights = forest(classes=range(targets), every=True)
    regressor(samples(), nodes, weights, targets, aggregate_function=aggregate).check()
    regressor(samples(), nodes, weights, targets, aggregate_function=aggregate, base_values=[0.5] * targets).check()


@pytest.mark.parametrize("modes", [[m] for m in MODES] + [MODES], ids=lambda m: m[0] if len(m) == 1 else "mixed")
@pytest.mark.parametrize("missing", [False, True])
def test_node_modes_and_missing_values(modes, missing):
    nodes, weights = forest(modes=modes, classes=[0])
    x = samples(missing=missing)
    (y,) = regressor(x, nodes, weights, 1).edgerun()
    np.testing.assert_allclose(y, walk(x, nodes, weights), rtol=1e-5, atol=1e-6)


def walk(x, nodes, weights):
    """Follow every tree for every sample, one node at a time."""
    compare = dict(zip(MODES, ("__le__", "__lt__", "__ge__", "__gt__", "__eq__", "__ne__"), strict=True))
    index = {k: i for i, k in enumerate(zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], strict=True))}
    value = {(t, k): w for t, k, w in zip(weights["treeids"], weights["nodeids"], weights["weights"], strict=True)}
    result = np.zeros((len(x), 1))
    for n, row in enumerate(x):
        for tree in set(nodes["nodes_treeids"]):
            node = 0
            while (mode := nodes["nodes_modes"][i := index[tree, node]]) != "LEAF":
                feature = row[nodes["nodes_featureids"][i]]
                taken = bool(getattr(feature, compare[mode])(f32(nodes["nodes_values"][i])))
                taken |= bool(np.isnan(feature) and nodes["nodes_missing_value_tracks_true"][i])
                node = nodes["nodes_truenodeids" if taken else "nodes_falsenodeids"][i]
            result[n, 0] += value[tree, node]
    return result


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("labels", [[4, 7, 9], ["a", "b", "c"]], ids=["numbers", "strings"])
def test_classification(transform, labels):
    nodes, weights = forest(every=True)
    classifier(samples(), nodes, weights, labels, post_transform=transform).check()
    classifier(samples(), nodes, weights, labels, post_transform=transform, base_values=[0.1, 0.5, -0.4]).check()


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("used", [0, 1])
def test_two_classes_with_one_score(transform, positive, used):
    nodes, weights = forest(classes=[used], positive=positive)
    classifier(samples(), nodes, weights, [3, 5], post_transform=transform).check()
    if used == 0:
        classifier(samples(), nodes, weights, ["no", "yes"], post_transform=transform, base_values=[0.3]).check()


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_two_classes_with_two_scores(transform):
    """onnxruntime gives the labels 0 and 1 here, whatever the model's labels are: only its scores can be compared."""
    nodes, weights = forest(classes=[0, 1], every=True)
    node = classifier(samples(), nodes, weights, [3, 5], post_transform=transform)
    label, scores = node.edgerun()
    np.testing.assert_allclose(scores, node.reference()[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(label, np.array([3, 5])[scores.argmax(1)])


def test_probit():
    nodes, weights = forest(classes=[0], positive=True, trees=3)
    weights["weights"] = [0.05 + 0.9 * w / max(weights["weights"]) / 3 for w in weights["weights"]]
    regressor(samples(), nodes, weights, 1, post_transform="PROBIT").check(rtol=1e-3, atol=1e-3)


def test_double_precision():
    nodes, weights = forest(classes=[0])
    attributes = {f"{k}_as_tensor": np.array(nodes.pop(k)) for k in ("nodes_values",)}
    attributes["target_weights_as_tensor"] = np.array(weights.pop("weights"))
    from onnx import numpy_helper

    attributes = {k: numpy_helper.from_array(v, k) for k, v in attributes.items()}
    regressor(samples().astype(np.float64), nodes, weights, 1, **attributes).check()


def test_integer_features():
    nodes, weights = forest(classes=[0])
    x = np.random.default_rng(3).integers(-2, 3, (20, 5))
    node = regressor(x, nodes, weights, 1)
    expected = regressor(x.astype(f32), nodes, weights, 1).reference()
    assert_same(node.edgerun(), expected)


def test_a_tree_may_be_a_single_leaf():
    nodes, weights = forest(trees=2, depth=1, classes=[0])
    regressor(samples(), nodes, weights, 1).check()


def test_version_five_with_set_membership():
    from onnx import numpy_helper

    attributes = {
        "n_targets": 2, "aggregate_function": 1, "post_transform": 0, "tree_roots": [0],
        "nodes_modes": np.array([0, 6, 6], np.uint8), "nodes_featureids": [0, 1, 1],
        "nodes_splits": np.array([3.14, 0, 0], f32),
        "membership_values": np.array([1.2, 3.7, 8, 9, np.nan, 12, 7], f32),
        "nodes_truenodeids": [1, 0, 1], "nodes_trueleafs": [0, 1, 1], "nodes_falsenodeids": [2, 2, 3],
        "nodes_falseleafs": [0, 1, 1], "leaf_targetids": [0, 1, 0, 1],
        "leaf_weights": np.array([5.23, 12.12, -12.23, 7.21], f32),
    }  # fmt: skip
    attributes = {k: numpy_helper.from_array(v, k) if isinstance(v, np.ndarray) else v for k, v in attributes.items()}
    x = np.array([[1.2, 3.7], [1.2, 0], [9, 12], [9, 1], [np.nan, 7]], f32)
    (y,) = NodeCase("TreeEnsemble", {"x": x}, attributes, opset=5, domain=ML).edgerun()
    expected = [[5.23, 0], [-12.23, 0], [0, 12.12], [0, 7.21], [0, 12.12]]
    np.testing.assert_allclose(y, np.array(expected, f32))


def test_missing_child_is_refused():
    nodes, weights = forest(trees=1)
    nodes["nodes_truenodeids"][0] = 99
    with pytest.raises(EdgerunError, match="missing"):
        regressor(samples(), nodes, weights, 3).graph()


def test_too_few_features_are_an_error():
    nodes, weights = forest()
    with pytest.raises(EdgerunError, match="feature"):
        regressor(samples(features=2), nodes, weights, 3).edgerun()
