"""Epilogues of convolution and matmul: bias, residual, activation. See edgerun.ops.activation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray


def accumulator(dtype: Any) -> Any:
    """The dtype in which products of this dtype are summed: f64 and integers in their own, other floats in f32."""
    dtype = np.dtype(dtype)
    return dtype if dtype == np.float64 or dtype.kind in "iu" else np.dtype(np.float32)


def finish(
    y: Array,
    bias: Array | None,
    residual: Array | None,
    slope: Array | None,
    act: str,
    p0: float,
    p1: float,
    res: str,
) -> Array:
    """act(y + bias [+ residual]) [+ residual] in the dtype of `y`, which is overwritten."""
    if bias is not None:
        y += bias.astype(y.dtype, copy=False)
    other = None if residual is None else residual.astype(y.dtype, copy=False)
    if other is not None and res == "before":
        y += other
    if act != "none":
        y = activate(y, act, p0, p1, slope)
    if other is not None and res == "after":
        y += other
    return y


def activate(x: Array, act: str, p0: float = 0.0, p1: float = 0.0, slope: Array | None = None) -> Array:
    """Activation `act` of floats; the result has the dtype of x."""
    if act == "prelu":
        assert slope is not None
        return np.where(x < 0, x * slope.astype(x.dtype, copy=False), x)
    return _FUNCTIONS[act](x, x.dtype.type(p0), x.dtype.type(p1))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, x.dtype.type(1)) / (1 + small)


def erf(x: Array) -> Array:
    """The error function in f64, to about 1e-15 absolute: Maclaurin series near zero, else a continued fraction.

    Series: erf(x) = 2/sqrt(pi) exp(-x^2) sum 2^k x^(2k+1) / (1*3*...*(2k+1)), all terms of one sign. Fraction:
    erfc(x) = exp(-x^2)/sqrt(pi) / (x + (1/2)/(x + (2/2)/(x + (3/2)/(x + ...)))).
    """
    x = np.asarray(x, np.float64)
    a = np.abs(x)
    result = np.empty_like(a)
    near = a < 3.0
    small = a[near]
    term, total = small.copy(), small.copy()
    for k in range(1, 60):
        term = term * (2.0 * small * small / (2 * k + 1))
        total += term
    result[near] = 2.0 / math.sqrt(math.pi) * np.exp(-small * small) * total
    large = np.minimum(a[~near], 40.0)
    fraction = large.copy()
    for k in range(40, 0, -1):
        fraction = large + (k / 2.0) / fraction
    result[~near] = 1.0 - np.exp(-large * large) / math.sqrt(math.pi) / fraction
    result[np.isnan(x)] = np.nan
    return np.copysign(result, x)


def _gelu(x: Array) -> Array:
    return (0.5 * x.astype(np.float64) * (1.0 + erf(x * math.sqrt(0.5)))).astype(x.dtype)


def _gelu_tanh(x: Array) -> Array:
    one = x.dtype.type
    return one(0.5) * x * (one(1) + np.tanh(one(math.sqrt(2 / math.pi)) * (x + one(0.044715) * x * x * x)))


def _clamp(x: Array, low: Any, high: Any) -> Array:
    return np.minimum(np.maximum(x, low), high)


_FUNCTIONS: dict[str, Callable[[Array, Any, Any], Array]] = {
    "none": lambda x, p0, p1: x,
    "clamp": _clamp,
    "leaky": lambda x, p0, p1: np.where(x < 0, x * p0, x),
    "sigmoid": lambda x, p0, p1: sigmoid(x),
    "silu": lambda x, p0, p1: x * sigmoid(x),
    "hardsigmoid": lambda x, p0, p1: _clamp(x * p0 + p1, x.dtype.type(0), x.dtype.type(1)),
    "hardswish": lambda x, p0, p1: x * _clamp(x * x.dtype.type(1 / 6) + x.dtype.type(0.5), 0, 1),
    "gelu": lambda x, p0, p1: _gelu(x),
    "gelu_tanh": lambda x, p0, p1: _gelu_tanh(x),
    "tanh": lambda x, p0, p1: np.tanh(x),
    "elu": lambda x, p0, p1: np.where(x < 0, p0 * np.expm1(np.minimum(x, 0)), x),
}
