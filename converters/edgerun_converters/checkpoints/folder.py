"""Model folders (config.json and safetensors) to graphs, by the architecture that the configuration names."""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgerun import __version__
from edgerun.dims import DimLike, symbol
from edgerun.dtypes import DType
from edgerun.errors import ImportFailure, UnsupportedError
from edgerun.graph import Graph
from edgerun.ops.registry import TensorType
from edgerun_converters.checkpoints import pytorch, safetensors
from edgerun_converters.onnx.builder import Builder


@dataclass
class Checkpoint:
    """What an architecture builds from."""

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, np.ndarray]

    def number(self, key: str, default: int | None = None) -> int:
        """A positive integer of the configuration. Raises ImportFailure when it is missing or something else."""
        value = self.config.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise ImportFailure(f"{self.folder}/config.json: {key} is {value!r}, not a positive integer")
        return value

    def real(self, key: str, default: float) -> float:
        """A number of the configuration."""
        value = self.config.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ImportFailure(f"{self.folder}/config.json: {key} is {value!r}, not a number")
        return float(value)

    def choice(self, key: str, default: str, allowed: tuple[str, ...]) -> str:
        """A word of the configuration. Raises UnsupportedError when it is none of `allowed`."""
        value = self.config.get(key, default)
        if value not in allowed:
            raise UnsupportedError(f"{self.folder}/config.json: {key} {value!r} is not one of {', '.join(allowed)}")
        return value


BuildFunction = Callable[[Checkpoint, Builder], None]
ARCHITECTURES: dict[str, BuildFunction] = {}


def architecture(*model_types: str) -> Callable[[BuildFunction], BuildFunction]:
    """Register the decorated function as the builder of these `model_type`s of config.json."""

    def register(function: BuildFunction) -> BuildFunction:
        for name in model_types:
            ARCHITECTURES[name] = function
        return function

    return register


def load_architectures() -> None:
    """Import every architecture, filling ARCHITECTURES."""
    import edgerun_converters.checkpoints.architectures as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"edgerun_converters.checkpoints.architectures.{module.name}")


def import_folder(folder: Path) -> Graph:
    """The graph of a model folder. Raises ImportFailure for a damaged folder or a checkpoint that does not fit its
    configuration (all misfits at once), UnsupportedError for an unknown architecture."""
    config = _config(folder)
    if any(folder.glob("*.safetensors")):
        tensors = safetensors.read_folder(folder)
    elif (folder / "pytorch_model.bin").exists():
        tensors = pytorch.read_file(folder / "pytorch_model.bin")
    else:
        raise ImportFailure(f"{folder} holds neither *.safetensors nor pytorch_model.bin")
    load_architectures()
    kind = config.get("model_type")
    build = ARCHITECTURES.get(kind) if isinstance(kind, str) else None
    if build is None:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedError(f"the architecture {kind!r} of {folder} is not supported", hint=f"known: {known}")
    graph = Graph(folder.name)
    build(Checkpoint(folder, config, tensors), Builder(graph))
    graph.meta = {
        "source": folder.name,
        "architecture": kind,
        "sha256": hashlib.sha256((folder / "config.json").read_bytes()).hexdigest(),
        "converter": f"edgerun {__version__}",
    }
    graph.prune()
    graph.check()
    return graph


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
    except FileNotFoundError as e:
        raise ImportFailure(f"{folder} is no model folder: it has no config.json") from e
    except (OSError, ValueError, RecursionError) as e:
        raise ImportFailure(f"{path} is not valid JSON") from e
    if not isinstance(config, dict):
        raise ImportFailure(f"{path} is not a JSON object")
    return config


def add_input(b: Builder, name: str, dtype: DType, shape: tuple[DimLike | str, ...]) -> str:
    """Declare a graph input; a dimension given as text is a symbol."""
    dims = tuple(symbol(d) if isinstance(d, str) else d for d in shape)
    b.graph.add_tensor(name, dtype, dims)
    b.graph.inputs.append(name)
    b.types[name] = TensorType(dtype, dims)
    return name


def add_output(b: Builder, name: str, tensor: str) -> None:
    """Make `tensor` a graph output called `name`."""
    made = b.graph.tensors.pop(tensor)
    made.name = name
    b.graph.tensors[name] = made
    b.types[name] = b.types.pop(tensor)
    for node in b.graph.nodes:
        node.inputs = [name if i == tensor else i for i in node.inputs]
        node.outputs = [name if o == tensor else o for o in node.outputs]
    b.graph.outputs = [name if o == tensor else o for o in b.graph.outputs]
    b.graph.outputs.append(name)
