"""Recurrent layers: one matrix product for the input of all steps, then csrc/kernels/rnn.c for the recurrence.

Hidden units are packed in blocks of 16 with their gates side by side, so that a block's gates and its new state are
computed without leaving the registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.native import packing
from edgerun.backends.native.lowering import Lowering, Param, lowers
from edgerun.backends.native.ops.elementwise import apply, cast
from edgerun.backends.native.ops.reduce import HALF
from edgerun.dims import DimLike, product
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node

KINDS = {"lstm": (0, 4, 3), "gru": (1, 3, 2), "rnn": (2, 1, 1)}
"""Op -> (number of enum rnn_kind, gates, activations a direction)."""
ACTIVATIONS = (
    "sigmoid", "tanh", "relu", "affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu", "softsign",
    "softplus",
)  # fmt: skip
"""Numbers of enum rnn_activation."""
DIRECTIONS = {"forward": 0, "reverse": 1, "bidirectional": 2}
INPUT_FORGET, RESET_AFTER, QUANTISE_STATE = 1, 2, 4
UNITS = 16


def _blocked(matrix: np.ndarray, gates: int) -> np.ndarray:
    """[G*H, ...] to [blocks * G * 16, ...]: rows in the order (block, gate, unit), padded with zeros."""
    hidden = matrix.shape[0] // gates
    blocks = -(-hidden // UNITS)
    padded = np.zeros((gates, blocks * UNITS, *matrix.shape[1:]), np.float32)
    padded[:, :hidden] = matrix.reshape(gates, hidden, *matrix.shape[1:])
    split = padded.reshape(gates, blocks, UNITS, *matrix.shape[1:])
    return np.ascontiguousarray(split.swapaxes(0, 1).reshape(blocks * gates * UNITS, *matrix.shape[1:]))


def _recurrent(r: np.ndarray, gates: int) -> np.ndarray:
    """[D, G*H, H] to [D, blocks, H, G, 16], flat."""
    parts = []
    for d in range(r.shape[0]):
        rows = _blocked(r[d], gates)
        parts.append(rows.reshape(-1, gates * UNITS, r.shape[2]).swapaxes(1, 2))
    return np.stack(parts).reshape(-1)


def _constant(cx: Lowering, name: str, what: str) -> np.ndarray | None:
    if not name:
        return None
    data = cx.constant(name)
    if data is None:
        raise UnsupportedError(f"the {what} of a recurrent layer is computed at run time")
    return data.astype(np.float32)


def _input(node: Node, index: int) -> str:
    return node.inputs[index] if index < len(node.inputs) else ""


@lowers("lstm")
def lstm(node: Node, cx: Lowering) -> None:
    w, r = _constant(cx, node.inputs[1], "weight"), _constant(cx, node.inputs[2], "recurrent weight")
    _layer(node, cx, "lstm", node.inputs[0], w, r, [_input(node, k) for k in range(3, 8)], 0)


@lowers("lstm_quantised")
def lstm_quantised(node: Node, cx: Lowering) -> None:
    """Weights are read back as f32; the input and the state pass through 8-bit codes, which gives the same products."""
    w, r = (_constant(cx, node.inputs[k], "weight") for k in (1, 2))
    scales = [_constant(cx, node.inputs[k], "scale or zero point") for k in range(3, 7)]
    assert w is not None and r is not None
    real = []
    for matrix, scale, zero in ((w, scales[0], scales[1]), (r, scales[2], scales[3])):
        assert scale is not None
        columns = [
            np.zeros((matrix.shape[0], 1, 1), np.float32) if p is None else p.reshape(matrix.shape[0], -1, 1)
            for p in (scale, zero)
        ]
        real.append((matrix - columns[1]) * columns[0])
    x = cx.temp(DType.F32, cx.shape(node.inputs[0]), "lstm.codes")
    cx.emit("requantize_dynamic", [node.inputs[0]], [x], in_place=[(0, 0)], why="the input through 8-bit codes")
    _layer(node, cx, "lstm", x, real[0], real[1], [_input(node, k) for k in range(7, 12)], QUANTISE_STATE)


@lowers("gru")
def gru(node: Node, cx: Lowering) -> None:
    w, r = _constant(cx, node.inputs[1], "weight"), _constant(cx, node.inputs[2], "recurrent weight")
    flags = RESET_AFTER if node.attrs.get("linear_before_reset", False) else 0
    _layer(node, cx, "gru", node.inputs[0], w, r, [*(_input(node, k) for k in range(3, 6)), "", ""], flags)


@lowers("rnn")
def rnn(node: Node, cx: Lowering) -> None:
    w, r = _constant(cx, node.inputs[1], "weight"), _constant(cx, node.inputs[2], "recurrent weight")
    _layer(node, cx, "rnn", node.inputs[0], w, r, [*(_input(node, k) for k in range(3, 6)), "", ""], 0)


def _layer(
    node: Node,
    cx: Lowering,
    kind: str,
    x: str,
    w: np.ndarray | None,
    r: np.ndarray | None,
    rest: list[str],
    flags: int,
) -> None:
    """Projections and recurrence; `rest` names bias, lengths, h0, c0 and peepholes."""
    assert w is not None and r is not None
    number, gates, count = KINDS[kind]
    attrs: dict[str, Any] = node.attrs
    hidden, direction = attrs["hidden"], DIRECTIONS[attrs.get("direction", "forward")]
    dtype = cx.dtype(node.inputs[0])
    if dtype is DType.F64:
        raise UnsupportedError("recurrent layers in f64 are not done by the native backend")
    x = cast(cx, x, DType.F32)
    steps, batch, width = cx.shape(x)
    directions, blocks = w.shape[0], -(-hidden // UNITS)
    bias_name, lengths, h0, c0, p_name = rest
    bias = _constant(cx, bias_name, "bias")
    if bias is None:
        bias = np.zeros((directions, 2 * gates * hidden), np.float32)
    if attrs.get("input_forget", False):
        flags |= INPUT_FORGET
    w_bias, r_bias = bias[:, : gates * hidden], bias[:, gates * hidden :]
    added, extra = w_bias + r_bias, ""
    if kind == "gru" and flags & RESET_AFTER:
        # The reset gate scales the candidate's recurrent bias, so it is added in the kernel.
        added = np.concatenate([added[:, : 2 * hidden], w_bias[:, 2 * hidden :]], axis=1)
        extra = cx.weight(np.stack([_blocked(b[2 * hidden :], 1) for b in r_bias]), f"{node.inputs[2]}.bias")
    if kind == "gru" and not flags & RESET_AFTER:
        extra = cx.weight(_recurrent(r[:, 2 * hidden :], 1), f"{node.inputs[2]}.candidate")
        packed = _recurrent(r[:, : 2 * hidden], 2)
    else:
        packed = _recurrent(r, gates)
    columns = blocks * gates * UNITS
    projections = []
    for d in range(directions):
        name = cx.temp(DType.F32, (steps, batch, columns), f"{kind}.input")
        matrix = cx.weight(packing.pack_matrix(_blocked(w[d], gates).T, cx.arch), f"{node.inputs[1]}.{d}")
        vector = cx.weight(packing.pad_vector(_blocked(added[d], gates), cx.arch), f"{kind}.bias")
        params: list[Param] = [width, columns, 0, 0.0, 0.0, 0]
        macs: DimLike = product((steps, batch, width, columns))
        cx.emit("matmul_f32", [x, matrix, vector, "", ""], [name], params, macs=macs, why="all steps in one product")
        projections.append(name)
    peepholes = _constant(cx, p_name, "peephole weight")
    p = ""
    if peepholes is not None:
        p = cx.weight(np.stack([_blocked(v, 1) for v in peepholes.reshape(-1, hidden)]), p_name)
    outputs = _outputs(node, cx)
    cx.emit(
        "rnn",
        [projections[0], projections[1] if directions == 2 else "", cx.weight(packed, f"{kind}.packed"), extra,
         lengths, *(cast(cx, n, DType.F32) if n else "" for n in (h0, c0)), p],
        [o for o, _ in outputs] + [""] * (3 - len(outputs)),
        _parameters(attrs, number, count, hidden, direction, flags, directions),
        scratch=product((4 * directions * blocks * UNITS * 4, batch)),
        macs=product((steps, batch, packed.size)),
        why="gates and state of 16 units at a time in registers",
    )  # fmt: skip
    for temp, final in outputs:
        if temp != final:
            apply(cx, (("cast", cx.dtype(final), 0),), [temp], final)


def _outputs(node: Node, cx: Lowering) -> list[tuple[str, str]]:
    """(what the kernel writes, the graph's output): temporaries in f32 for 16-bit floats."""
    pairs = []
    for name in node.outputs:
        if name and cx.dtype(name) in HALF:
            pairs.append((cx.temp(DType.F32, cx.shape(name), f"{name}.f32"), name))
        else:
            pairs.append((name, name))
    return pairs


def _parameters(
    attrs: dict[str, Any], number: int, count: int, hidden: int, direction: int, flags: int, directions: int
) -> list[Param]:
    params: list[Param] = [number, hidden, direction, flags, float(attrs.get("clip", 0.0))]
    defaults = {3: ("sigmoid", "tanh", "tanh"), 2: ("sigmoid", "tanh"), 1: ("tanh",)}[count] * directions
    names = attrs.get("activations", defaults)
    zeros = (0.0,) * len(names)
    alpha, beta = attrs.get("alpha", zeros), attrs.get("beta", zeros)
    for d in range(directions):
        for k in range(3):
            if k < count:
                at = d * count + k
                params += [ACTIVATIONS.index(names[at]), float(alpha[at]), float(beta[at])]
            else:
                params += [0, 0.0, 0.0]
    return params
