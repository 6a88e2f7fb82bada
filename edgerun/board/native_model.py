"""A plan, run by the C runtime."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgerun.backends.native.binding import NativeModel, checksum_words
from edgerun.board.model import Expected, GoldenSet
from edgerun.errors import FileFormatError
from edgerun.plan.layout import GOLDEN, GOLDEN_LAYER, Section
from edgerun.plan.reader import PlanReader
from edgerun.samples import random_values
from edgerun.session import PortInfo


def open_payload(payload: memoryview, threads: int, isa: str | None) -> NativeBoardModel:
    """The plan, loaded with `threads` threads (0: one for each big core)."""
    return NativeBoardModel(payload, threads, isa)


class NativeBoardModel:
    """See edgerun.board.model.BoardModel."""

    backend = "native"

    def __init__(self, payload: memoryview, threads: int, isa: str | None) -> None:
        self.reader = PlanReader(payload)
        self.native = NativeModel(payload, threads)
        if isa is not None:
            self.native.isa = isa
        ports = [
            PortInfo(name, self.reader.tensors[number].dtype, self.reader.shape(number))
            for number, name in (*self.reader.inputs, *self.reader.outputs)
        ]
        self.inputs, self.outputs = ports[: len(self.reader.inputs)], ports[len(self.reader.inputs) :]
        self.manifest = self.reader.manifest
        self.nodes = len(self.reader.nodes)
        self.weight_bytes, self.arena_bytes = self.native.weight_bytes, self.native.arena_bytes
        self.payload_bytes = len(payload)

    @property
    def isa(self) -> str:
        return self.native.isa

    @property
    def threads(self) -> int:
        return self.native.threads

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self.native.run(inputs)

    def profile(self, inputs: Mapping[str, Any], runs: int) -> list[dict[str, Any]]:
        return self.native.profile(inputs, runs)

    def weights_are_intact(self) -> bool:
        return checksum_words(self.reader.weights) == self.reader.weights_checksum

    def _records(self) -> list[tuple[int, int, bytes, float, float]]:
        """(set, io, data, atol, rtol) of every stored vector."""
        count, start, _ = self.reader.sections.get(Section.GOLDEN, (0, 0, 0))
        found = []
        for i in range(count):
            number, io, offset, size, atol, rtol = GOLDEN.unpack_from(self.reader.data, start + i * GOLDEN.size)
            found.append((number, io, bytes(self.reader.data[offset : offset + size]), atol, rtol))
        return found

    def golden(self) -> list[GoldenSet]:
        sets: dict[int, GoldenSet] = {}
        for number, io, data, atol, rtol in self._records():
            one = sets.setdefault(number, GoldenSet({}, []))
            if io < len(self.inputs):
                one.inputs[self.inputs[io].name] = self._input(number, io, data)
            elif not io & GOLDEN_LAYER:
                one.expected.append(self._expected(io - len(self.inputs), data, atol, rtol))
        return [sets[number] for number in sorted(sets)]

    def _input(self, number: int, io: int, data: bytes) -> np.ndarray:
        about = self.manifest["golden"][number]
        dtype, shape = self.inputs[io].dtype, about["shapes"][io]
        if not data and about["seed"] is not None:
            return random_values(dtype, shape, about["seed"] + io)
        if len(data) != int(np.prod(shape, dtype=np.int64)) * dtype.itemsize:
            raise FileFormatError(f"the golden vector of {self.inputs[io].name!r} does not fit", hint="pack it again")
        return np.frombuffer(data, dtype.numpy).reshape(shape)

    def _expected(self, index: int, data: bytes, atol: float, rtol: float) -> Expected:
        """The whole output where all of it is stored, else samples."""
        dtype = self.outputs[index].dtype.numpy

        def decode(got: np.ndarray) -> tuple[np.ndarray, int]:
            whole = len(data) >= got.nbytes
            return (np.frombuffer(data, dtype), len(data) // dtype.itemsize) if whole else _samples(data)

        return Expected(self.outputs[index].name, decode, atol, rtol)

    def first_wrong_layer(self, golden: int) -> str | None:
        inputs = self.golden()[golden].inputs
        for number, io, data, atol, rtol in self._records():
            if number != golden or not io & GOLDEN_LAYER:
                continue
            node = io & ~GOLDEN_LAYER
            want, size = _samples(data)
            got = np.asarray(self.native.watch(inputs, node)).ravel()
            if got.size != size:
                continue
            picks = np.arange(want.size) * size // want.size
            far = ~np.isclose(got[picks].astype(np.float64), want, rtol=rtol, atol=atol, equal_nan=True)
            if far.any():
                at = int(np.argmax(far))
                info = self.native.nodes[node]
                return (
                    f"the first wrong layer is {node}, '{info.name}' (kernel {info.kernel}): element {picks[at]} is "
                    f"{got[picks[at]]:.7g}, expected {want[at]:.7g}"
                )
        return None


def _samples(data: bytes) -> tuple[np.ndarray, int]:
    """Stored as u64 element count, then float32 values."""
    (count,) = struct.unpack_from("<Q", data)
    return np.frombuffer(data, "<f4", offset=8).astype(np.float64), count
