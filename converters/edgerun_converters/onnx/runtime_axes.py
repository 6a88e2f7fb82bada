"""Squeeze, Unsqueeze and Split whose axes or sizes come at run time: the new shape is computed as they run."""

from __future__ import annotations

import numpy as np

from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder


def unsqueeze(b: Builder, x: str, axes: str) -> str:
    """Insert axes of length one at the positions `axes` of the result (i64, its length known)."""
    rank = b.rank(x)
    total = rank + _count(b, axes)
    places = _others(b, axes, total, rank)
    ones = b.const(np.ones(total, np.int64))
    shape = b.one("scatter_elements", [ones, places, b.one("shape", [x])], axis=0)
    return b.one("reshape", [x, shape], allowzero=True)


def squeeze(b: Builder, x: str, axes: str) -> str:
    """Drop the axes `axes` (i64, its length known); at run time a dropped axis longer than one is an error."""
    rank = b.rank(x)
    places = _others(b, axes, rank, rank - _count(b, axes))
    shape = b.one("gather", [b.one("shape", [x]), places], axis=0)
    return b.one("reshape", [x, shape], allowzero=True)


def split(b: Builder, x: str, sizes: str, axis: int, count: int) -> list[str]:
    """`count` parts of the given sizes along `axis`; at run time sizes that do not add up are an error."""
    parts = b.one("split_to_sequence", [x, sizes], axis=axis)
    return [b.one("sequence_at", [parts, b.const(np.array(i, np.int64))]) for i in range(count)]


def _count(b: Builder, axes: str) -> int:
    shape = b.shape(axes)
    if len(shape) > 1 or not all(isinstance(d, int) for d in shape):
        raise UnsupportedError("the number of axes is computed at run time")
    return int(shape[0]) if shape else 1


def _others(b: Builder, axes: str, total: int, count: int) -> str:
    """The `count` positions below `total` that are not among `axes`, ascending."""
    axes = b.reshape(axes, (total - count,))
    size = b.const(np.array(total, np.int64))
    negative = b.scalar("lt", axes, b.const(np.array(0, np.int64)))
    axes = b.scalar("where", negative, b.scalar("add", axes, size), axes)
    marks = b.const(np.ones(total - count, np.int64))
    mask = b.one("scatter_elements", [b.const(np.zeros(total, np.int64)), axes, marks], axis=0)
    free = b.scalar("eq", mask, b.const(np.array(0, np.int64)))
    return b.reshape(b.one("nonzero", [free]), (count,))
