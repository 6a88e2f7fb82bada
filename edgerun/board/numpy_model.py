"""A bundle, run by the NumPy kernels: models with strings, sequences and other ops that have no native kernel."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.board.model import META, Expected, GoldenSet
from edgerun.graph import Graph, Node
from edgerun.samples import random_values
from edgerun.session import PortInfo


def weights_digest(payload: memoryview | bytes) -> str:
    """SHA-256 of a bundle's weights: what follows its header."""
    start = 8 + int.from_bytes(payload[:8], "little")
    return hashlib.sha256(payload[start:]).hexdigest()


class NumpyBoardModel:
    """See edgerun.board.model.BoardModel."""

    backend = "numpy"
    isa = "numpy"
    threads = 1
    arena_bytes = 0

    def __init__(self, graph: Graph, payload: memoryview) -> None:
        self.payload = payload
        self.graph = graph
        self.executor = NumpyExecutor(self.graph)
        self.manifest = self.graph.meta.get(META, {})
        tensors = self.graph.tensors
        self.inputs = [PortInfo(n, tensors[n].dtype, tensors[n].shape, tensors[n].kind) for n in self.graph.inputs]
        self.outputs = [PortInfo(n, tensors[n].dtype, tensors[n].shape, tensors[n].kind) for n in self.graph.outputs]
        self.nodes = len(self.graph.nodes)
        self.payload_bytes = len(payload)
        self.weight_bytes = len(payload) - 8 - int.from_bytes(payload[:8], "little")

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self.executor.run(inputs)

    def profile(self, inputs: Mapping[str, Any], runs: int) -> list[dict[str, Any]]:
        seconds = np.zeros(len(self.graph.nodes))
        numbers = {id(node): i for i, node in enumerate(self.graph.nodes)}
        for _ in range(runs):
            last = time.perf_counter()

            def observe(node: Node, _: Sequence[Any]) -> None:
                nonlocal last
                now = time.perf_counter()
                seconds[numbers[id(node)]] += now - last
                last = now

            self.executor.run(inputs, observer=observe)
        us, total = seconds / runs * 1e6, float(seconds.sum()) / runs * 1e6 or 1.0
        return [
            {"index": i, "node": n.name, "kernel": n.op, "us": float(us[i]), "percent": 100 * float(us[i]) / total}
            for i, n in enumerate(self.graph.nodes)
        ]

    def weights_are_intact(self) -> bool:
        return weights_digest(self.payload) == self.manifest.get("weights_sha256")

    def golden(self) -> list[GoldenSet]:
        sets = []
        for about in self.manifest.get("golden", []):
            inputs = {}
            for i, port in enumerate(self.inputs):
                shape = about["shapes"][i]
                if about["inputs"] is None:
                    inputs[port.name] = random_values(port.dtype, shape, about["seed"] + i)
                else:
                    inputs[port.name] = np.array(about["inputs"][i], port.dtype.numpy).reshape(shape)
            expected = [_expected(row) for row in about["outputs"]]
            sets.append(GoldenSet(inputs, expected))
        return sets

    def first_wrong_layer(self, golden: int) -> str | None:
        return None


def _expected(row: Mapping[str, Any]) -> Expected:
    values = np.array(row["values"], object if row["dtype"] == "string" else np.float64)
    return Expected(row["output"], lambda _: (values, row["size"]), row["atol"], row["rtol"])
