"""Native recurrent layers against the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgerun.backends.numpy.registry import find
from tests.native.kernel_harness import levels, run_op

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
FUNCTIONS = {"lstm": 3, "gru": 2, "rnn": 1}


def _case(kind: str, sizes: tuple[int, int, int, int], direction: str, rng: np.random.Generator) -> list[Any]:
    steps, batch, width, hidden = sizes
    d, rows = (2 if direction == "bidirectional" else 1), GATES[kind] * hidden
    arrays = [rng.normal(size=s) for s in [(steps, batch, width), (d, rows, width), (d, rows, hidden), (d, 2 * rows)]]
    arrays = [(a * 0.5).astype(np.float32) for a in arrays]
    lengths = rng.integers(0, steps + 1, batch)
    states = [rng.normal(size=(d, batch, hidden)).astype(np.float32) for _ in range(2)]
    if kind == "lstm":
        return [*arrays, lengths, *states, rng.normal(size=(d, 3 * hidden)).astype(np.float32)]
    return [*arrays, lengths, states[0]]


def _check(kind: str, inputs: list[Any], attrs: dict[str, Any], level: str = "", tolerance: float = 2e-5) -> None:
    expected = find(kind)(*inputs, **attrs)
    for threads in (True, False):
        constant = [k for k in range(1, len(inputs)) if k not in (4, 5, 6)]
        actual = run_op(kind, inputs, attrs, constant=constant, level=level, threads=threads)
        for a, e in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_layers(kind: str, direction: str, level: str) -> None:
    rng = np.random.default_rng(0)
    for sizes in [(5, 3, 7, 9), (4, 1, 6, 16), (3, 2, 5, 33), (1, 1, 1, 1), (0, 2, 3, 4)]:
        inputs = _case(kind, sizes, direction, rng)
        attrs: dict[str, Any] = {"hidden": sizes[3], "direction": direction}
        if direction == "bidirectional":
            names = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",)}[kind] * 2
            attrs.update(activations=names, alpha=(0.0,) * len(names), beta=(0.0,) * len(names))
        variants: list[dict[str, Any]] = [{}, {"clip": 0.3}]
        if kind == "gru":
            variants.append({"linear_before_reset": True})
        if kind == "lstm":
            variants.append({"input_forget": True})
        for extra in variants:
            _check(kind, inputs, attrs | extra, level)
            _check(kind, inputs[:3] + [None] * (len(inputs) - 3), attrs | extra, level)


def test_every_activation() -> None:
    rng = np.random.default_rng(1)
    for name in (
        "relu",
        "tanh",
        "sigmoid",
        "affine",
        "leakyrelu",
        "thresholdedrelu",
        "scaledtanh",
        "hardsigmoid",
        "elu",
        "softsign",
        "softplus",
    ):
        attrs = {"hidden": 5, "activations": (name,), "alpha": (0.4,), "beta": (0.3,)}
        _check("rnn", _case("rnn", (3, 2, 4, 5), "forward", rng), attrs, tolerance=1e-4)


def test_large_layers_are_cut_into_blocks() -> None:
    rng = np.random.default_rng(2)
    for kind in GATES:
        inputs = _case(kind, (3, 1, 20, 400), "forward", rng)
        inputs[2] *= 0.1
        _check(kind, inputs, {"hidden": 400})


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_lstm_with_8_bit_weights(direction: str) -> None:
    rng = np.random.default_rng(3)
    x, _, _, bias, lengths, h0, c0, p = _case("lstm", (4, 2, 6, 10), direction, rng)
    d = 2 if direction == "bidirectional" else 1
    w, r = rng.integers(-127, 128, (d, 40, 6)).astype(np.int8), rng.integers(-127, 128, (d, 40, 10)).astype(np.int8)
    parameters = [
        np.full(d, 0.004, np.float32),
        np.zeros(d, np.int8),
        rng.uniform(1e-3, 5e-3, (d, 40)).astype(np.float32),
        np.zeros((d, 40), np.int8),
    ]
    inputs = [x, w, r, *parameters, bias, lengths, h0, c0, p]
    names = ("sigmoid", "tanh", "tanh") * d
    attrs: dict[str, Any] = {
        "hidden": 10,
        "direction": direction,
        "activations": names,
        "alpha": (0.0,) * 3 * d,
        "beta": (0.0,) * 3 * d,
    }
    try:
        expected = find("lstm_quantised")(*inputs, **attrs)
    except ValueError:
        w, r = w.swapaxes(1, 2).copy(), r.swapaxes(1, 2).copy()
        expected = find("lstm_quantised")(*[x, w, r, *inputs[3:]], **attrs)
    actual = run_op("lstm_quantised", inputs, attrs, constant=[1, 2, 3, 4, 5, 6, 7, 11])
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-4)
