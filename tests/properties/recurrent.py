"""Recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.properties.case import Case
from tests.properties.draw import MS, Drawer, covers, one

f32 = np.float32
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


def layer(d: Drawer, kind: str) -> Case:
    steps, batch, width, hidden = d.int(1, 4), d.int(1, 3), d.int(1, 4), d.int(1, 9)
    direction = d.pick("forward", "reverse", "bidirectional")
    n, gates = (2 if direction == "bidirectional" else 1), GATES[kind]
    feeds: dict[str, Any] = {
        "X": d.normal(steps, batch, width), "W": d.normal(n, gates * hidden, width),
        "R": d.normal(n, gates * hidden, hidden), "B": d.normal(n, 2 * gates * hidden) if d.bool() else None,
        "L": d.integers(batch, low=1, high=steps, dtype=np.int32) if d.bool() else None,
        "H": d.normal(n, batch, hidden) if d.bool() else None,
    }  # fmt: skip
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "clip": d.pick(None, 0.5)}
    if kind == "LSTM":
        feeds |= {"C": d.normal(n, batch, hidden) if d.bool() else None}
        feeds |= {"P": d.normal(n, 3 * hidden) if d.bool() else None}
    if kind == "GRU":
        attributes["linear_before_reset"] = d.int(0, 1)
    if d.bool():
        names = [d.pick("Sigmoid", "Tanh", "Relu") for _ in FUNCTIONS[kind]]
        attributes["activations"] = names * n
    outputs = 3 if kind == "LSTM" else 2
    constant = d.pick((), ("W", "R", "B"))
    return one(kind, feeds, attributes, outputs=outputs, opset=14, constant=constant, rtol=1e-3, atol=1e-4)


@covers("lstm")
def lstm(d: Drawer) -> Case:
    return layer(d, "LSTM")


@covers("gru")
def gru(d: Drawer) -> Case:
    return layer(d, "GRU")


@covers("rnn")
def rnn(d: Drawer) -> Case:
    return layer(d, "RNN")


@covers("lstm_quantised")
def lstm_quantised(d: Drawer) -> Case:
    steps, width, hidden = d.int(1, 4), d.int(1, 4), d.int(1, 6)
    direction = d.pick("forward", "reverse", "bidirectional")
    n = 2 if direction == "bidirectional" else 1
    per = (n, 4 * hidden) if d.bool() else (n,)
    feeds = {
        "X": d.normal(steps, 1, width), "W": d.integers(n, width, 4 * hidden, low=-127, high=127, dtype=np.int8),
        "R": d.integers(n, hidden, 4 * hidden, low=-127, high=127, dtype=np.int8),
        "B": d.normal(n, 8 * hidden) if d.bool() else None, "L": None,
        "H": d.normal(n, 1, hidden) if d.bool() else None, "C": d.normal(n, 1, hidden) if d.bool() else None, "P": None,
        "ws": d.uniform(*per, low=0.005, high=0.01), "wz": np.zeros(per, np.int8),
        "rs": d.uniform(*per, low=0.005, high=0.01), "rz": np.zeros(per, np.int8),
    }  # fmt: skip
    attributes = {"hidden_size": hidden, "direction": direction}
    constant = ("W", "R", "ws", "wz", "rs", "rz")
    return one(
        "DynamicQuantizeLSTM", feeds, attributes, outputs=3, domain=MS, opset=1, constant=constant, rtol=1e-3, atol=2e-2
    )
