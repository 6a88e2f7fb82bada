"""The tensors of a checkpoint while an architecture consumes them; misses, misfits and leftovers come out together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import numpy as np

from edgerun.dtypes import DType, from_numpy
from edgerun.errors import ImportFailure
from edgerun_converters.onnx.builder import Builder


class Weights:
    """Named arrays, taken one by one into the graph of a Builder."""

    def __init__(self, tensors: dict[str, np.ndarray], builder: Builder, prefixes: Iterable[str] = ("",)) -> None:
        self.tensors = tensors
        self.builder = builder
        self.problems: list[str] = []
        self.used: set[str] = set()
        self._made: dict[tuple[str, bool], str] = {}
        self.prefix = next((p for p in prefixes if p and any(k.startswith(p) for k in tensors)), "")

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """The tensor as float32, checked for its shape. A missing one is noted and replaced by zeros."""
        key = self.prefix + name
        found = self.tensors.get(key)
        if found is None:
            near = difflib.get_close_matches(key, self.tensors, 1, 0.8)
            hint = f"; there is {near[0]!r} of shape {list(self.tensors[near[0]].shape)}" if near else ""
            self.problems.append(f"{key!r} of shape {list(shape)} is missing{hint}")
            return np.zeros(shape, np.float32)
        self.used.add(key)
        if tuple(found.shape) != shape:
            self.problems.append(f"{key!r} has the shape {list(found.shape)} instead of {list(shape)}")
            return np.zeros(shape, np.float32)
        if not from_numpy(found.dtype).is_float:
            self.problems.append(f"{key!r} is {found.dtype}, not a float type")
            return np.zeros(shape, np.float32)
        return found.astype(np.float32)

    def has(self, name: str) -> bool:
        return self.prefix + name in self.tensors

    def take(self, name: str, shape: tuple[int, ...], *, transposed: bool = False) -> str:
        """The tensor as a constant of the graph; `transposed` turns a [out, in] matrix into [in, out]."""
        key = (name, transposed)
        if key not in self._made:
            array = self.array(name, shape)
            array = np.ascontiguousarray(array.T) if transposed else array
            self._made[key] = self.builder.const(array, DType.F32, name)
        return self._made[key]

    def ignore(self, *names: str) -> None:
        """Tensors that are in such checkpoints but hold nothing to compute with (position id buffers, say)."""
        self.used.update(k for k in self.tensors if any(k.endswith(n) for n in names))

    def finish(self, what: str) -> None:
        """Raises ImportFailure listing all missing, misshaped and unused tensors."""
        extra = sorted(k for k in self.tensors if k not in self.used)
        problems = self.problems + [f"{k!r} of shape {list(self.tensors[k].shape)} is not used" for k in extra]
        if problems:
            shown = "; ".join(problems[:20]) + (f"; and {len(problems) - 20} more" if len(problems) > 20 else "")
            raise ImportFailure(f"the checkpoint does not fit {what}: {shown}")
