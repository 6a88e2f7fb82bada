"""Running a lowered graph on any GPU: upload, stretches of dispatches, nodes on the CPU between them, download.

A backend is a subclass that opens the device, copies bytes, and makes and starts stretches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgerun.backends.gpu.lowering import Dispatch, Lowered, OnCpu, fits, lower, stored
from edgerun.backends.gpu.memory import plan, rounded
from edgerun.backends.gpu.wgsl import storage
from edgerun.backends.numpy.executor import NumpyExecutor, check_inputs
from edgerun.errors import UnsupportedError
from edgerun.graph import Graph, concrete_shape


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes of one of the two buffers."""

    constant: bool
    offset: int
    size: int


class GpuRunner(ABC):
    """What a Session holds: a graph compiled for one GPU.

    Raises BackendUnavailable without a GPU, UnsupportedError listing the nodes without a kernel (unless `split`, which
    computes them with the NumPy kernels) and for models that do not fit into the GPU's limits.
    """

    def __init__(self, graph: Graph, *, split: bool = False) -> None:
        if graph.states:
            raise UnsupportedError("the GPU backends do not keep states between runs", hint="use --backend native")
        self.graph = graph
        self.lowered = lower(graph, split=split)
        self.sizes = _sizes(graph, self.lowered)
        self.places = plan(graph, self.lowered, self.sizes)
        self._host: dict[str, Any] = {}
        """Values that the GPU cannot hold, between nodes on the CPU."""
        self._numpy = NumpyExecutor(graph) if self.on_cpu else None
        self.open()
        self._upload_constants()
        self.stretches = self._stretches()

    @property
    def on_cpu(self) -> dict[str, str]:
        """Nodes that the CPU computes -> why."""
        return self.lowered.refused

    # -- what a backend does

    @property
    @abstractmethod
    def device_name(self) -> str:
        """The GPU's name."""

    @abstractmethod
    def open(self) -> None:
        """Open the device and make both buffers, of `places.arena_bytes` and `places.constant_bytes`."""

    @abstractmethod
    def write(self, place: Range, data: np.ndarray) -> None:
        """Copy a contiguous array to the beginning of a range."""

    @abstractmethod
    def read(self, place: Range, count: int) -> bytes:
        """The first `count` bytes of a range, after all that was started is done."""

    @abstractmethod
    def compile(self, dispatches: Sequence[Dispatch]) -> Any:
        """A stretch that `start` runs."""

    @abstractmethod
    def start(self, stretch: Any) -> None:
        """Start the dispatches of a stretch, in order."""

    # -- running

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Upload the inputs, run, download the outputs. Raises UsageError for wrong inputs."""
        self._host.clear()
        arrays, _ = check_inputs(self.graph, inputs)
        for name, value in arrays.items():
            self._write(name, value)
        self.compute()
        return {name: self._read(name) for name in self.graph.outputs}

    def compute(self) -> None:
        """All stretches and nodes on the CPU, on the inputs that were uploaded last."""
        for stretch in self.stretches:
            if isinstance(stretch, OnCpu):
                self._run_on_cpu(stretch)
            else:
                self.start(stretch)

    def place(self, name: str) -> Range:
        """Where a tensor is."""
        root = self.lowered.root(name)
        size = rounded(self.sizes[root])
        if root in self.places.constants:
            return Range(True, self.places.constants[root], size)
        return Range(False, self.places.arena[root], size)

    def _upload_constants(self) -> None:
        for name in self.places.constants:
            data = self.lowered.constants.get(name)
            if data is None:
                tensor = self.graph.tensors[name]
                assert tensor.data is not None
                data = stored(tensor.data, tensor.dtype)
            if data.nbytes:
                self.write(self.place(name), np.ascontiguousarray(data))

    def _stretches(self) -> list[Any]:
        """Compiled stretches of dispatches, and the nodes on the CPU between them."""
        groups: list[list[Dispatch] | OnCpu] = []
        for step in self.lowered.steps:
            if isinstance(step, OnCpu):
                groups.append(step)
            elif groups and isinstance(groups[-1], list):
                groups[-1].append(step)
            else:
                groups.append([step])
        return [g if isinstance(g, OnCpu) else self.compile(g) for g in groups]

    def _run_on_cpu(self, step: OnCpu) -> None:
        assert self._numpy is not None
        values = {name: self._value(name) for name in step.reads}
        results = self._numpy.run_node(step.node, values)
        for name, value in zip(step.node.outputs, results, strict=False):
            if name:
                self._write(name, value)

    def _value(self, name: str) -> Any:
        data = self.graph.tensors[name].data
        return data if data is not None else self._read(name)

    def _write(self, name: str, value: Any) -> None:
        root = self.lowered.root(name)
        if root not in self.sizes:
            self._host[name] = value
        elif getattr(value, "size", 0) and root in self.places.arena:
            self.write(self.place(name), stored(value, self.graph.tensors[name].dtype))

    def _read(self, name: str) -> Any:
        if name in self._host:
            return self._host[name]
        tensor = self.graph.tensors[name]
        if tensor.data is not None:
            return tensor.data
        shape = concrete_shape(tensor)
        count = int(np.prod(shape))
        if not count:
            return np.zeros(shape, tensor.dtype.numpy)
        kind = {"f32": np.float32, "i32": np.int32, "u32": np.uint32}[storage(tensor.dtype)]
        data = self.read(self.place(name), count * 4)
        return np.frombuffer(data, kind).reshape(shape).astype(tensor.dtype.numpy)


def _sizes(graph: Graph, lowered: Lowered) -> dict[str, int]:
    """Bytes of every tensor that the GPU can hold: four an element."""
    sizes = {name: 4 * int(np.prod(concrete_shape(t))) for name, t in graph.tensors.items() if fits(t)}
    return sizes | {name: 4 * int(np.prod(shape)) for name, shape in lowered.shapes.items()}
