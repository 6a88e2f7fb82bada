"""NumPy kernels of strings."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.errors import ShapeError
from edgerun.regex import compile_re2

Array = np.ndarray


@kernel("string_concat")
def string_concat(x: Array, y: Array) -> Array:
    """See edgerun.ops.string.string_concat."""
    return np.asarray(np.add(x.astype(object), y.astype(object)), dtype=object)


@kernel("string_split")
def string_split(x: Array, *, delimiter: str = "", maxsplit: int | None = None) -> tuple[Array, Array]:
    """See edgerun.ops.string.string_split."""
    limit = -1 if maxsplit is None else maxsplit
    rows = [s.split(delimiter or None, limit) for s in x.ravel().tolist()]
    most = max(map(len, rows), default=0)
    parts = np.full((len(rows), most), "", dtype=object)
    for row, pieces in zip(parts, rows, strict=True):
        row[: len(pieces)] = pieces
    counts = np.array([len(r) for r in rows], np.int64).reshape(x.shape)
    return parts.reshape(*x.shape, most), counts


@kernel("string_normalize")
def string_normalize(
    x: Array, *, case: str = "none", case_sensitive: bool = False, stopwords: tuple[str, ...] = ()
) -> Array:
    """See edgerun.ops.string.string_normalize."""
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ShapeError(f"a string normalizer takes [C] or [1, C], not {x.shape}")
    words = x.ravel().tolist()
    if stopwords:
        dropped = set(stopwords) if case_sensitive else {s.lower() for s in stopwords}
        words = [w for w in words if (w if case_sensitive else w.lower()) not in dropped]
    if case != "none":
        words = [w.lower() if case == "lower" else w.upper() for w in words]
    result = np.array(words or [""], dtype=object)
    return result if x.ndim == 1 else result[None]


@kernel("regex_full_match")
def regex_full_match(x: Array, *, pattern: str) -> Array:
    """See edgerun.ops.string.regex_full_match."""
    compiled = compile_re2(pattern)
    matches = [compiled.fullmatch(s) is not None for s in x.ravel().tolist()]
    return np.array(matches, bool).reshape(x.shape)


@kernel("tfidf")
def tfidf(
    x: Array,
    *,
    pool: tuple[Any, ...],
    counts: tuple[int, ...],
    indexes: tuple[int, ...],
    weights: tuple[float, ...] = (),
    mode: str = "tf",
    shortest: int,
    longest: int,
    skip: int = 0,
) -> Array:
    """See edgerun.ops.string.tfidf."""
    known = _ngrams(pool, counts)
    size = max(indexes, default=-1) + 1
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    result = np.zeros((rows.shape[0], size), np.float32)
    factors = np.ones(len(indexes), np.float32) if not weights else np.array(weights, np.float32)
    for output, items in zip(result, rows.tolist(), strict=True):
        found = _count(items, shortest, longest, skip)
        for gram, number in known.items():
            count = found.get(gram, 0)
            if mode == "tf":
                output[indexes[number]] += count
            elif count:
                output[indexes[number]] += factors[number] * (1 if mode == "idf" else count)
    return result[0] if x.ndim == 1 else result


def _ngrams(pool: tuple[Any, ...], counts: tuple[int, ...]) -> dict[tuple[Any, ...], int]:
    """N-gram -> its number in the pool."""
    known: dict[tuple[Any, ...], int] = {}
    number = 0
    for length, (start, end) in enumerate(zip(counts, [*counts[1:], len(pool)], strict=True), start=1):
        for at in range(start, end, length):
            known[tuple(pool[at : at + length])] = number
            number += 1
    return known


def _count(items: list[Any], shortest: int, longest: int, skip: int) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for length in range(shortest, longest + 1):
        # A single item has no neighbours to skip between.
        for stride in range(1, (skip if length > 1 else 0) + 2):
            reach = (length - 1) * stride
            found.update(tuple(items[k : k + reach + 1 : stride]) for k in range(len(items) - reach))
    return found
