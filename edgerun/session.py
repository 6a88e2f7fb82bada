"""Open a model and run it: the one Python interface over all backends.

>>> session = load("model.edge", backend="native", threads=2)
>>> session.run({"input": x})["output"].shape
(1, 1000)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edgerun.dims import shape_text
from edgerun.dtypes import DType
from edgerun.errors import EdgerunError, FileFormatError, InputOutputError, UnsupportedError, UsageError
from edgerun.graph import Graph, Shape, concrete_shape

BACKENDS = ("numpy", "native", "wgpu", "cuda")
CHECKPOINTS = (".safetensors", ".gguf", ".pt", ".pth", ".bin")
"""Endings of trained checkpoints; a model folder is one too."""


@dataclass(frozen=True, slots=True)
class PortInfo:
    """Name and type of an input or output. `shape` may hold symbolic dimensions, or be None (unknown rank)."""

    name: str
    dtype: DType
    shape: Shape | None
    kind: str = "tensor"

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.short}{shape_text(self.shape)}"


class Runner(Protocol):
    """What a backend gives the session."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]: ...


class Session:
    """A loaded model. `run` maps input names to arrays and returns arrays by output name."""

    def __init__(
        self, inputs: Sequence[PortInfo], outputs: Sequence[PortInfo], runner: Runner, backend: str, graph: Graph | None
    ) -> None:
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.backend = backend
        self.graph = graph
        """The graph, when the model was opened from one (not from a plan)."""
        self.runner = runner
        self.assets: dict[str, np.ndarray] = graph.assets if graph is not None else {}
        """Bytes that belong to the model: the tokenizer."""
        self.meta: dict[str, Any] = graph.meta if graph is not None else {}
        """What the model says about itself: the graph's meta, or a plan's manifest."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run once. Raises UsageError for missing, unknown or misshaped inputs, naming what the model expects."""
        return self.runner.run(inputs)

    def random_inputs(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Seeded inputs for tests and benchmarks: floats normal, integers in [0, 2), bools half true.

        Raises ShapeError when a shape is symbolic.
        """
        generator = np.random.default_rng(seed)
        return {port.name: random_array(port, generator) for port in self.inputs}


def random_array(port: PortInfo, generator: np.random.Generator) -> np.ndarray:
    """One random array of a port's type. Raises ShapeError for symbolic shapes, UnsupportedError for strings."""
    from edgerun.graph import Tensor

    shape = concrete_shape(Tensor(port.name, port.dtype, port.shape))
    if port.dtype is DType.STRING or port.kind != "tensor":
        raise UnsupportedError(f"no random data for input {port}", hint="give it with --input")
    if port.dtype is DType.BOOL:
        return generator.random(shape) < 0.5
    if port.dtype.is_integer:
        return generator.integers(0, 2, shape).astype(port.dtype.numpy)
    return generator.standard_normal(shape).astype(np.float32).astype(port.dtype.numpy)


def from_graph(graph: Graph, backend: str = "numpy", *, threads: int = 1, **options: Any) -> Session:
    """A session for a graph in memory. `backend`: one of BACKENDS, or "auto" (native where it can run it).

    `options` go to the backend: for native those of its lowering, for cuda `split`, for wgpu also `allow_software`.
    Raises UnsupportedError listing every node the backend cannot run, BackendUnavailable when its library is missing.
    """
    if backend not in (*BACKENDS, "auto"):
        raise UsageError(f"there is no backend {backend!r}", hint="one of " + ", ".join((*BACKENDS, "auto")))
    inputs = [_port(graph, name) for name in graph.feeds]
    outputs = [_port(graph, name) for name in graph.results]
    if backend in ("native", "auto"):
        try:
            from edgerun.backends.native.backend import compile_graph

            return Session(inputs, outputs, compile_graph(graph, threads=threads, **options), "native", graph)
        except EdgerunError:
            if backend == "native":
                raise
    if backend == "cuda":
        from edgerun.backends.cuda.runner import CudaRunner

        return Session(inputs, outputs, CudaRunner(graph, **options), "cuda", graph)
    if backend == "wgpu":
        from edgerun.backends.wgpu.runner import WgpuRunner

        return Session(inputs, outputs, WgpuRunner(graph, **options), "wgpu", graph)
    from edgerun.backends.numpy.executor import NumpyExecutor

    return Session(inputs, outputs, NumpyExecutor(graph), "numpy", graph)


def _port(graph: Graph, name: str) -> PortInfo:
    tensor = graph.tensors[name]
    return PortInfo(name, tensor.dtype, tensor.shape, tensor.kind)


def load(
    path: str | os.PathLike[str],
    backend: str = "auto",
    *,
    threads: int = 1,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, Any] | None = None,
    context: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Session:
    """Open a bundle (`.edge`), a plan, a packed executable, or (with the host part) an ONNX file or checkpoint.

    `shapes` binds input shapes by input name, `dims` symbols by name, for bundles, ONNX files and checkpoints;
    `context` is as for `load_graph`, `options` as for `from_graph`. Raises FileFormatError for anything else,
    InputOutputError when it cannot be read, and what `from_graph` raises.
    """
    path = Path(path)
    if not path.is_dir() and _head(path).startswith((b"EDGEPLAN", b"\x7fELF")):
        if context is not None:
            raise UsageError(
                f"{path}: the context was fixed when it was converted", hint="convert again with --context"
            )
        from edgerun.backends.native.backend import open_plan

        return open_plan(path, threads=threads)
    graph = load_graph(path, shapes=shapes, dims=dims, context=context)
    return from_graph(graph, backend, threads=threads, **(options or {}))


def load_graph(
    path: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, Any] | None = None,
    optimize: bool = True,
    context: int | None = None,
) -> Graph:
    """The graph of a bundle, or of an ONNX file or checkpoint imported and (unless `optimize` is false) optimised now.

    `context` is the length of the cache of a language model, for checkpoints. Raises FileFormatError, and
    UnsupportedError listing all problems of an ONNX file.
    """
    path = Path(path)
    if _looks_like_bundle(path):
        from edgerun import bundle

        graph = bundle.load(path)
        if context is not None:
            raise UsageError(
                f"{path}: the context was fixed when it was converted", hint="convert again with --context"
            )
        if shapes or dims:
            graph = host("edgerun_converters.passes.bind", "bind")(graph, shapes or {}, dims or {})
        return graph
    if path.suffix == ".pt2":
        graph = host("edgerun_converters.checkpoints.torch_export", "import_program")(path)
        return (
            host("edgerun_converters.passes.bind", "bind")(graph, shapes or {}, dims or {}) if shapes or dims else graph
        )
    if path.is_dir() or path.suffix in CHECKPOINTS:
        load_checkpoint = host("edgerun_converters.checkpoints.load", "import_checkpoint")
        graph = load_checkpoint(path, shapes=shapes or {}, dims=dims or {}, options={"context": context})
    elif context is not None:
        raise UsageError(f"{path} is no checkpoint of a language model: it has no context")
    elif path.suffix in (".onnx", ".pb", ".ort"):
        graph = host("edgerun_converters.onnx.importer", "import_model")(path, shapes=shapes or {}, dims=dims or {})
    elif _head(path).startswith((b"EDGEPLAN", b"\x7fELF")):
        raise UsageError(
            f"{path} holds a plan, and no graph any more: this verb cannot use it",
            hint="give the model it was made from (.onnx, .edge); run, bench, verify and inspect take it as it is",
        )
    else:
        raise FileFormatError(f"{path} is neither a bundle, a plan, a packed executable, an ONNX file nor a checkpoint")
    return host("edgerun_converters.passes.pipeline", "optimize")(graph, enabled=optimize)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(16)
    except OSError as e:
        raise InputOutputError(f"cannot read {path}: {e.strerror}") from e


def _looks_like_bundle(path: Path) -> bool:
    if path.is_dir() or path.suffix in CHECKPOINTS:
        return False
    head = _head(path)
    return path.suffix == ".edge" or (
        len(head) > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32
    )


def host(module: str, name: str) -> Any:
    """A function of the host side, or UnsupportedError where only the device part is installed."""
    import importlib

    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as e:
        raise UnsupportedError(
            f"this needs the host part of edgerun ({e.name} is not installed)", hint="pip install 'edgerun[host]'"
        ) from e
