"""Golden vectors: inputs, and the outputs the reference computed from them at pack time, replayed on the board."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.dims import Dim, bounds, evaluate, free_symbols
from edgerun.dtypes import DType, from_numpy
from edgerun.errors import InputOutputError, ShapeError, UnsupportedError, UsageError
from edgerun.graph import Graph, Node
from edgerun.plan import PlanReader, Space
from edgerun.plan.layout import GOLDEN_LAYER
from edgerun.samples import random_values
from edgerun_packaging.extras import Vector

LAYER_SAMPLES = 8
"""Elements stored of each layer, evenly spread."""
OUTPUT_SAMPLES = 1024
"""Elements stored of an output that is too large to be stored whole."""
SMALL_SIZE = 4
"""Free dimensions take this value in generated inputs, or the nearest that their bounds allow."""


@dataclass(frozen=True, slots=True)
class Golden:
    """The vectors of one set and what the manifest says about them."""

    vectors: list[Vector]
    manifest: dict[str, Any]


def make(graph: Graph, plan: PlanReader, *, seed: int = 0, file: Path | None = None) -> Golden:
    """One golden set, from seeded random inputs or from an .npz with arrays by input name.

    Outputs that the .npz also holds (by output name) are the expected ones; the others come from the NumPy backend on
    `graph`. Raises UsageError for a file that does not fit, UnsupportedError where inputs cannot be drawn, ShapeError
    where the values drawn lead into a branch that cannot run.
    """
    given = _load(file) if file is not None else {}
    inputs = {name: _input(graph, name, given, seed + i) for i, name in enumerate(graph.feeds)}
    kept: dict[str, np.ndarray] = {}
    layers = _layers(plan)
    rounded = any(node.attrs.get("a_bits") for node in graph.nodes)
    wanted = {layer.tensor for layer in layers}

    def observe(node: Node, results: Sequence[Any]) -> None:
        for name, value in zip(node.outputs, results, strict=False):
            if name in wanted and isinstance(value, np.ndarray):
                kept[name] = value

    try:
        computed = NumpyExecutor(graph).run(inputs, observer=observe)
    except ShapeError as e:
        if given:
            raise
        raise ShapeError(
            f"the model cannot run with drawn inputs: {e.message}", hint="give inputs with --golden FILE.npz"
        ) from e
    outputs = [np.asarray(given.get(name, computed[name])) for name in graph.results]
    # Drawn inputs are not stored: the launcher draws them again from the seed.
    vectors = [Vector(0, i, _bytes(a) if given else b"", 0.0, 0.0) for i, a in enumerate(inputs.values())]
    for i, array in enumerate(outputs):
        large = array.nbytes > 4 * OUTPUT_SAMPLES + 8 and from_numpy(array.dtype).is_float
        data = _samples(array, OUTPUT_SAMPLES) if large else _bytes(array)
        vectors.append(Vector(0, len(inputs) + i, data, *tolerance(array, rounded)))
    vectors += [v for layer in layers if (v := _layer_vector(layer, kept.get(layer.tensor), rounded)) is not None]
    manifest = {
        "source": "file" if file is not None else "random",
        "seed": None if file is not None else seed,
        "reference": "file" if given and all(o in given for o in graph.results) else "numpy",
        "shapes": [list(a.shape) for a in inputs.values()],
    }
    return Golden(vectors, manifest)


def tolerance(array: np.ndarray, rounded: bool = False) -> tuple[float, float]:
    """(atol, rtol) for comparing another backend's output with this one, by dtype and magnitude.

    `rounded`: the graph rounds activations to 8 bits, so that the last bit of a sum can move a result by a code.
    """
    dtype = from_numpy(array.dtype)
    if not dtype.is_float:
        return (1.0, 0.0) if dtype in (DType.I8, DType.U8) else (0.0, 0.0)
    values = array.astype(np.float64)
    scale = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    unit = 5e-2 if rounded else {DType.F16: 1e-2, DType.BF16: 4e-2}.get(dtype, 1e-4)
    return unit * scale + 1e-7, 10 * unit


def inputs_of(graph: Graph, seed: int = 0, file: Path | None = None) -> dict[str, np.ndarray]:
    """Golden inputs by name, drawn or of an .npz; errors as for `make`."""
    given = _load(file) if file is not None else {}
    return {name: _input(graph, name, given, seed + i) for i, name in enumerate(graph.feeds)}


def _load(file: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as e:
        raise InputOutputError(f"cannot read {file}: {e.strerror or e}") from e
    except ValueError as e:
        raise UsageError(f"cannot read {file}: {e}", hint="write it with numpy.savez") from e


def _input(graph: Graph, name: str, given: Mapping[str, np.ndarray], seed: int) -> np.ndarray:
    tensor = graph.tensors[name]
    if given:
        if name not in given:
            raise UsageError(f"the golden file has no array for input {name!r}", hint="it has: " + ", ".join(given))
        return given[name]
    if tensor.shape is None or tensor.dtype is DType.STRING or tensor.kind != "tensor":
        raise UnsupportedError(f"no golden vectors can be drawn for input {tensor}", hint="give --golden FILE.npz")
    values = {s: _small(graph, s) for d in tensor.shape for s in free_symbols(d)}
    shape = tuple(evaluate(d, values) if isinstance(d, Dim) else d for d in tensor.shape)
    return random_values(tensor.dtype, shape, seed)


def _small(graph: Graph, name: str) -> int:
    from edgerun.dims import symbol

    low, high = bounds(symbol(name), graph.symbols)
    return max(low or 1, min(SMALL_SIZE, high if high is not None else SMALL_SIZE))


def _bytes(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@dataclass(frozen=True, slots=True)
class _Layer:
    """Output 0 of a node of the plan."""

    node: int
    tensor: str
    dtype: DType


def _layers(plan: PlanReader) -> list[_Layer]:
    """Nodes whose output 0 is in the arena, in execution order."""
    found = []
    for index, node in enumerate(plan.nodes):
        if node.outputs and node.outputs[0] >= 0:
            t = plan.tensors[node.outputs[0]]
            if t.space == Space.ARENA:
                found.append(_Layer(index, t.name, t.dtype))
    return found


def _layer_vector(layer: _Layer, value: np.ndarray | None, rounded: bool) -> Vector | None:
    """Samples of a layer's output; None when it cannot be sampled."""
    if value is None or value.size == 0 or from_numpy(value.dtype) is not layer.dtype:
        return None
    atol, rtol = tolerance(value, rounded)
    return Vector(0, GOLDEN_LAYER | layer.node, _samples(value, LAYER_SAMPLES), 10 * atol, rtol)


def _samples(value: np.ndarray, count: int) -> bytes:
    """u64 element count, then float32 samples: sample s of k is element s * n // k."""
    count = min(count, value.size)
    picks = np.arange(count) * value.size // count
    return struct.pack("<Q", value.size) + value.ravel()[picks].astype(np.float32).tobytes()
