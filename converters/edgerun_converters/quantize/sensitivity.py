"""What each layer alone loses: its output with quantised input, weights and output against the float one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.backends.numpy.registry import find
from edgerun.graph import Graph, Node
from edgerun_converters.quantize.layers import channel_axis, source
from edgerun_converters.quantize.metrics import snr_db
from edgerun_converters.quantize.rewrite import Ranges
from edgerun_converters.quantize.weights import GROUP, codes_of_range, in_groups, per_channel

SAMPLES = 4
"""Samples that the table looks at."""


def _through_codes(x: np.ndarray, low: float, high: float) -> np.ndarray:
    scale, zero = codes_of_range(low, high)
    return ((np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale).astype(np.float32)


def _through_weights(node: Node, w: np.ndarray, mode: str) -> np.ndarray:
    if mode in ("static", "dynamic"):
        axis = channel_axis(node, w.ndim)
        codes, scale = per_channel(w, axis)
        return codes * scale.reshape([-1 if k == axis else 1 for k in range(w.ndim)])
    bits = 8 if mode == "int8-weights" else 4
    rows = w if node.attrs.get("trans_b") else w.T
    codes, scales = in_groups(np.ascontiguousarray(rows), bits)
    if bits == 4:
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], GROUP)
    back = ((codes.astype(np.float32) - (1 << (bits - 1))) * scales[..., None]).reshape(rows.shape)
    return back if node.attrs.get("trans_b") else np.ascontiguousarray(back.T)


def table(
    graph: Graph, layers: Sequence[Node], samples: Sequence[Mapping[str, Any]], mode: str, ranges: Ranges
) -> list[dict[str, Any]]:
    """One row a layer, in the order of the graph: layer, op, output (the key), weights, snr_db (mean over samples)."""
    keys = {n.outputs[0] for n in layers}
    producers = graph.producers()
    found: dict[str, list[float]] = {key: [] for key in keys}
    weights = {n.outputs[0]: _through_weights(n, _data(graph, n.inputs[1]), mode) for n in layers}

    def quantised(node: Node, x: np.ndarray) -> np.ndarray:
        if mode == "static":
            x = _through_codes(x, *ranges[source(producers, node.inputs[0])])
        elif mode == "dynamic":
            x = _through_codes(x, min(0.0, float(x.min(initial=0))), max(0.0, float(x.max(initial=0))))
        bias = [_data(graph, i) for i in node.inputs[2:3] if i]
        y = find(node.op)(x, weights[node.outputs[0]], *bias, **node.attrs)
        return _through_codes(y, *ranges[source(producers, node.outputs[0])]) if mode == "static" else y

    for sample in samples[:SAMPLES]:
        values: dict[str, Any] = dict(sample)

        def see(node: Node, results: Any, values: dict[str, Any] = values) -> None:
            if node.outputs[0] in keys:
                y = np.asarray(next(iter(results)))
                found[node.outputs[0]].append(snr_db(y, quantised(node, values[node.inputs[0]])))
            values.update((name, value) for name, value in zip(node.outputs, results, strict=False) if name)

        NumpyExecutor(graph).run(sample, observer=see)
    return [
        {
            "layer": n.name, "op": n.op, "output": n.outputs[0], "weights": int(_data(graph, n.inputs[1]).size),
            "snr_db": float(np.mean(found[n.outputs[0]])),
        }
        for n in layers
    ]  # fmt: skip


def _data(graph: Graph, name: str) -> np.ndarray:
    data = graph.tensors[name].data
    assert data is not None
    return data
