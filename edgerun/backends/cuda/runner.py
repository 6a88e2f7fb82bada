"""Run lowered graphs with CUDA: a stretch of dispatches is a recorded graph, replayed in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgerun.backends.cuda import driver
from edgerun.backends.cuda.nvrtc import compiled
from edgerun.backends.cuda.translate import translate
from edgerun.backends.gpu.lowering import Dispatch
from edgerun.backends.gpu.runner import GpuRunner, Range


class CudaRunner(GpuRunner):
    """A graph compiled for the first CUDA device. Errors: see GpuRunner."""

    _functions: dict[str, tuple[Any, int]]

    @property
    def device_name(self) -> str:
        return self._device.name

    def open(self) -> None:
        self._functions = {}
        self._device = driver.device()
        self._arena = self._device.take(self.places.arena_bytes)
        self._constants = self._device.take(max(self.places.constant_bytes, 256))

    def _address(self, place: Range) -> int:
        return (self._constants if place.constant else self._arena) + place.offset

    def write(self, place: Range, data: np.ndarray) -> None:
        self._device.upload(self._address(place), data)

    def read(self, place: Range, count: int) -> bytes:
        return self._device.download(self._address(place), count)

    def compile(self, dispatches: Sequence[Dispatch]) -> Any:
        """The recorded graph. Equal sources share a function."""
        launches = []
        for step in dispatches:
            source = step.kernel.source
            if source not in self._functions:
                text, threads = translate(source)
                self._functions[source] = self._device.function(compiled(text)), threads
            function, threads = self._functions[source]
            launches.append(
                (function, step.kernel.groups, threads, [self._address(self.place(n)) for n in step.buffers])
            )
        self._device.begin_graph()
        for launch in launches:
            self._device.launch(*launch)
        return self._device.end_graph()

    def start(self, stretch: Any) -> None:
        self._device.replay(stretch)

    def __del__(self) -> None:
        for address in (getattr(self, "_arena", 0), getattr(self, "_constants", 0)):
            if address:
                self._device.give(address)
