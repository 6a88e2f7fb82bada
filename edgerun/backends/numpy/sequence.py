"""Sequences as Python lists; see edgerun/ops/sequence.py. Every function returns a new list."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.dtypes import DType
from edgerun.errors import ShapeError


def _position(position: np.ndarray | None, length: int, default: int) -> int:
    """A position as a non-negative number. Raises ShapeError when outside [-length, length]."""
    if position is None:
        return default
    index = int(np.asarray(position).reshape(()))
    if not -length <= index <= length:
        raise ShapeError(f"position {index} is outside a sequence of length {length}")
    return index + length if index < 0 else index


def _existing(position: np.ndarray | None, length: int) -> int:
    index = _position(position, length, length - 1)
    if not 0 <= index < length:
        raise ShapeError(f"position {index} is outside a sequence of length {length}")
    return index


@kernel("sequence_construct")
def sequence_construct(*xs: np.ndarray) -> list[np.ndarray]:
    return list(xs)


@kernel("sequence_empty")
def sequence_empty(*, dtype: DType) -> list[np.ndarray]:
    return []


@kernel("sequence_at")
def sequence_at(sequence: Sequence[np.ndarray], position: np.ndarray) -> np.ndarray:
    return sequence[_existing(position, len(sequence))]


@kernel("sequence_insert")
def sequence_insert(
    sequence: Sequence[np.ndarray], x: np.ndarray, position: np.ndarray | None = None
) -> list[np.ndarray]:
    index = _position(position, len(sequence), len(sequence))
    return [*sequence[:index], x, *sequence[index:]]


@kernel("sequence_erase")
def sequence_erase(sequence: Sequence[np.ndarray], position: np.ndarray | None = None) -> list[np.ndarray]:
    index = _existing(position, len(sequence))
    return [*sequence[:index], *sequence[index + 1 :]]


@kernel("sequence_length")
def sequence_length(sequence: Sequence[np.ndarray]) -> np.ndarray:
    return np.array(len(sequence), np.int64)


@kernel("split_to_sequence")
def split_to_sequence(
    x: np.ndarray, split: np.ndarray | None = None, *, axis: int, keepdims: bool = True
) -> list[np.ndarray]:
    total = x.shape[axis]
    if split is None:
        pieces = np.split(x, total, axis) if total else []
        return [p if keepdims else np.squeeze(p, axis) for p in pieces]
    if split.ndim == 0:
        size = int(split)
        if size <= 0:
            raise ShapeError(f"the split size {size} is not positive")
        cuts = list(range(size, total, size))
    else:
        if (split < 0).any() or int(split.sum()) != total:
            raise ShapeError(f"split sizes {split.tolist()} do not add to {total}")
        cuts = np.cumsum(split)[:-1].tolist()
    return np.split(x, cuts, axis)


@kernel("concat_from_sequence")
def concat_from_sequence(sequence: Sequence[np.ndarray], *, axis: int, new_axis: bool = False) -> np.ndarray:
    if not sequence:
        raise ShapeError("an empty sequence has no concatenation")
    return np.stack(sequence, axis) if new_axis else np.concatenate(sequence, axis)
