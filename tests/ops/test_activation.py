"""Activations of layer epilogues against their definitions, and their numbers against the C runtime's."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

import edgerun.backends.native
from edgerun.backends.numpy.activation import activate, erf
from edgerun.ops.activation import ACTIVATIONS, RESIDUALS

X = np.array([-math.inf, -90.0, -3.0, -1.0, -0.25, 0.0, 0.5, 2.0, 90.0, math.inf, math.nan], np.float32)


def sigmoid(x):
    return 0.0 if x < -700 else 1 / (1 + math.exp(-x))


DEFINITIONS = {
    "none": lambda x: x,
    "clamp": lambda x: min(max(x, -1.5), 2.5),
    "leaky": lambda x: -1.5 * x if x < 0 else x,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "hardsigmoid": lambda x: min(max(-1.5 * x + 2.5, 0), 1),
    "hardswish": lambda x: x * min(max(x / 6 + 0.5, 0), 1),
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "tanh": math.tanh,
    "elu": lambda x: -1.5 * math.expm1(x) if x < 0 else x,
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_definition(name):
    with np.errstate(all="ignore"):
        y = activate(X, name, -1.5, 2.5)
    assert y.dtype == np.float32
    assert np.isnan(y[-1])
    finite = X[1:-2]
    np.testing.assert_allclose(y[1:-2], [DEFINITIONS[name](float(x)) for x in finite], rtol=1e-5, atol=1e-6)


def test_prelu():
    y = activate(np.array([[-2.0, -2.0], [3.0, 4.0]], np.float32), "prelu", slope=np.array([0.5, 2.0], np.float32))
    assert y.tolist() == [[-1.0, -4.0], [3.0, 4.0]]


def test_every_activation_has_a_function():
    assert set(ACTIVATIONS) == {*DEFINITIONS, "prelu"}


def test_error_function():
    x = np.linspace(-7, 7, 2001)
    np.testing.assert_allclose(erf(x), [math.erf(v) for v in x], rtol=1e-13, atol=1e-15)
    assert erf(np.array([math.inf, -math.inf])).tolist() == [1.0, -1.0]
    assert np.isnan(erf(np.array([math.nan]))).all()


def test_numbers_are_those_of_the_runtime():
    header = (Path(edgerun.backends.native.__file__).parent / "csrc" / "kernel.h").read_text()
    for prefix, table in (("ER_ACT_", ACTIVATIONS), ("ER_RES_", RESIDUALS)):
        found = {name.lower(): int(value) for name, value in re.findall(rf"{prefix}(\w+) = (\d+)", header)}
        assert found == table
