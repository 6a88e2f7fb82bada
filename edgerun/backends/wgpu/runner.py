"""Run lowered graphs with wgpu: a stretch of dispatches is one pass and one submit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgerun.backends.gpu.lowering import Dispatch
from edgerun.backends.gpu.runner import GpuRunner, Range
from edgerun.backends.wgpu import adapters
from edgerun.errors import BackendUnavailable, UnsupportedError
from edgerun.graph import Graph


class WgpuRunner(GpuRunner):
    """A graph compiled for the adapter that `adapters.choose` gives. Errors: see GpuRunner."""

    def __init__(self, graph: Graph, *, split: bool = False, allow_software: bool = False) -> None:
        self._allow_software = allow_software
        self._pipelines: dict[str, tuple[Any, Any]] = {}
        self._kept: list[tuple[Any, Any]] = []
        """The objects behind the handles."""
        super().__init__(graph, split=split)

    @property
    def device_name(self) -> str:
        return str(self._adapter.info["device"])

    def open(self) -> None:
        self._adapter = adapters.choose(allow_software=self._allow_software)
        import wgpu

        limits = self._adapter.limits
        needed = {
            "max-buffer-size": max(self.places.arena_bytes, self.places.constant_bytes),
            "max-storage-buffer-binding-size": max(self.sizes.values(), default=0),
        }
        for limit, size in needed.items():
            if size > limits[limit]:
                raise UnsupportedError(
                    f"the model needs {size} bytes in one buffer, {self.device_name} allows {limits[limit]}",
                    hint="use --backend native",
                )
        try:
            self._device = self._adapter.request_device_sync(required_limits={k: limits[k] for k in needed})
        except Exception as e:
            raise BackendUnavailable(f"{self.device_name} gives no device: {e}", hint=adapters.REMEDY) from e
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        self._arena = self._device.create_buffer(size=self.places.arena_bytes, usage=usage)
        self._constants = self._device.create_buffer(size=max(self.places.constant_bytes, 256), usage=usage)

    def write(self, place: Range, data: np.ndarray) -> None:
        self._device.queue.write_buffer(self._buffer(place), place.offset, data)

    def read(self, place: Range, count: int) -> bytes:
        return bytes(self._device.queue.read_buffer(self._buffer(place), place.offset, count))

    def _buffer(self, place: Range) -> Any:
        return self._constants if place.constant else self._arena

    def compile(self, dispatches: Sequence[Dispatch]) -> list[tuple[Any, Any, tuple[int, int, int]]]:
        """(pipeline, bind group, workgroups) of each, as handles of the C library. Equal sources share a pipeline."""
        made = []
        for step in dispatches:
            layout, pipeline = self._pipeline(step)
            entries = []
            for k, name in enumerate(step.buffers):
                place = self.place(name)
                resource = {"buffer": self._buffer(place), "offset": place.offset, "size": place.size}
                entries.append({"binding": k, "resource": resource})
            group = self._device.create_bind_group(layout=layout, entries=entries)
            self._kept.append((pipeline, group))
            made.append((pipeline._internal, group._internal, step.kernel.groups))
        return made

    def _pipeline(self, step: Dispatch) -> tuple[Any, Any]:
        import wgpu

        source = step.kernel.source
        if source in self._pipelines:
            return self._pipelines[source]
        entries = [
            {"binding": k, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "storage"}}
            for k in range(len(step.buffers))
        ]
        try:
            module = self._device.create_shader_module(code=source)
            layout = self._device.create_bind_group_layout(entries=entries)
            whole = self._device.create_pipeline_layout(bind_group_layouts=[layout])
            stage = {"module": module, "entry_point": "main"}
            made = layout, self._device.create_compute_pipeline(layout=whole, compute=stage)
        except wgpu.GPUError as e:
            message = f"{self.device_name} does not compile the kernel of node {step.node!r}: {e}"
            raise BackendUnavailable(message) from e
        self._pipelines[source] = made
        return made

    def start(self, stretch: list[tuple[Any, Any, tuple[int, int, int]]]) -> None:
        """Encoded with the C functions: through the package's objects a dispatch takes three times as long."""
        from wgpu.backends.wgpu_native import _api

        lib, null = _api.lib, _api.ffi.NULL
        encoder = self._device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        handle, current = compute._internal, None
        for pipeline, group, (x, y, z) in stretch:
            if pipeline is not current:
                lib.wgpuComputePassEncoderSetPipeline(handle, pipeline)
                current = pipeline
            lib.wgpuComputePassEncoderSetBindGroup(handle, 0, group, 0, null)
            lib.wgpuComputePassEncoderDispatchWorkgroups(handle, x, y, z)
        compute.end()
        self._device.queue.submit([encoder.finish()])
