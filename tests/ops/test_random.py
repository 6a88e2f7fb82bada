"""Random operators: shapes, moments, seeds. Streams are ours, so there is no reference for single numbers."""

import numpy as np
import pytest

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.errors import EdgerunError
from edgerun_converters.passes.pipeline import optimize
from tests.ops.single_node import NodeCase, assert_same

f32 = np.float32


@pytest.mark.parametrize("like", [False, True])
@pytest.mark.parametrize("seed", [3.0, 0.25, None])
def test_normal_numbers(like, seed):
    attributes = {"mean": 2.0, "scale": 3.0} | ({} if seed is None else {"seed": seed})
    inputs = {"x": np.zeros((100, 200), f32)} if like else {}
    if not like:
        attributes["shape"] = [100, 200]
    node = NodeCase("RandomNormalLike" if like else "RandomNormal", inputs, attributes)
    (y,), (z,) = node.edgerun(), node.edgerun()
    assert y.shape == (100, 200) and y.dtype == f32
    assert abs(y.mean() - 2) < 0.1 and abs(y.std() - 3) < 0.1
    assert (y == z).all() == (seed is not None)


def test_uniform_numbers_of_a_stated_type():
    node = NodeCase("RandomUniform", {}, {"shape": [1000], "low": -1.0, "high": 3.0, "dtype": 11, "seed": 1.0})
    (y,) = node.edgerun()
    assert y.dtype == np.float64 and y.min() >= -1 and y.max() < 3 and abs(y.mean() - 1) < 0.2


def test_random_nodes_are_not_folded():
    node = NodeCase("RandomUniformLike", {"x": np.zeros(4, f32)}, {"seed": 1.0}, constant=("x",))
    assert [n.op for n in node.graph().nodes] == ["random_uniform"]


def test_multinomial_frequencies():
    p = np.array([[0.1, 0.2, 0.7], [1, 0, 0]])
    with np.errstate(divide="ignore"):
        x = np.log(p).astype(f32)
    (y,) = NodeCase("Multinomial", {"x": x}, {"sample_size": 5000, "seed": 2.0, "dtype": 7}).edgerun()
    assert y.dtype == np.int64 and y.shape == (2, 5000)
    np.testing.assert_allclose(np.bincount(y[0], minlength=3) / 5000, p[0], atol=0.03)
    assert not y[1].any()


def test_bernoulli():
    x = np.array([0.0, 1.0] + [0.5] * 2000, f32)
    (y,) = NodeCase("Bernoulli", {"x": x}, {"seed": 0.0, "dtype": 9}).edgerun()
    assert y.dtype == bool and not y[0] and y[1] and abs(y[2:].mean() - 0.5) < 0.05
    with pytest.raises(EdgerunError, match="probability"):
        NodeCase("Bernoulli", {"x": x + 1}).edgerun()


def test_dropout_is_the_identity_outside_training():
    x = np.arange(6, dtype=f32).reshape(2, 3)
    y, mask = NodeCase("Dropout", {"x": x, "r": np.array(0.9, f32)}, outputs=2, opset=13).edgerun()
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == bool and mask.all()
    (y,) = NodeCase("Dropout", {"x": x}, {"ratio": 0.5}, opset=7).edgerun()
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("known", [False, True])
def test_dropout_in_training(known):
    x = np.ones((50, 60), f32)
    inputs = {"x": x, "r": np.array(0.25, f32), "t": np.array(True)}
    node = NodeCase("Dropout", inputs, {"seed": 5}, outputs=2, opset=13, constant=("t",) if known else ())
    y, mask = node.edgerun()
    np.testing.assert_allclose(y, np.where(mask, 1 / 0.75, 0), rtol=1e-6)
    assert abs(mask.mean() - 0.75) < 0.05
    if not known:
        inputs["t"] = np.array(False)
        np.testing.assert_array_equal(NodeCase("Dropout", inputs, outputs=1, opset=13).edgerun()[0], x)


def test_dropout_keeps_its_scale_when_optimised_with_its_mask():
    inputs = {"x": np.ones((4, 5), f32), "r": np.array(0.5, f32), "t": np.array(True)}
    node = NodeCase("Dropout", inputs, {"seed": 0}, outputs=2, opset=13)
    graph = optimize(node.graph())
    results = NumpyExecutor(graph).run(inputs)
    assert_same([results[o] for o in graph.outputs], node.edgerun())
