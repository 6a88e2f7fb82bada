"""What an architecture builds its graph from: a configuration and named tensors; and the table of architectures.

    @architecture("bert")
    def bert(c: Checkpoint, b: Builder) -> None:
        w = Weights(c.tensors, b)
        ...
        w.finish("BERT with this configuration")

An architecture is chosen by `model_type` of config.json, or, for a state dict without one, by its tensors' names.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.dims import DimLike, symbol
from edgerun.dtypes import DType
from edgerun.errors import ImportFailure, UnsupportedError
from edgerun.ops.registry import TensorType
from edgerun_converters.onnx.builder import Builder


@dataclass
class Checkpoint:
    """What an architecture builds from."""

    origin: Path
    """The folder or file, for messages and for files beside it."""
    config: dict[str, Any]
    tensors: dict[str, Any]
    """Arrays, or matrices of few bits (packed.Packed)."""
    options: dict[str, Any] = field(default_factory=dict)
    """Wishes of the user: `context`, the length of the cache of a language model."""
    tokenizer: np.ndarray | None = None
    """Bytes of the tokenizer (edgerun/text/vocabulary.py), when there is one."""
    problems: list[str] = field(default_factory=list)
    """Tensors that are missing or have another shape, as they are found (weights.py)."""

    def number(self, key: str, default: int | None = None) -> int:
        """A positive integer of the configuration. Raises ImportFailure when it is missing or something else."""
        value = self.config.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise ImportFailure(f"the configuration of {self.origin}: {key} is {value!r}, not a positive integer")
        return value

    def layers(self, key: str) -> int:
        """A number of layers. Raises ImportFailure when there are fewer tensors than that."""
        value = self.number(key)
        if value > len(self.tensors):
            raise ImportFailure(
                f"the configuration of {self.origin}: {key} is {value}, but there are {len(self.tensors)} tensors"
            )
        return value

    def real(self, key: str, default: float) -> float:
        """A number of the configuration."""
        value = self.config.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ImportFailure(f"the configuration of {self.origin}: {key} is {value!r}, not a number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """True or false. Raises ImportFailure for anything else."""
        value = self.config.get(key, default)
        if not isinstance(value, bool):
            raise ImportFailure(f"the configuration of {self.origin}: {key} is {value!r}, not true or false")
        return value

    def choice(self, key: str, default: str, allowed: tuple[str, ...]) -> str:
        """A word of the configuration. Raises UnsupportedError when it is none of `allowed`."""
        value = self.config.get(key, default)
        if value not in allowed:
            raise UnsupportedError(
                f"the configuration of {self.origin}: {key} {value!r} is not one of {', '.join(allowed)}"
            )
        return value


def misfit(what: str, problems: list[str]) -> ImportFailure:
    """The error for tensors that do not fit an architecture: all of them in `problems`, the first in the message."""
    unique = list(dict.fromkeys(problems))
    shown = "; ".join(unique[:20]) + (f"; and {len(unique) - 20} more" if len(unique) > 20 else "")
    return ImportFailure(f"the checkpoint does not fit {what}: {shown}", problems=unique)


BuildFunction = Callable[[Checkpoint, Builder], None]


@dataclass(frozen=True)
class Architecture:
    """One row of the table."""

    name: str
    build: BuildFunction
    model_types: tuple[str, ...]
    """Values of `model_type` in config.json."""
    names: tuple[str, ...]
    """Tensors that only this architecture has, all of them: how a state dict without configuration is recognised."""


ARCHITECTURES: list[Architecture] = []


def architecture(*model_types: str, names: tuple[str, ...] = ()) -> Callable[[BuildFunction], BuildFunction]:
    """Register the decorated function as the builder of these model types, or of state dicts with tensors `names`."""

    def register(function: BuildFunction) -> BuildFunction:
        ARCHITECTURES.append(Architecture(function.__name__, function, model_types, names))
        return function

    return register


@cache
def load_architectures() -> None:
    """Import every architecture, filling ARCHITECTURES."""
    import edgerun_converters.checkpoints.architectures as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"edgerun_converters.checkpoints.architectures.{module.name}")


def choose(origin: Path, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Architecture:
    """The architecture of a checkpoint. Raises UnsupportedError, naming those that are known, when there is none."""
    load_architectures()
    kind = config.get("model_type")
    for row in ARCHITECTURES:
        if kind in row.model_types if kind is not None else row.names and all(n in tensors for n in row.names):
            return row
    types = ", ".join(sorted(t for row in ARCHITECTURES for t in row.model_types))
    if kind is not None:
        raise UnsupportedError(f"the architecture {kind!r} of {origin} is not supported", hint=f"known: {types}")
    known = ", ".join(sorted({row.name for row in ARCHITECTURES if row.names}))
    some = ", ".join(repr(n) for n in list(tensors)[:3])
    raise UnsupportedError(
        f"{origin} has no configuration, and no known architecture has tensors like {some}",
        hint=f"recognised by their tensors: {known}; by config.json beside the file: {types}",
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises ImportFailure when the file is missing or holds something else."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as e:
        raise ImportFailure(f"{path.parent} is no model folder: it has no {path.name}") from e
    except (OSError, ValueError, RecursionError) as e:
        raise ImportFailure(f"{path} is not valid JSON") from e
    if not isinstance(document, dict):
        raise ImportFailure(f"{path} is not a JSON object")
    return document


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
