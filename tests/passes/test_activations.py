"""Activations in the many ways that exporters write them."""

import math

import numpy as np
import pytest

from edgerun.dtypes import DType
from edgerun_converters.passes.activations import Activation, activation_program, classify
from edgerun_converters.passes.expressions import Expr, apply, from_program

X: Expr = ("in", 0)
K = 0.7978845608
"""sqrt(2 / pi) as exporters write it."""


def c(value: float) -> Expr:
    return ("const", value)


def f(function: str, *args: Expr) -> Expr:
    return apply(function, *args)


SPELLINGS = {
    "relu": (f("max", X, c(0.0)), Activation("clamp", 0.0, math.inf)),
    "relu6": (f("min", f("max", X, c(0.0)), c(6.0)), Activation("clamp", 0.0, 6.0)),
    "relu then clip from below": (f("max", f("max", c(0.0), X), c(-1.0)), Activation("clamp", 0.0, math.inf)),
    "hard sigmoid": (
        f("min", f("max", f("add", f("mul", X, c(0.2)), c(0.5)), c(0.0)), c(1.0)),
        Activation("hardsigmoid", 0.2, 0.5),
    ),
    "hard sigmoid as relu6(x + 3) / 6": (
        f("div", f("min", f("max", f("add", X, c(3.0)), c(0.0)), c(6.0)), c(6.0)),
        Activation("hardsigmoid", 1 / 6, 0.5),
    ),
    "hard swish, divided last": (
        f("div", f("mul", X, f("min", f("max", f("add", X, c(3.0)), c(0.0)), c(6.0))), c(6.0)),
        Activation("hardswish"),
    ),
    "hard swish, gate first": (
        f("mul", f("mul", f("min", f("max", f("add", c(3.0), X), c(0.0)), c(6.0)), c(1 / 6)), X),
        Activation("hardswish"),
    ),
    "silu": (f("mul", X, f("sigmoid", X)), Activation("silu")),
    "silu with a written-out sigmoid": (
        f("div", X, f("add", c(1.0), f("exp", f("neg", X)))),
        Activation("silu"),
    ),
    "gelu": (
        f("mul", f("mul", X, c(0.5)), f("add", f("erf", f("div", X, c(1.4142135381698608))), c(1.0))),
        Activation("gelu"),
    ),
    "gelu, half inside": (
        f("mul", X, f("mul", c(0.5), f("add", c(1.0), f("erf", f("mul", X, c(0.70710677)))))),
        Activation("gelu"),
    ),
    "gelu by tanh": (
        f(
            "mul",
            f("mul", c(0.5), X),
            f("add", c(1.0), f("tanh", f("mul", c(K), f("add", X, f("mul", c(0.044715), f("pow", X, c(3.0))))))),
        ),
        Activation("gelu_tanh"),
    ),
    "gelu by tanh, factored": (
        f(
            "mul",
            f("mul", c(0.5), X),
            f(
                "add",
                c(1.0),
                f("tanh", f("mul", f("mul", c(K), X), f("add", c(1.0), f("mul", f("mul", c(0.044715), X), X)))),
            ),
        ),
        Activation("gelu_tanh"),
    ),
    "leaky relu": (f("where", f("lt", X, c(0.0)), f("mul", X, c(0.1)), X), Activation("leaky", 0.1)),
    "leaky relu by ge": (f("where", f("ge", X, c(0.0)), X, f("mul", X, c(0.1))), Activation("leaky", 0.1)),
    "leaky relu by max": (f("max", X, f("mul", c(0.2), X)), Activation("leaky", 0.2)),
    "prelu": (f("where", f("lt", X, c(0.0)), f("mul", ("in", 1), X), X), Activation("prelu")),
    "elu": (
        f("where", f("lt", X, c(0.0)), f("mul", c(0.7), f("sub", f("exp", X), c(1.0))), X),
        Activation("elu", 0.7),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling_is_recognised(name):
    expression, expected = SPELLINGS[name]
    found = classify(expression)
    assert found is not None and found.name == expected.name
    assert found.p0 == pytest.approx(expected.p0) and found.p1 == pytest.approx(expected.p1)


NOT_ACTIVATIONS = {
    "x + 1": f("add", X, c(1.0)),
    "swish with a wrong slope": f("mul", X, f("min", f("max", f("add", X, c(3.0)), c(0.0)), c(5.0))),
    "max(x, 2x) bends the other way": f("max", X, f("mul", c(2.0), X)),
    "gelu with another constant": f("mul", f("mul", X, c(0.5)), f("add", f("erf", f("mul", X, c(0.9))), c(1.0))),
    "where on another threshold": f("where", f("lt", X, c(1.0)), f("mul", X, c(0.1)), X),
}


@pytest.mark.parametrize("name", NOT_ACTIVATIONS)
def test_lookalikes_are_left_alone(name):
    assert classify(NOT_ACTIVATIONS[name]) is None


CANONICAL = [
    Activation("clamp", 0.0, math.inf), Activation("clamp", -math.inf, 2.0), Activation("clamp", 0.0, 6.0),
    Activation("sigmoid"), Activation("tanh"), Activation("gelu"), Activation("gelu_tanh"), Activation("silu"),
    Activation("hardsigmoid", 0.2, 0.5), Activation("hardswish"), Activation("leaky", 0.01), Activation("prelu"),
    Activation("elu", 1.0),
]  # fmt: skip


@pytest.mark.parametrize("activation", CANONICAL, ids=str)
def test_canonical_program_is_recognised_as_itself(activation):
    inputs = 2 if activation.name == "prelu" else 1
    found = classify(from_program(activation_program(activation), {}, inputs))
    assert found is not None and found.name == activation.name
    assert found.p0 == pytest.approx(activation.p0, rel=1e-6) and found.p1 == pytest.approx(activation.p1)


def test_expression_keeps_the_value_of_random_polynomials():
    generator = np.random.default_rng(0)
    for _ in range(200):
        a, b, d = generator.integers(-3, 4, 3).astype(float)
        e = f("mul", f("add", f("mul", X, c(a)), c(b)), f("sub", f("mul", X, X), c(d)))
        for x in (-2.0, 0.5, 3.0):
            assert evaluate(e, x) == pytest.approx((a * x + b) * (x * x - d))


def evaluate(e: Expr, x: float) -> float:
    if e[0] == "in":
        return x
    if e[0] == "const":
        return e[1]
    if e[0] == "sum":
        return sum(w * evaluate(i, x) for w, i in e[1]) + e[2]
    if e[0] == "prod":
        return math.prod(evaluate(i, x) for i in e[1])
    raise AssertionError(e)


def test_programs_are_typed():
    assert all(i[1] in (DType.F32, DType.BOOL) for a in CANONICAL for i in activation_program(a))
