"""Run lowered graphs with wgpu: one arena, one buffer of constants, all dispatches of a stretch in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgerun.backends.gpu.lowering import Lowered, OnCpu, fits, lower, stored
from edgerun.backends.gpu.memory import plan, rounded
from edgerun.backends.gpu.wgsl import storage
from edgerun.backends.numpy.executor import NumpyExecutor, check_inputs
from edgerun.backends.wgpu import adapters
from edgerun.errors import BackendUnavailable, UnsupportedError
from edgerun.graph import Graph, concrete_shape


class WgpuRunner:
    """What a Session holds: a graph compiled for one GPU.

    Raises BackendUnavailable without a GPU, UnsupportedError listing the nodes without a kernel (unless `split`, which
    computes them with the NumPy kernels) and for models that do not fit into the GPU's limits.
    """

    def __init__(self, graph: Graph, *, split: bool = False, allow_software: bool = False) -> None:
        if graph.states:
            raise UnsupportedError("the GPU backends do not keep states between runs", hint="use --backend native")
        self.graph = graph
        self.lowered = lower(graph, split=split)
        self.adapter = adapters.choose(allow_software=allow_software)
        self._sizes = _sizes(graph, self.lowered)
        self.places = plan(graph, self.lowered, self._sizes)
        self._open()
        self._host: dict[str, Any] = {}
        """Values that the GPU cannot hold, between nodes on the CPU."""
        self._numpy = NumpyExecutor(graph) if self.on_cpu else None
        self._stretches = self._compile()

    @property
    def on_cpu(self) -> dict[str, str]:
        """Nodes that the CPU computes -> why."""
        return self.lowered.refused

    @property
    def device_name(self) -> str:
        """The GPU's name."""
        return str(self.adapter.info["device"])

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Upload the inputs, run, download the outputs. Raises UsageError for wrong inputs."""
        self._host.clear()
        arrays, _ = check_inputs(self.graph, inputs)
        for name, value in arrays.items():
            self._write(name, value)
        for stretch in self._stretches:
            if isinstance(stretch, OnCpu):
                self._run_on_cpu(stretch)
            else:
                self._submit(stretch)
        return {name: self._read(name) for name in self.graph.outputs}

    # -- set-up

    def _open(self) -> None:
        import wgpu

        biggest = max(self.places.arena_bytes, self.places.constant_bytes, 256)
        limits = self.adapter.limits
        for limit in ("max-buffer-size", "max-storage-buffer-binding-size"):
            if max(biggest if limit == "max-buffer-size" else max(self._sizes.values(), default=0), 0) > limits[limit]:
                raise UnsupportedError(
                    f"the model needs {biggest} bytes in one buffer, {self.device_name} allows {limits[limit]}",
                    hint="use --backend native",
                )
        wanted = {k: limits[k] for k in ("max-buffer-size", "max-storage-buffer-binding-size")}
        try:
            self.device = self.adapter.request_device_sync(required_limits=wanted)
        except Exception as e:
            raise BackendUnavailable(f"{self.device_name} gives no device: {e}", hint=adapters.REMEDY) from e
        usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        self._arena = self.device.create_buffer(size=self.places.arena_bytes, usage=usage)
        self._constants = self.device.create_buffer(size=max(self.places.constant_bytes, 256), usage=usage)
        for name, offset in self.places.constants.items():
            data = self.lowered.constants.get(name)
            if data is None:
                tensor = self.graph.tensors[name]
                assert tensor.data is not None
                data = stored(tensor.data, tensor.dtype)
            if data.nbytes:
                self.device.queue.write_buffer(self._constants, offset, np.ascontiguousarray(data))

    def _compile(self) -> list[list[tuple[Any, Any, tuple[int, int, int]]] | OnCpu]:
        """Stretches of dispatches between nodes on the CPU. Equal sources share a pipeline."""
        pipelines: dict[str, tuple[Any, Any]] = {}
        stretches: list[Any] = []
        for step in self.lowered.steps:
            if isinstance(step, OnCpu):
                stretches.append(step)
                continue
            if not stretches or isinstance(stretches[-1], OnCpu):
                stretches.append([])
            source = step.kernel.source
            if source not in pipelines:
                pipelines[source] = self._pipeline(source, len(step.buffers), step.node)
            layout, pipeline = pipelines[source]
            entries = [{"binding": k, "resource": self._resource(name)} for k, name in enumerate(step.buffers)]
            group = self.device.create_bind_group(layout=layout, entries=entries)
            stretches[-1].append((pipeline, group, step.kernel.groups))
        return stretches

    def _pipeline(self, source: str, buffers: int, node: str) -> tuple[Any, Any]:
        import wgpu

        entries = [
            {"binding": k, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": "storage"}}
            for k in range(buffers)
        ]
        try:
            module = self.device.create_shader_module(code=source)
            layout = self.device.create_bind_group_layout(entries=entries)
            whole = self.device.create_pipeline_layout(bind_group_layouts=[layout])
            stage = {"module": module, "entry_point": "main"}
            return layout, self.device.create_compute_pipeline(layout=whole, compute=stage)
        except wgpu.GPUError as e:
            raise BackendUnavailable(f"{self.device_name} does not compile the kernel of node {node!r}: {e}") from e

    def _resource(self, name: str) -> dict[str, Any]:
        root = self.lowered.root(name)
        size = rounded(self._sizes[root])
        if root in self.places.constants:
            return {"buffer": self._constants, "offset": self.places.constants[root], "size": size}
        return {"buffer": self._arena, "offset": self.places.arena[root], "size": size}

    # -- running

    def _submit(self, stretch: list[tuple[Any, Any, tuple[int, int, int]]]) -> None:
        encoder = self.device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        for pipeline, group, size in stretch:
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(*size)
        compute.end()
        self.device.queue.submit([encoder.finish()])

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
        if root not in self._sizes:
            self._host[name] = value
        elif getattr(value, "size", 0) and root in self.places.arena:
            data = stored(value, self.graph.tensors[name].dtype)
            self.device.queue.write_buffer(self._arena, self.places.arena[root], data)

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
        resource = self._resource(name)
        data = self.device.queue.read_buffer(resource["buffer"], resource["offset"], count * 4)
        kind = {"f32": np.float32, "i32": np.int32, "u32": np.uint32}[storage(tensor.dtype)]
        return np.frombuffer(data, kind).reshape(shape).astype(tensor.dtype.numpy)


def _sizes(graph: Graph, lowered: Lowered) -> dict[str, int]:
    """Bytes of every tensor that the GPU can hold: four an element."""
    sizes = {name: 4 * int(np.prod(concrete_shape(tensor))) for name, tensor in graph.tensors.items() if fits(tensor)}
    return sizes | {name: 4 * int(np.prod(shape)) for name, shape in lowered.shapes.items()}
