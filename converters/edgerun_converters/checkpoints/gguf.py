"""Read GGUF files (version 2 and 3): metadata, tokenizer, and tensors whose quantised blocks stay compact.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; the blocks: ggml-common.h and ggml-quants.c of
the same project. Everything is checked against the size of the file; nothing the file claims is allocated before.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.errors import ImportFailure, InputOutputError, UnsupportedError
from edgerun_converters.checkpoints.packed import Packed

MAX_DEPTH = 4
"""Nesting of arrays in the metadata."""
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ARRAY = 8, 9


@dataclass(frozen=True)
class Layout:
    """A type of tensor: `block` elements take `bytes`; `decode` makes [N, K] of raw blocks [N, K / block, bytes]."""

    name: str
    block: int
    bytes: int
    decode: Callable[[np.ndarray, tuple[int, int]], Any]


@dataclass(frozen=True)
class File:
    """Metadata by key; tensors by name, arrays or Packed, in NumPy's order of axes (the reverse of the file's)."""

    metadata: dict[str, Any]
    tensors: dict[str, Any]


class _Reader:
    """A cursor over the mapped file that never leaves it."""

    def __init__(self, path: Path, data: np.ndarray) -> None:
        self.path, self.data, self.at = path, data, 0

    def take(self, count: int) -> bytes:
        if count > self.data.size - self.at:
            raise ImportFailure(f"{self.path} is truncated: {count} bytes are missing at {self.at}")
        self.at += count
        return self.data[self.at - count : self.at].tobytes()

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self, least: int) -> int:
        """A length whose items take at least `least` bytes each."""
        n = int(self.number("<Q"))
        if n * least > self.data.size - self.at:
            raise ImportFailure(f"{self.path} is damaged: a list of {n} items at {self.at}")
        return n

    def text(self) -> str:
        raw = self.take(self.count(1))
        return raw.decode("utf-8", "surrogateescape")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _TEXT:
            return self.text()
        if kind != _ARRAY or depth == MAX_DEPTH:
            raise ImportFailure(f"{self.path}: a metadata value has the unknown type {kind}")
        inner = int(self.number("<I"))
        form = _SCALARS.get(inner)
        n = self.count(struct.calcsize(form) if form else 8)
        if form:
            return list(struct.unpack(f"<{n}{form[1:]}", self.take(n * struct.calcsize(form))))
        return [self.value(inner, depth + 1) for _ in range(n)]


def read_file(path: Path) -> File:
    """Everything in the file. Raises ImportFailure when it is damaged, UnsupportedError naming the types of tensors
    that are not known."""
    try:
        with path.open("rb") as file:
            if path.stat().st_size < 24:
                raise ImportFailure(f"{path} is no GGUF file: it has {path.stat().st_size} bytes")
            data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except OSError as e:
        raise InputOutputError(f"cannot read {path}: {e.strerror}") from e
    reader = _Reader(path, data)
    if reader.take(4) != b"GGUF":
        raise ImportFailure(f"{path} is no GGUF file")
    version = reader.number("<I")
    if version not in (2, 3):
        raise ImportFailure(f"{path} has GGUF version {version}; 2 and 3 are read")
    n_tensors, n_values = int(reader.number("<Q")), reader.count(13)
    metadata: dict[str, Any] = {}
    for _ in range(n_values):
        key = reader.text()
        if key in metadata:
            raise ImportFailure(f"{path}: the metadata name {key[:80]!r} twice")
        metadata[key] = reader.value(int(reader.number("<I")))
    return File(metadata, _tensors(reader, n_tensors, metadata.get("general.alignment", 32)))


def _tensors(reader: _Reader, count: int, alignment: Any) -> dict[str, Any]:
    path = reader.path
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 16 or alignment & (alignment - 1):
        raise ImportFailure(f"{path}: the alignment {alignment!r} is no power of two")
    if count * 24 > reader.data.size - reader.at:
        raise ImportFailure(f"{path} is damaged: {count} tensors")
    rows = []
    for _ in range(count):
        name, rank = reader.text(), int(reader.number("<I"))
        if rank > 4:
            raise ImportFailure(f"{path}: tensor {name[:80]!r} has {rank} dimensions")
        shape = tuple(int(reader.number("<Q")) for _ in range(rank))[::-1]
        rows.append((name, shape, int(reader.number("<I")), int(reader.number("<Q"))))
    start = -(-reader.at // alignment) * alignment
    unknown = sorted({kind for _, _, kind, _ in rows if kind not in LAYOUTS})
    if unknown:
        known = ", ".join(layout.name for layout in LAYOUTS.values())
        raise UnsupportedError(f"{path} has tensors of the GGML types {unknown}", hint=f"known: {known}")
    tensors: dict[str, Any] = {}
    for name, shape, kind, offset in rows:
        if name in tensors:
            raise ImportFailure(f"{path}: tensor {name[:80]!r} is stored twice")
        tensors[name] = _tensor(reader, name, shape, LAYOUTS[kind], start + offset)
    return tensors


def _tensor(reader: _Reader, name: str, shape: tuple[int, ...], layout: Layout, start: int) -> Any:
    count, k = math.prod(shape), shape[-1] if shape else 1
    size = count // layout.block * layout.bytes
    if k % layout.block or count <= 0 or start + size > reader.data.size:
        raise ImportFailure(f"{reader.path}: tensor {name[:80]!r} of shape {list(shape)} does not fit into the file")
    raw = reader.data[start : start + size].reshape(count // k, k // layout.block, layout.bytes)
    made = layout.decode(raw, (count // k, k))
    if isinstance(made, Packed):
        return made if len(shape) == 2 else made.rows().reshape(shape)
    return made.reshape(shape)


# -- blocks: raw [N, B, bytes] to a matrix [N, K]


def _plain(dtype: Any) -> Callable[[np.ndarray, tuple[int, int]], np.ndarray]:
    def decode(raw: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        return np.ascontiguousarray(raw).reshape(-1).view(dtype).reshape(shape)

    return decode


def _brain(raw: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    words = np.ascontiguousarray(raw).reshape(-1).view("<u2").astype(np.uint32) << 16
    return words.view(np.float32).reshape(shape)


def _half(raw: np.ndarray, at: int) -> np.ndarray:
    """The f16 at byte `at` of each block."""
    return np.ascontiguousarray(raw[..., at : at + 2]).view("<f2")[..., 0]


def _nibbles(raw: np.ndarray) -> np.ndarray:
    """Bytes [..., n] that hold element i and element n + i, to those with elements 2i and 2i + 1."""
    halves = np.concatenate([raw & 15, raw >> 4], -1)
    return halves[..., 0::2] | halves[..., 1::2] << 4


def _flat(codes: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return np.ascontiguousarray(codes).reshape(shape[0], -1)


def _q8_0(raw: np.ndarray, shape: tuple[int, int]) -> Packed:
    """f16 scale, 32 i8 codes."""
    return Packed(shape, 8, 32, _flat(raw[..., 2:] ^ np.uint8(128), shape), _half(raw, 0), None)


def _q4_0(raw: np.ndarray, shape: tuple[int, int]) -> Packed:
    """f16 scale, 16 bytes of codes with a zero point of 8."""
    return Packed(shape, 4, 32, _flat(_nibbles(raw[..., 2:]), shape), _half(raw, 0), None)


def _q4_1(raw: np.ndarray, shape: tuple[int, int]) -> Packed:
    """f16 scale d and minimum m, 16 bytes of codes q: w = d q + m."""
    scales = _half(raw, 0).astype(np.float32)
    codes = np.where(scales[..., None] == 0, np.uint8(0), _nibbles(raw[..., 4:]))
    return Packed(shape, 4, 32, _flat(codes, shape), *_with_minimum(scales, _half(raw, 2).astype(np.float32)))


def _with_minimum(scales: np.ndarray, minimum: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(scale, zero) so that (q - zero) scale = scale q + minimum. Where the scale is 0, 1 takes its place and every q
    must be 0."""
    safe = np.where(scales == 0, np.float32(1), scales)
    return safe, -minimum / safe


