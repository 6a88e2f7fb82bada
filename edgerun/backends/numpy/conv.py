"""NumPy kernels of convolution, transposed convolution and deformable convolution, channels last."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from edgerun.backends.numpy.activation import accumulator, finish
from edgerun.backends.numpy.registry import kernel
from edgerun.backends.numpy.sampling import read_linear
from edgerun.backends.numpy.windows import pad_spatial, tap, windows
from edgerun.errors import ShapeError
from edgerun.ops.windows import window_counts

Array = np.ndarray
BLOCK_BYTES = 4 << 20
"""Target size of the matrix of gathered windows: enough for an efficient product, small beside the activations."""


@kernel("conv")
def conv(
    x: Array,
    w: Array,
    bias: Array | None = None,
    residual: Array | None = None,
    slope: Array | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    act: str = "none",
    p0: float = 0.0,
    p1: float = 0.0,
    res: str = "none",
) -> Array:
    """See edgerun.ops.conv.conv. Raises ShapeError when channels that were symbolic do not fit."""
    _check_channels(x, w.shape[-1] * group)
    n = x.ndim - 2
    working = accumulator(x.dtype)
    taps = w.shape[1:-1]
    counts: Any = window_counts(x.shape[1:-1], taps, strides, dilations, pads)
    values = pad_spatial(x.astype(working, copy=False), pads[:n], pads[n:])
    weights = w.astype(working, copy=False)
    y = np.empty((x.shape[0], *counts, w.shape[0]), working)
    if y.size == 0:
        return y.astype(x.dtype)
    if w.shape[-1] == 1 and group > 1:
        _depthwise(values, weights, y, strides, dilations)
    else:
        inputs, outputs = w.shape[-1], w.shape[0] // group
        for g in range(group):
            part = values[..., g * inputs : (g + 1) * inputs]
            target = y[..., g * outputs : (g + 1) * outputs]
            _dense(part, weights[g * outputs : (g + 1) * outputs], target, strides, dilations)
    return finish(y, bias, residual, slope, act, p0, p1, res).astype(x.dtype, copy=False)


def _dense(x: Array, w: Array, y: Array, strides: tuple[int, ...], dilations: tuple[int, ...]) -> None:
    """y [N, *S', O] = the convolution of padded x [N, *S, C] with w [O, *K, C]: products of gathered windows."""
    taps, counts = w.shape[1:-1], y.shape[1:-1]
    matrix = w.reshape(w.shape[0], -1).T
    view = windows(x, taps, strides, dilations, counts)
    width = matrix.shape[0]
    for index in _blocks(y.shape[0], counts, width * x.itemsize):
        target = y[index]
        rows = view[index].reshape(math.prod(target.shape[:-1]), width)
        if target.flags.c_contiguous:
            np.matmul(rows, matrix, out=target.reshape(-1, target.shape[-1]))
        else:
            target[...] = (rows @ matrix).reshape(target.shape)


def _blocks(batch: int, counts: tuple[int, ...], cell_bytes: int) -> Iterator[tuple[slice, ...]]:
    """Slices over (batch, first spatial axis) whose gathered windows fill about BLOCK_BYTES."""
    row_bytes = math.prod(counts[1:]) * cell_bytes
    image_bytes = row_bytes * counts[0]
    if image_bytes <= BLOCK_BYTES:
        images = max(BLOCK_BYTES // max(image_bytes, 1), 1)
        for start in range(0, batch, images):
            yield (slice(start, start + images),)
        return
    rows = max(BLOCK_BYTES // max(row_bytes, 1), 1)
    for image in range(batch):
        for start in range(0, counts[0], rows):
            yield slice(image, image + 1), slice(start, start + rows)


def _depthwise(x: Array, w: Array, y: Array, strides: tuple[int, ...], dilations: tuple[int, ...]) -> None:
    """One input channel a group: y[..., c*m + j] sums x[..., c] * w[c*m + j] over the taps, block by block."""
    taps, counts, channels = w.shape[1:-1], y.shape[1:-1], x.shape[-1]
    multiplier = w.shape[0] // channels
    filters = np.moveaxis(w[..., 0], 0, -1)
    # Along the last axis neighbouring windows read neighbouring cells: filters repeated over the axis make long loops.
    rows_merge = len(counts) > 1 and strides[-1] == 1 and multiplier == 1
    if rows_merge:
        result = y.reshape(*y.shape[:-2], counts[-1] * channels)
        filters = np.tile(filters, counts[-1])
    else:
        result = y.reshape(*y.shape[:-1], channels, multiplier)
        filters = filters.reshape(*taps, channels, multiplier)
    rows = max((BLOCK_BYTES // 16) // max(math.prod(y.shape[2:]) * y.itemsize, 1), 1)
    for image, start in itertools.product(range(y.shape[0]), range(0, counts[0], rows)):
        target = result[image, start : start + rows]
        source = x[image, start * strides[0] :]
        block = (target.shape[0], *counts[1:])
        product = np.empty_like(target)
        for step, position in enumerate(itertools.product(*map(range, taps))):
            cells = source[tap(position, strides, dilations, block)]
            cells = cells.reshape(target.shape) if rows_merge else cells[..., None]
            if step == 0:
                np.multiply(cells, filters[position], out=target)
            else:
                np.multiply(cells, filters[position], out=product)
                target += product


@kernel("conv_transpose")
def conv_transpose(
    x: Array,
    w: Array,
    bias: Array | None = None,
    slope: Array | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    output_padding: tuple[int, ...],
    group: int = 1,
    act: str = "none",
    p0: float = 0.0,
    p1: float = 0.0,
) -> Array:
    """See edgerun.ops.conv.conv_transpose. Raises ShapeError when channels that were symbolic do not fit."""
    _check_channels(x, w.shape[0])
    n = x.ndim - 2
    working = accumulator(x.dtype)
    taps, inputs, outputs = w.shape[1:-1], w.shape[0] // group, w.shape[-1]
    reach = [(x.shape[1 + i] - 1) * strides[i] + (taps[i] - 1) * dilations[i] + 1 for i in range(n)]
    sizes = [max(reach[i] - pads[i] - pads[n + i] + output_padding[i], 0) for i in range(n)]
    # Every tap adds its product into the uncropped output; what lies beyond its reach stays zero.
    full = [max(reach[i], pads[i] + sizes[i]) for i in range(n)]
    total = np.zeros((x.shape[0], *full, outputs * group), working)
    values, weights = x.astype(working, copy=False), w.astype(working, copy=False)
    for g in range(group):
        rows = values[..., g * inputs : (g + 1) * inputs].reshape(-1, inputs)
        for position in itertools.product(*map(range, taps)):
            chosen: Any = (slice(g * inputs, (g + 1) * inputs), *position)
            matrix = weights[chosen]
            cells = tap(position, strides, dilations, x.shape[1:-1])
            target = total[(slice(None), *cells, slice(g * outputs, (g + 1) * outputs))]
            target += (rows @ matrix).reshape(target.shape)
    y = total[(slice(None), *(slice(pads[i], pads[i] + sizes[i]) for i in range(n)))]
    return finish(y, bias, None, slope, act, p0, p1, "none").astype(x.dtype, copy=False)


@kernel("deform_conv")
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int = 1,
    offset_group: int = 1,
) -> Array:
    """See edgerun.ops.conv.deform_conv. Raises ShapeError when channels that were symbolic do not fit."""
    _check_channels(x, w.shape[-1] * group)
    n, working = x.ndim - 2, accumulator(x.dtype)
    taps = w.shape[1:-1]
    counts: Any = window_counts(x.shape[1:-1], taps, strides, dilations, pads)
    size, area = math.prod(taps), math.prod(counts)
    places = _tap_places(counts, taps, strides, dilations, pads)
    moved = offset.astype(working, copy=False).reshape(x.shape[0], area, offset_group, size, n) + places[:, None]
    sampled = np.empty((x.shape[0], area, size, x.shape[-1]), working)
    part = x.shape[-1] // offset_group
    for image, g in itertools.product(range(x.shape[0]), range(offset_group)):
        channels = slice(g * part, (g + 1) * part)
        cells = read_linear(x[image, ..., channels].astype(working, copy=False), moved[image, :, g])
        if mask is not None:
            weight = mask[image].reshape(area, offset_group, size)[:, g, :, None]
            cells = cells * weight.astype(working, copy=False)
        sampled[image, ..., channels] = cells
    inputs, outputs = w.shape[-1], w.shape[0] // group
    y = np.empty((x.shape[0], *counts, w.shape[0]), working)
    for g in range(group):
        rows = sampled[..., g * inputs : (g + 1) * inputs].reshape(-1, size * inputs)
        matrix = w[g * outputs : (g + 1) * outputs].reshape(outputs, -1).T.astype(working, copy=False)
        y[..., g * outputs : (g + 1) * outputs] = (rows @ matrix).reshape(*y.shape[:-1], outputs)
    return finish(y, bias, None, None, "none", 0, 0, "none").astype(x.dtype, copy=False)


def _check_channels(x: Array, expected: int) -> None:
    if x.shape[-1] != expected:
        raise ShapeError(f"the input has {x.shape[-1]} channels, the weights are for {expected}")


def _tap_places(
    counts: tuple[int, ...],
    taps: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
) -> Array:
    """Coordinates [windows, taps, axes] of each tap of each window, before any offset."""
    n = len(counts)
    starts = np.indices(counts).reshape(n, -1, 1) * np.reshape(strides, (n, 1, 1)) - np.reshape(pads[:n], (n, 1, 1))
    steps = np.indices(taps).reshape(n, 1, -1) * np.reshape(dilations, (n, 1, 1))
    return np.moveaxis(starts + steps, 0, -1)
