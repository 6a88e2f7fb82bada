"""The tensors of a checkpoint while an architecture consumes them; misses, misfits and leftovers come out together."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence

import numpy as np

from edgerun.dtypes import DType, from_numpy
from edgerun_converters.checkpoints.checkpoint import Checkpoint, misfit
from edgerun_converters.checkpoints.packed import Packed, joined
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
            return self._stand_in(shape, f"{key!r} of shape {list(shape)} is missing")
        self.used.add(key)
        if tuple(found.shape) != shape:
            return self._stand_in(shape, f"{key!r} has the shape {list(found.shape)} instead of {list(shape)}")
        if not from_numpy(found.dtype).is_float:
            return self._stand_in(shape, f"{key!r} is {found.dtype}, not a float type")
        return found.rows() if isinstance(found, Packed) else found.astype(np.float32)

    def _stand_in(self, shape: tuple[int, ...], problem: str) -> np.ndarray:
        """Zeros, so that the other tensors are checked too; not of sizes that only a hostile configuration asks for."""
        self.problems.append(problem)
        if math.prod(shape) > 4 * sum(math.prod(t.shape) for t in self.tensors.values()):
            raise misfit("its configuration", self.problems)
        return np.zeros(shape, np.float32)

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

    def product(self, x: str, names: Sequence[str], outputs: Sequence[int], inputs: int, *, bias: bool = False) -> str:
        """x W^T (+ b) with the matrices `names` [outputs, inputs] one below the other: [..., sum of outputs].

        Packed matrices stay packed where all of them are packed alike.
        """
        found = [self._packed(f"{name}.weight", (n, inputs)) for name, n in zip(names, outputs, strict=True)]
        packed = joined([p for p in found if p is not None]) if all(p is not None for p in found) else None
        key = ("+".join(names), packed is None)
        biases = [self.array(f"{name}.bias", (n,)) for name, n in zip(names, outputs, strict=True)] if bias else []
        term = self.builder.const(np.concatenate(biases), DType.F32, f"{names[0]}.bias") if bias else ""
        if packed is None:
            if key not in self._made:
                arrays = [self.array(f"{name}.weight", (n, inputs)) for name, n in zip(names, outputs, strict=True)]
                matrix = np.ascontiguousarray(np.concatenate(arrays).T)
                self._made[key] = self.builder.const(matrix, DType.F32, f"{key[0]}.weight")
            return self.builder.one("matmul", [x, self._made[key], term])
        b = self.builder
        parts = self.parts(f"{key[0]}.weight", packed)
        n, k = packed.shape
        sizes = {"k": k, "n": n, "bits": packed.bits, "block": packed.block}
        return b.one("matmul_nbits", [x, *parts, "", term], **sizes, a_bits=8)

    def rows(self, name: str, shape: tuple[int, int], index: str) -> str:
        """The rows of a matrix at `index` [T], as f32 [T, K]; a packed one stays packed."""
        packed = self._packed(f"{name}.weight", shape)
        b = self.builder
        if packed is None:
            return b.one("gather", [self.take(f"{name}.weight", shape), index], axis=0)
        codes, scales, zeros = self.parts(f"{name}.weight", packed)
        n, k = packed.shape
        return b.one("rows_nbits", [index, codes, scales, zeros], k=k, n=n, bits=packed.bits, block=packed.block)

    def _packed(self, name: str, shape: tuple[int, int]) -> Packed | None:
        found = self.tensors.get(self.prefix + name)
        if not isinstance(found, Packed) or found.shape != shape:
            return None
        self.used.add(self.prefix + name)
        return found

    def parts(self, name: str, packed: Packed) -> tuple[str, str, str]:
        """Codes, scales and zeros ("" for none) as constants, made once for each name."""
        for part, data in (("codes", packed.codes), ("scales", packed.scales), ("zeros", packed.zeros)):
            if data is not None and (f"{name}.{part}", False) not in self._made:
                self._made[f"{name}.{part}", False] = self.builder.const(data, None, f"{name}.{part}")
        codes, scales, zeros = (self._made.get((f"{name}.{part}", False), "") for part in ("codes", "scales", "zeros"))
        return codes, scales, zeros

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
        missing = [p.split("'")[1] for p in self.problems if p.endswith("is missing")]
        for key in extra:
            near = difflib.get_close_matches(key, missing, 1, 0.8)
            hint = f"; is it the missing {near[0]!r}?" if near else ""
            self.problems.append(f"{key!r} of shape {list(self.tensors[key].shape)} is not used{hint}")
        if self.problems:
            raise misfit(what, self.problems)
