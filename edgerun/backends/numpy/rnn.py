"""NumPy kernels of lstm, gru and rnn: one matrix product for the input of all steps, then a loop over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from edgerun.backends.numpy.quant import dynamic_quantize_linear
from edgerun.backends.numpy.registry import kernel

Array = np.ndarray
Function = Callable[[Array], Array]


@kernel("lstm")
def lstm(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    h0: Array | None = None,
    c0: Array | None = None,
    p: Array | None = None,
    *,
    hidden: int,
    direction: str = "forward",
    activations: tuple[str, ...] = ("sigmoid", "tanh", "tanh"),
    alpha: tuple[float, ...] = (0.0, 0.0, 0.0),
    beta: tuple[float, ...] = (0.0, 0.0, 0.0),
    clip: float = 0.0,
    input_forget: bool = False,
) -> tuple[Array, Array, Array]:
    """See edgerun.ops.rnn.lstm."""
    layer = _Layer(x, w, r, bias, lengths, direction, hidden)
    return _run_lstm(layer, h0, c0, p, activations, alpha, beta, clip, input_forget)


@kernel("lstm_quantised")
def lstm_quantised(
    x: Array,
    w: Array,
    r: Array,
    w_scale: Array,
    w_zero: Array,
    r_scale: Array,
    r_zero: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    h0: Array | None = None,
    c0: Array | None = None,
    p: Array | None = None,
    *,
    hidden: int,
    direction: str = "forward",
    activations: tuple[str, ...] = ("sigmoid", "tanh", "tanh"),
    alpha: tuple[float, ...] = (0.0, 0.0, 0.0),
    beta: tuple[float, ...] = (0.0, 0.0, 0.0),
    clip: float = 0.0,
    input_forget: bool = False,
) -> tuple[Array, Array, Array]:
    """See edgerun.ops.rnn.lstm_quantised."""
    layer = _QuantisedLayer(x, w, r, bias, lengths, direction, hidden)
    layer.parameters = (w_scale, w_zero, r_scale, r_zero)
    return _run_lstm(layer, h0, c0, p, activations, alpha, beta, clip, input_forget)


def _run_lstm(
    layer: _Layer,
    h0: Array | None,
    c0: Array | None,
    p: Array | None,
    activations: tuple[str, ...],
    alpha: tuple[float, ...],
    beta: tuple[float, ...],
    clip: float,
    input_forget: bool,
) -> tuple[Array, Array, Array]:
    h_states, c_states = layer.states(h0), layer.states(c0)
    gates = [slice(k * layer.hidden, (k + 1) * layer.hidden) for k in range(4)]
    for d in range(layer.directions):
        f, g, h_of = layer.functions(activations, alpha, beta, d, 3)
        projected = layer.project(d)
        recur = layer.recurrence(d)
        pi, po, pf = (None, None, None) if p is None else np.split(p[d].astype(layer.dtype), 3)
        h, c = h_states[d], c_states[d]
        for t, valid in layer.steps(d):
            z = projected[t] + recur(h)
            zi, zo, zf, zc = (z[:, s] for s in gates)
            if pi is not None:
                zi = zi + pi * c
                zf = zf + pf * c
            i = f(_clipped(zi, clip))
            forget = 1 - i if input_forget else f(_clipped(zf, clip))
            c_new = forget * c + i * g(_clipped(zc, clip))
            if po is not None:
                zo = zo + po * c_new
            h_new = f(_clipped(zo, clip)) * h_of(c_new)
            h, c = layer.store(t, d, valid, (h_new, h), (c_new, c))
        h_states[d], c_states[d] = h, c
    return layer.y.astype(layer.output, copy=False), h_states.astype(layer.output), c_states.astype(layer.output)


@kernel("gru")
def gru(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    h0: Array | None = None,
    *,
    hidden: int,
    direction: str = "forward",
    activations: tuple[str, ...] = ("sigmoid", "tanh"),
    alpha: tuple[float, ...] = (0.0, 0.0),
    beta: tuple[float, ...] = (0.0, 0.0),
    clip: float = 0.0,
    linear_before_reset: bool = False,
) -> tuple[Array, Array]:
    """See edgerun.ops.rnn.gru."""
    # With linear_before_reset the recurrent bias of the h gate is scaled by the reset gate, so it stays apart.
    layer = _Layer(x, w, r, bias, lengths, direction, hidden, apart=hidden if linear_before_reset else 0)
    states = layer.states(h0)
    for d in range(layer.directions):
        f, g = layer.functions(activations, alpha, beta, d, 2)
        projected = layer.project(d)
        recurrent = np.ascontiguousarray(layer.r[d].T)
        update_reset, candidate = recurrent[:, : 2 * hidden], np.ascontiguousarray(recurrent[:, 2 * hidden :])
        h = states[d]
        for t, valid in layer.steps(d):
            if linear_before_reset:
                product = h @ recurrent
                zr = f(_clipped(projected[t, :, : 2 * hidden] + product[:, : 2 * hidden], clip))
                z, reset = zr[:, :hidden], zr[:, hidden:]
                inner = reset * (product[:, 2 * hidden :] + layer.apart[d])
            else:
                zr = f(_clipped(projected[t, :, : 2 * hidden] + h @ update_reset, clip))
                z, reset = zr[:, :hidden], zr[:, hidden:]
                inner = (reset * h) @ candidate
            n = g(_clipped(projected[t, :, 2 * hidden :] + inner, clip))
            (h,) = layer.store(t, d, valid, ((1 - z) * n + z * h, h))
        states[d] = h
    return layer.y.astype(x.dtype, copy=False), states.astype(x.dtype)


@kernel("rnn")
def rnn(
    x: Array,
    w: Array,
    r: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    h0: Array | None = None,
    *,
    hidden: int,
    direction: str = "forward",
    activations: tuple[str, ...] = ("tanh",),
    alpha: tuple[float, ...] = (0.0,),
    beta: tuple[float, ...] = (0.0,),
    clip: float = 0.0,
) -> tuple[Array, Array]:
    """See edgerun.ops.rnn.rnn."""
    layer = _Layer(x, w, r, bias, lengths, direction, hidden)
    states = layer.states(h0)
    for d in range(layer.directions):
        (f,) = layer.functions(activations, alpha, beta, d, 1)
        projected = layer.project(d)
        recurrent = np.ascontiguousarray(layer.r[d].T)
        h = states[d]
        for t, valid in layer.steps(d):
            (h,) = layer.store(t, d, valid, (f(_clipped(projected[t] + h @ recurrent, clip)), h))
        states[d] = h
    return layer.y.astype(x.dtype, copy=False), states.astype(x.dtype)


class _Layer:
    """The parts the three kernels share: input projection, order of steps, lengths, output buffer.

    `apart` keeps the last `apart` recurrent biases of each direction out of the projection, in `self.apart`.
    16-bit floats are computed in float32.
    """

    def __init__(
        self,
        x: Array,
        w: Array,
        r: Array,
        bias: Array | None,
        lengths: Array | None,
        direction: str,
        hidden: int,
        apart: int = 0,
    ) -> None:
        self.dtype: Any = np.float64 if x.dtype == np.float64 else np.float32
        self.output = x.dtype
        self.x = x.astype(self.dtype, copy=False)
        self.w, self.r = self.weights(w, r)
        self.time, self.batch, _ = x.shape
        self.directions, rows, _ = w.shape
        self.hidden = hidden
        both = np.zeros((self.directions, 2 * rows), self.dtype) if bias is None else bias.astype(self.dtype)
        recurrent = both[:, rows:].copy()
        self.apart = recurrent[:, rows - apart :].copy()
        if apart:
            recurrent[:, rows - apart :] = 0
        self.bias: Array = np.add(both[:, :rows], recurrent)
        self.lengths = lengths
        self.direction = direction
        self.y = np.zeros((self.time, self.directions, self.batch, hidden), self.dtype)

    def weights(self, w: Array, r: Array) -> tuple[Array, Array]:
        """The weights in the type they are multiplied in."""
        return w.astype(self.dtype, copy=False), r.astype(self.dtype, copy=False)

    def states(self, initial: Array | None) -> Array:
        """Writable [D, B, H] states, zero unless given."""
        if initial is None:
            return np.zeros((self.directions, self.batch, self.hidden), self.dtype)
        return np.array(initial, self.dtype)

    def project(self, d: int) -> Array:
        """x W^T + bias of one direction for all steps: [T, B, G*H]."""
        flat: Array = self.x.reshape(self.time * self.batch, self.x.shape[2]) @ self.w[d].T
        flat += self.bias[d]
        return flat.reshape(self.time, self.batch, flat.shape[1])

    def recurrence(self, d: int) -> Function:
        """The function h -> h R^T of one direction, [B, H] to [B, G*H]."""
        recurrent = np.ascontiguousarray(self.r[d].T)
        return lambda h: h @ recurrent

    def steps(self, d: int) -> Iterator[tuple[int, Array | None]]:
        """(step, which sequences [B, 1] are valid there, or None for all) in the order of direction d."""
        order = range(self.time)
        for t in reversed(order) if d == 1 or self.direction == "reverse" else order:
            valid = None
            if self.lengths is not None:
                valid = (t < self.lengths)[:, None]
                if valid.all():
                    valid = None
            yield t, valid

    def store(self, t: int, d: int, valid: Array | None, *pairs: tuple[Array, Array]) -> list[Array]:
        """Write the output of step t and return the next states; (new, old) pairs, h first."""
        if valid is None:
            self.y[t, d] = pairs[0][0]
            return [new for new, _ in pairs]
        self.y[t, d] = np.where(valid, pairs[0][0], 0)
        return [np.where(valid, new, old) for new, old in pairs]

    def functions(
        self, names: tuple[str, ...], alpha: tuple[float, ...], beta: tuple[float, ...], d: int, count: int
    ) -> list[Function]:
        """The activation functions of direction d."""
        return [
            _activation(names[k], self.dtype(alpha[k]), self.dtype(beta[k])) for k in range(d * count, (d + 1) * count)
        ]


class _QuantisedLayer(_Layer):
    """A layer whose products run on integers; `parameters` are (w_scale, w_zero, r_scale, r_zero), a row a direction.

    Integers are held in float64, where all the sums are exact (see the quantised kernels).
    """

    parameters: tuple[Array, Array, Array, Array]

    def weights(self, w: Array, r: Array) -> tuple[Array, Array]:
        return w.astype(np.float64), r.astype(np.float64)

    def project(self, d: int) -> Array:
        w_scale, w_zero, _, _ = self.parameters
        flat = self.x.reshape(self.time * self.batch, self.x.shape[2])
        product = _dynamic_product(flat, self.w[d], w_scale[d], w_zero[d]) + self.bias[d]
        return product.reshape(self.time, self.batch, product.shape[1])

    def recurrence(self, d: int) -> Function:
        _, _, r_scale, r_zero = self.parameters
        return lambda h: _dynamic_product(h, self.r[d], r_scale[d], r_zero[d])


def _dynamic_product(x: Array, weights: Array, scale: Array, zero: Array) -> Array:
    """x W^T with x [M, K] quantised dynamically and integer weights [N, K]; scale and zero rank 0 or [N]."""
    codes, x_scale, x_zero = dynamic_quantize_linear(x)
    centred = weights - np.asarray(zero, np.float64).reshape(-1, 1)
    sums = (codes.astype(np.float64) - float(x_zero)) @ centred.T
    return sums.astype(np.float32) * (x_scale * np.asarray(scale, np.float32))


def _clipped(z: Array, clip: float) -> Array:
    return np.clip(z, -clip, clip) if clip else z


def _sigmoid(z: Array) -> Array:
    # tanh form: no overflow for any argument, and one transcendental call.
    half = z.dtype.type(0.5)
    return half * np.tanh(half * z) + half


def _activation(name: str, alpha: Any, beta: Any) -> Function:
    functions: dict[str, Function] = {
        "relu": lambda z: np.maximum(z, 0),
        "tanh": np.tanh,
        "sigmoid": _sigmoid,
        "affine": lambda z: alpha * z + beta,
        "leakyrelu": lambda z: np.where(z < 0, alpha * z, z),
        "thresholdedrelu": lambda z: np.where(z > alpha, z, 0),
        "scaledtanh": lambda z: alpha * np.tanh(beta * z),
        "hardsigmoid": lambda z: np.clip(alpha * z + beta, 0, 1),
        "elu": lambda z: np.where(z < 0, alpha * np.expm1(np.minimum(z, 0)), z),
        "softsign": lambda z: z / (1 + np.abs(z)),
        "softplus": lambda z: np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z))),
    }
    return functions[name]
