"""Linear models and support vector machines against onnxruntime and scikit-learn."""

import numpy as np
import pytest
from sklearn.svm import SVC, SVR

from tests.ops.single_node import NodeCase

f32 = np.float32
ML = "ai.onnx.ml"


def samples(n=30, features=4, seed=0):
    return np.random.default_rng(seed).standard_normal((n, features)).astype(f32)


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_linear_regression(targets, transform):
    r = np.random.default_rng(1)
    attributes = {
        "coefficients": r.standard_normal(4 * targets).tolist(), "intercepts": r.standard_normal(targets).tolist(),
        "targets": targets, "post_transform": transform,
    }  # fmt: skip
    node = NodeCase("LinearRegressor", {"x": samples()}, attributes, opset=1, domain=ML)
    if targets > 1 or transform == "NONE":
        node.check()
        return
    # onnxruntime leaves a single target without the transform.
    raw = samples() @ np.array(attributes["coefficients"], f32) + attributes["intercepts"][0]
    np.testing.assert_allclose(node.edgerun()[0][:, 0], 1 / (1 + np.exp(-raw)), rtol=1e-4)


@pytest.mark.parametrize("labels", [[3, 5, 8], ["a", "b", "c"], [2, 9]], ids=str)
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_classification(labels, transform):
    r = np.random.default_rng(2)
    attributes = {
        "coefficients": r.standard_normal(4 * len(labels)).tolist(),
        "intercepts": r.standard_normal(len(labels)).tolist(), "post_transform": transform, "multi_class": 1,
        "classlabels_strings" if isinstance(labels[0], str) else "classlabels_ints": labels,
    }  # fmt: skip
    NodeCase("LinearClassifier", {"x": samples()}, attributes, outputs=2, opset=1, domain=ML).check()


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("labels", [[0, 1], ["n", "y"]], ids=str)
def test_single_score_for_two_classes(transform, labels):
    attributes = {
        "coefficients": [0.5, -1.0, 2.0, 0.1], "intercepts": [0.2], "post_transform": transform,
        "classlabels_strings" if isinstance(labels[0], str) else "classlabels_ints": labels,
    }  # fmt: skip
    NodeCase("LinearClassifier", {"x": samples()}, attributes, outputs=2, opset=1, domain=ML).check()


def kernel_attributes(model, kind):
    degree = float(model.degree) if kind == "poly" else 0.0
    return {"kernel_type": kind.upper(), "kernel_params": [float(model._gamma), float(model.coef0), degree]}


@pytest.mark.parametrize("kind", ["linear", "poly", "rbf", "sigmoid"])
def test_support_vector_regression(kind):
    x = samples(60)
    model = SVR(kernel=kind, coef0=0.5, degree=3).fit(x, np.sin(x.sum(1)))
    attributes = kernel_attributes(model, kind) | {
        "n_supports": len(model.support_vectors_), "support_vectors": model.support_vectors_.ravel().tolist(),
        "coefficients": model.dual_coef_.ravel().tolist(), "rho": model.intercept_.tolist(),
    }  # fmt: skip
    node = NodeCase("SVMRegressor", {"x": samples(seed=9)}, attributes, opset=1, domain=ML)
    node.check(rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(node.edgerun()[0][:, 0], model.predict(samples(seed=9)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("one_class", [0, 1])
def test_linear_support_vector_regression(one_class):
    attributes = {"coefficients": [0.5, -1.0, 2.0, 0.1], "rho": [0.2], "one_class": one_class}
    attributes |= {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
    NodeCase("SVMRegressor", {"x": samples()}, attributes, opset=1, domain=ML).check()


@pytest.mark.parametrize("kind", ["linear", "rbf", "poly"])
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("probability", [False, True])
def test_support_vector_classification(kind, classes, probability):
    x = samples(80, seed=3)
    y = np.digitize(x.sum(1), np.linspace(-1.5, 1.5, classes - 1)) if classes > 2 else (x.sum(1) > 0).astype(int)
    model = SVC(kernel=kind, coef0=0.5).fit(x, y)
    pairs = classes * (classes - 1) // 2
    dual, rho = model._dual_coef_, model._intercept_
    attributes = kernel_attributes(model, kind) | {
        "support_vectors": model.support_vectors_.ravel().tolist(), "coefficients": dual.ravel().tolist(),
        "rho": rho.tolist(), "vectors_per_class": model.n_support_.tolist(),
        "classlabels_ints": list(range(classes)), "post_transform": "NONE",
    }  # fmt: skip
    if probability:
        r = np.random.default_rng(4)
        attributes |= {"prob_a": (-1 - r.random(pairs)).tolist(), "prob_b": r.standard_normal(pairs).tolist()}
    given = samples(40, seed=5)
    node = NodeCase("SVMClassifier", {"x": given}, attributes, outputs=2, opset=1, domain=ML)
    node.check(rtol=1e-3, atol=1e-4)
    label, scores = node.edgerun()
    assert (label == model.predict(given)).mean() >= 0.95
    if probability:
        np.testing.assert_allclose(scores.sum(1), 1, atol=1e-5)