def _q4_k(raw: np.ndarray, shape: tuple[int, int]) -> Packed:
    """256 elements: f16 d and dmin, 8 scales and minima of 6 bits in 12 bytes, 128 bytes of codes.

    w = d scale q - dmin minimum in groups of 32; bytes 32 j to 32 j + 31 hold groups 2j (low) and 2j + 1 (high).
    """
    d, dmin = _half(raw, 0).astype(np.float32), _half(raw, 2).astype(np.float32)
    packed = raw[..., 4:16]
    low, middle, high = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = np.concatenate([low & 63, high & 15 | low >> 6 << 4], -1).astype(np.float32) * d[..., None]
    minima = np.concatenate([middle & 63, high >> 4 | middle >> 6 << 4], -1).astype(np.float32) * dmin[..., None]
    bytes_of = raw[..., 16:].reshape(*raw.shape[:2], 4, 32)
    groups = np.stack([bytes_of & 15, bytes_of >> 4], -2).reshape(*raw.shape[:2], 256)
    groups = np.where(np.repeat(scales == 0, 32, -1), np.uint8(0), groups)
    scale, zero = _with_minimum(scales, -minima)
    codes = groups[..., 0::2] | groups[..., 1::2] << 4
    return Packed(shape, 4, 32, _flat(codes, shape), _flat(scale, shape), _flat(zero, shape))


def _q6_k(raw: np.ndarray, shape: tuple[int, int]) -> Packed:
    """256 elements: 128 bytes of low 4 bits, 64 of high 2 bits, 16 i8 scales of 16 elements each, f16 d.

    Held as 8 bits a code, moved so that the zero point is 128. Halves of 128 elements: element 32 j + i (j < 4) has its
    low bits in byte 32 (j % 2) + i, in the lower half of the byte for j < 2, and its high bits at 2 j of byte i.
    """
    low = raw[..., :128].reshape(*raw.shape[:2], 2, 2, 32)
    high = raw[..., 128:192].reshape(*raw.shape[:2], 2, 1, 32)
    four = np.concatenate([low & 15, low >> 4], -2)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    codes = (four | (high >> shifts & 3) << 4).reshape(*raw.shape[:2], 256)
    d = _half(raw, 208).astype(np.float32)
    scales = np.ascontiguousarray(raw[..., 192:208]).view(np.int8).astype(np.float32) * d[..., None]
    scale = _flat(scales, shape)
    return Packed(shape, 8, 16, _flat(codes + np.uint8(96), shape), scale, None)


LAYOUTS = {
    0: Layout("F32", 1, 4, _plain("<f4")),
    1: Layout("F16", 1, 2, _plain("<f2")),
    2: Layout("Q4_0", 32, 18, _q4_0),
    3: Layout("Q4_1", 32, 20, _q4_1),
    8: Layout("Q8_0", 32, 34, _q8_0),
    12: Layout("Q4_K", 256, 144, _q4_k),
    14: Layout("Q6_K", 256, 210, _q6_k),
    30: Layout("BF16", 1, 2, _brain),
}
