"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from edgerun.errors import InputOutputError

PIECE = 16 << 20
"""Bytes that are read or written at once; a multiple of every page size."""


def content_hash(array: np.ndarray) -> bytes:
    """SHA-256 of the elements in row-major order. Arrays that are mapped from a file do not stay in memory."""
    digest = hashlib.sha256()
    for piece in pieces(array):
        digest.update(piece)
    return digest.digest()


def pieces(array: np.ndarray) -> Iterator[memoryview]:
    """The bytes of an array in row-major order, a piece at a time. What is mapped from a file (a part of a file of any
    size) leaves the memory again when the next piece is asked for."""
    flat = np.ascontiguousarray(array).reshape(-1)
    raw = flat.view(np.uint8) if flat.size else np.zeros(0, np.uint8)
    mapping = _mapping(array) if raw.size > PIECE else None
    for start in range(0, raw.size, PIECE):
        yield raw[start : start + PIECE].data
        if mapping is not None:
            origin = np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
            position = raw.__array_interface__["data"][0] + start - origin
            first = -(-position // mmap.PAGESIZE) * mmap.PAGESIZE
            length = min(PIECE, len(mapping) - first)
            if first >= 0 and length > 0:
                mapping.madvise(mmap.MADV_DONTNEED, first, length)


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """The file mapping that the array's elements lie in, if any."""
    owner: object = array
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    if owner is None or not hasattr(mmap, "MADV_DONTNEED") or not memoryview(owner).readonly:
        return None  # pages of a mapping that can be written to may have no copy in a file
    return owner


@contextlib.contextmanager
def atomic_write(path: Path, *, force: bool = False, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """A file object whose content becomes `path` when the block ends without an error, Ctrl-C included.

    Raises InputOutputError when `path` exists and `force` is false, or cannot be written.
    """
    if path.exists() and not force:
        raise InputOutputError(f"{path} exists already", hint="use --force to replace it, or -o for another name")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as e:
        raise InputOutputError(f"cannot write {path}: {e.strerror}") from e
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as e:
        temporary.unlink(missing_ok=True)
        raise InputOutputError(f"cannot write {path}: {e.strerror}") from e
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
