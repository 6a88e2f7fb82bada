"""LSTM, GRU and RNN, to the time-first core ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgerun.errors import UnsupportedError
from edgerun.ops.rnn import ACTIVATIONS, DIRECTIONS
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering

_ALPHA = {
    "affine": 1.0, "leakyrelu": 0.01, "thresholdedrelu": 1.0, "scaledtanh": 1.0, "hardsigmoid": 0.2, "elu": 1.0,
}  # fmt: skip
"""Activations that take alpha, with the default."""
_BETA = {"affine": 0.0, "scaledtanh": 1.0, "hardsigmoid": 0.5}
"""Activations that take beta, with the default."""


@lowering("LSTM")
def lstm(b: Builder, n: OnnxNode) -> None:
    _recurrent(b, n, "lstm", ("Sigmoid", "Tanh", "Tanh"), input_forget=bool(n.attr("input_forget", 0)))


@lowering("GRU")
def gru(b: Builder, n: OnnxNode) -> None:
    _recurrent(b, n, "gru", ("Sigmoid", "Tanh"), linear_before_reset=bool(n.attr("linear_before_reset", 0)))


@lowering("RNN")
def rnn(b: Builder, n: OnnxNode) -> None:
    _recurrent(b, n, "rnn", ("Tanh",))


def _recurrent(b: Builder, n: OnnxNode, kind: str, default: tuple[str, ...], **attrs: Any) -> None:
    inputs = [n.input(k) for k in range(8 if kind == "lstm" else 6)]
    states = [5, 6] if kind == "lstm" else [5]
    batch_first = bool(n.attr("layout", 0))
    if batch_first:
        inputs[0] = b.transpose(inputs[0], (1, 0, 2))
        for k in states:
            if inputs[k]:
                inputs[k] = b.transpose(inputs[k], (1, 0, 2))
    outputs = emit_recurrent(b, n, kind, inputs, default, **attrs)
    if batch_first:
        outputs = [b.transpose(outputs[0], (2, 0, 1, 3)), *(b.transpose(o, (1, 0, 2)) for o in outputs[1:])]
    n.bind(*outputs)


def emit_recurrent(
    b: Builder,
    n: OnnxNode,
    kind: str,
    inputs: Sequence[str],
    default: tuple[str, ...],
    parameters: Sequence[str] = (),
    **attrs: Any,
) -> list[str]:
    """Append a recurrent op with the attributes of `n`; `inputs` in the order of the ONNX operator, time first.

    `parameters` are further inputs of the core op, which come after the weights.
    """
    direction = str(n.attr("direction", "forward")).lower() or "forward"
    if direction not in DIRECTIONS:
        raise UnsupportedError(f"there is no direction {direction!r}")
    given = n.attr("activations", ())
    names = tuple(str(a).lower() for a in given) or tuple(a.lower() for a in default) * DIRECTIONS[direction]
    unknown = sorted(set(names) - ACTIVATIONS)
    if unknown:
        raise UnsupportedError(f"there is no recurrent activation {unknown[0]!r}")
    shape = b.type(inputs[2]).shape
    hidden = n.attr("hidden_size", None) or (shape[2] if shape is not None else None)
    if not isinstance(hidden, int):
        raise UnsupportedError("the hidden size is not known", hint="set the attribute hidden_size")
    inputs = list(inputs)
    inputs[4] = _lengths(b, inputs[0], inputs[4])
    return b.emit(
        kind,
        [*inputs[:3], *parameters, *inputs[3:]],
        hidden=hidden,
        direction=direction,
        activations=names,
        alpha=_parameters(names, n.attr("activation_alpha", ()), _ALPHA),
        beta=_parameters(names, n.attr("activation_beta", ()), _BETA),
        clip=float(n.attr("clip", 0.0)),
        **attrs,
    )


def _lengths(b: Builder, x: str, lengths: str) -> str:
    """`lengths`, or "" when they are known to cover the whole sequence."""
    value, shape = b.static(lengths), b.type(x).shape
    if value is not None and shape is not None and isinstance(shape[0], int) and np.all(value == shape[0]):
        return ""
    return lengths


def _parameters(names: tuple[str, ...], given: tuple[float, ...], takes: dict[str, float]) -> tuple[float, ...]:
    """One parameter per activation. Values are consumed in order by the activations that take one.

    A list as long as `names` that is longer than the number of takers is read by position.
    """
    takers = sum(name in takes for name in names)
    values = [float(v) for v in given]
    if len(values) == len(names) > takers:
        return tuple(v if name in takes else 0.0 for name, v in zip(names, values, strict=True))
    if len(values) > takers:
        raise UnsupportedError(f"{len(values)} activation parameters are given, but {takers} activations take one")
    rest = iter(values)
    return tuple(next(rest, takes[name]) if name in takes else 0.0 for name in names)
