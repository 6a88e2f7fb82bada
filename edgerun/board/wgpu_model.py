"""A bundle, run by a GPU; nodes without a GPU kernel are computed with NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgerun.backends.wgpu.runner import WgpuRunner
from edgerun.board.numpy_model import NumpyBoardModel
from edgerun.errors import UsageError
from edgerun.graph import Graph


def open_graph(graph: Graph, payload: memoryview, allow_software: bool) -> WgpuBoardModel:
    """Compile for the best adapter. Raises BackendUnavailable without one."""
    return WgpuBoardModel(graph, payload, allow_software)


class WgpuBoardModel(NumpyBoardModel):
    """See edgerun.board.model.BoardModel."""

    backend = "wgpu"
    isa = "wgpu"

    def __init__(self, graph: Graph, payload: memoryview, allow_software: bool) -> None:
        super().__init__(graph, payload)
        self.runner = WgpuRunner(graph, split=True, allow_software=allow_software)
        self.isa = self.runner.device_name

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self.runner.run(inputs)

    def profile(self, inputs: Mapping[str, Any], runs: int) -> list[dict[str, Any]]:
        raise UsageError("--layers is not possible on a GPU, which runs all layers as one")
