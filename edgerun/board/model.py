"""The model in this file: a plan for the native kernels, or a bundle for the NumPy ones, mapped and used in place."""

from __future__ import annotations

import importlib
import mmap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edgerun import bundle
from edgerun.errors import UsageError
from edgerun.packed import map_plan
from edgerun.session import PortInfo

PLAN_MAGIC = b"EDGEPLAN"
META = "packed"
"""Key of the manifest among a bundle's meta data."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What an output should be, within |got - want| <= atol + rtol * |want|."""

    output: str
    decode: Callable[[np.ndarray], tuple[np.ndarray, int]]
    """From the output that was computed to the stored values, and how many elements the whole output should have.
    Fewer values than that are evenly spread samples: sample s of k is element s * size // k."""
    atol: float
    rtol: float


@dataclass(frozen=True, slots=True)
class GoldenSet:
    """Inputs by name and what they should give."""

    inputs: dict[str, Any]
    expected: list[Expected]


class BoardModel(Protocol):
    """What the verbs need of a model."""

    inputs: Sequence[PortInfo]
    outputs: Sequence[PortInfo]
    manifest: dict[str, Any]
    backend: str
    isa: str
    nodes: int
    weight_bytes: int
    arena_bytes: int
    payload_bytes: int
    threads: int

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One inference."""

    def profile(self, inputs: Mapping[str, Any], runs: int) -> list[dict[str, Any]]:
        """Time of every layer: rows of bench.LAYER_FIELDS."""

    def weights_are_intact(self) -> bool:
        """Whether the weights have the checksum they were packed with."""

    def golden(self) -> list[GoldenSet]:
        """The stored golden vectors."""

    def first_wrong_layer(self, golden: int) -> str | None:
        """A sentence about the first layer outside its tolerance, or None when no layer is stored or wrong."""


def open_model(path: Path, *, threads: int = 0, isa: str | None = None, allow_software: bool = False) -> BoardModel:
    """The model of a packed file. `allow_software`: whether a GPU may be a program on the CPU (wgpu).

    Raises FileFormatError, UnsupportedError, UsageError, and BackendUnavailable without a GPU.
    """
    payload = _map_bundle(path) if path.suffix == ".edge" else map_plan(path)
    if payload[:8] == PLAN_MAGIC:
        return importlib.import_module("edgerun.board.native_model").open_payload(payload, threads, isa)
    if isa is not None:
        raise UsageError("this model does not run on the native kernels, which alone have --isa levels")
    graph = bundle.from_buffer(payload, "the model in this file", validate=False)
    if (graph.meta.get(META) or {}).get("backend") == "wgpu":
        return importlib.import_module("edgerun.board.wgpu_model").open_graph(graph, payload, allow_software)
    return importlib.import_module("edgerun.board.numpy_model").NumpyBoardModel(graph, payload)


def _map_bundle(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
