"""The tensors of a checkpoint while an architecture consumes them; misses, misfits and leftovers come out together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import numpy as np

from edgerun.dtypes import DType, from_numpy
from edgerun_converters.checkpoints.checkpoint import Checkpoint, misfit
from edgerun_converters.onnx.builder import Builder


class Weights:
    """Named arrays, taken one by one into the graph of a Builder."""

    def __init__(self, checkpoint: Checkpoint, builder: Builder, prefixes: Iterable[str] = ("",)) -> None:
        self.tensors = tensors = checkpoint.tensors
        self.builder = builder
        self.problems = checkpoint.problems
        self.used: set[str] = set()
        self._made: dict[tuple[str, bool], str] = {}
        self.prefix = next((p for p in prefixes if p and any(k.startswith(p) for k in tensors)), "")

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """The tensor as float32, checked for its shape. A missing one is noted and replaced by zeros."""
        key = self.prefix + name
        found = self.tensors.get(key)
        if found is None:
            self.problems.append(f"{key!r} of shape {list(shape)} is missing")
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

    def shape(self, name: str, otherwise: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a tensor that decides its own sizes; when it is missing or of another rank `otherwise`.

        `array` with a shape that follows from this one tells what is wrong.
        """
        found = self.tensors.get(self.prefix + name)
        return found.shape if found is not None and found.ndim == len(otherwise) else otherwise

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

    def skip(self, *starts: str) -> None:
        """Heads that the graph leaves out, by how their names start, with or without the prefix."""
        both = (*starts, *(self.prefix + s for s in starts))
        self.used.update(k for k in self.tensors if k.startswith(both))

    def finish(self, what: str) -> None:
        """Raises ImportFailure listing all missing, misshaped and unused tensors."""
        extra = sorted(k for k in self.tensors if k not in self.used)
        for key in extra:
            near = difflib.get_close_matches(
                f"{key!r} of shape {list(self.tensors[key].shape)} is missing", self.problems
            )
            hint = f"; is it the missing {near[0].split(' of shape')[0]}?" if near else ""
            self.problems.append(f"{key!r} of shape {list(self.tensors[key].shape)} is not used{hint}")
        if self.problems:
            raise misfit(what, self.problems)
