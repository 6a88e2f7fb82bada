"""NumPy kernels of the movement ops. All but pad also work on object arrays of dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.errors import ShapeError
from edgerun.ops.movement import check_pad, slice_range
from edgerun.ops.registry import normalize_axis

Array = np.ndarray


@kernel("transpose")
def transpose(x: Array, *, perm: tuple[int, ...]) -> Array:
    """See edgerun.ops.movement.transpose."""
    return x.transpose(perm).copy()


@kernel("reshape")
def reshape(x: Array, shape: Array | None = None, *, to: Any = None, allowzero: bool = False) -> Array:
    """See edgerun.ops.movement.reshape."""
    if to is None:
        assert shape is not None
        to = [x.shape[i] if d == 0 and not allowzero else int(d) for i, d in enumerate(shape.tolist())]
        if -1 in to and 0 in to and x.size == 0:
            to = [0 if d == -1 else d for d in to]
        if min(to, default=0) < -1:
            raise ShapeError(f"the shape {to} has a negative dimension")
    return x.reshape(to)


@kernel("expand")
def expand(x: Array, shape: Array | None = None, *, to: Any = None) -> Array:
    """See edgerun.ops.movement.expand."""
    if to is None:
        assert shape is not None
        to = np.broadcast_shapes(x.shape, tuple(int(d) for d in shape.tolist()))
    return np.broadcast_to(x, to).copy()


@kernel("concat")
def concat(*xs: Array, axis: int) -> Array:
    """See edgerun.ops.movement.concat."""
    return np.concatenate(xs, axis=axis)


@kernel("slice")
def slice_(
    x: Array,
    starts: Array | None = None,
    ends: Array | None = None,
    axes: Array | None = None,
    steps: Array | None = None,
    *,
    ranges: Any = None,
) -> Array:
    """See edgerun.ops.movement.slice_."""
    index: list[Any] = [slice(None)] * x.ndim
    if ranges is not None:
        for axis, start, size, step in ranges:
            end = start + size * step
            index[axis] = slice(start, end if end >= 0 else None, step) if size > 0 else slice(0, 0)
    else:
        assert starts is not None and ends is not None
        chosen = range(len(starts)) if axes is None else axes.tolist()
        strides = [1] * len(starts) if steps is None else steps.tolist()
        for start, end, axis, step in zip(starts.tolist(), ends.tolist(), chosen, strides, strict=True):
            place = normalize_axis(axis, x.ndim)
            if index[place] != slice(None):
                raise ShapeError(f"slice names axis {axis} twice")
            first, size = slice_range(x.shape[place], start, end, step)
            last = first + size * step
            index[place] = slice(first, last if last >= 0 else None, step) if size else slice(0, 0)
    return x[tuple(index)].copy()


@kernel("pad")
def pad(
    x: Array,
    pads: Array | None = None,
    value: Array | None = None,
    axes: Array | None = None,
    *,
    widths: Any = None,
    mode: str = "constant",
) -> Array:
    """See edgerun.ops.movement.pad."""
    if widths is None:
        assert pads is not None
        chosen = list(range(x.ndim)) if axes is None else [normalize_axis(a, x.ndim) for a in axes.tolist()]
        amounts = pads.tolist()
        if len(amounts) != 2 * len(chosen):
            raise ShapeError(f"{len(amounts)} pads for {len(chosen)} axes")
        table = {a: (amounts[i], amounts[i + len(chosen)]) for i, a in enumerate(chosen)}
        widths = [table.get(a, (0, 0)) for a in range(x.ndim)]
    for size, (before, after) in zip(x.shape, widths, strict=True):
        check_pad(size, before, after, mode)
    keep = tuple(slice(max(-b, 0), x.shape[i] - max(-a, 0)) for i, (b, a) in enumerate(widths))
    cropped = x[keep]
    grow = [(max(b, 0), max(a, 0)) for b, a in widths]
    if not any(b or a for b, a in grow):
        return cropped.copy()
    if mode == "constant":
        shape = [n + b + a for n, (b, a) in zip(cropped.shape, grow, strict=True)]
        fill = np.zeros((), x.dtype) if value is None else value.reshape(())
        result = (
            np.full(shape, fill[()], x.dtype)
            if x.dtype != object
            else np.full(shape, "" if value is None else fill[()], object)
        )
        result[tuple(slice(b, b + n) for n, (b, _) in zip(cropped.shape, grow, strict=True))] = cropped
        return result
    return np.pad(cropped, grow, mode="edge" if mode == "edge" else "reflect" if mode == "reflect" else "wrap")


@kernel("tile")
def tile(x: Array, repeats: Array | None = None, *, times: Any = None) -> Array:
    """See edgerun.ops.movement.tile."""
    counts = times if repeats is None else tuple(repeats.tolist())
    if len(counts) != x.ndim or any(c < 0 for c in counts):
        raise ShapeError(f"repeats {list(counts)} for shape {x.shape}")
    return np.tile(x, counts)


@kernel("shape")
def shape(x: Array, *, start: int = 0, end: int | None = None) -> Array:
    """See edgerun.ops.movement.shape."""
    return np.array(x.shape[slice(start, end)], np.int64)


@kernel("range")
def range_(start: Array, limit: Array, delta: Array) -> Array:
    """See edgerun.ops.movement.range_. Elements are start + i * delta, not a running sum."""
    first, last, step = start.reshape(())[()], limit.reshape(())[()], delta.reshape(())[()]
    if step == 0:
        raise ShapeError("the step of a range is zero")
    count = max(int(np.ceil((float(last) - float(first)) / float(step))), 0)
    if start.dtype.kind in "iu":
        return (int(first) + np.arange(count, dtype=np.int64) * int(step)).astype(start.dtype)
    return (first + np.arange(count, dtype=start.dtype) * step).astype(start.dtype)
