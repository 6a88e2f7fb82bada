"""Fourier transforms of known size as products with a matrix of sines and cosines, in f32."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from edgerun.backends.native import packing
from edgerun.backends.native.lowering import Lowering, lowers
from edgerun.backends.native.ops.movement import copy_nd, static_input, strides_of, view
from edgerun.dims import product
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node, Shape

MAX_SIZE = 4096
"""Longest transform: its matrix takes up to 16 size^2 bytes."""


def fourier_matrix(
    size: int, samples: int, parts: int, bins: int, *, inverse: bool = False, window: np.ndarray | None = None
) -> np.ndarray:
    """[samples * parts, bins * 2] f32: (real, imaginary) samples to (real, imaginary) bins; those past `size` are 0."""
    t, k = np.arange(samples)[:, None], np.arange(bins)[None]
    angle = 2 * np.pi * ((t * k) % size) / size * (-1 if inverse else 1)
    scale = np.where(t < size, 1.0 / size if inverse else 1.0, 0.0)
    if window is not None:
        scale = scale * window.astype(np.float64)[:, None]
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    matrix = np.empty((samples, parts, bins, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cos, -sin
    if parts == 2:
        matrix[:, 1, :, 0], matrix[:, 1, :, 1] = sin, cos
    return matrix.reshape(samples * parts, bins * 2).astype(np.float32)


def _number(node: Node, cx: Lowering, attribute: str, index: int, what: str) -> int | None:
    value = node.attrs.get(attribute)
    if value is None:
        data = static_input(node, cx, index, what)
        return None if data is None else int(data.reshape(-1)[0])
    if not isinstance(value, int):
        raise UnsupportedError(f"{what} is symbolic", hint="bind it with --shape")
    return value


def _product(cx: Lowering, x: str, matrix: np.ndarray, output: str) -> None:
    k, n = matrix.shape
    packed = cx.weight(
        packing.pack_matrix(matrix, cx.arch),
        "fourier",
        key=(f"fourier {sha256(matrix.tobytes()).hexdigest()}", cx.arch),
    )
    macs = product((*cx.shape(x), n))
    cx.emit(
        "matmul_f32", [x, packed, "", "", ""], [output], [k, n, 0, 0.0, 0.0, 0], macs=macs, why="a product with sines"
    )


def _check(cx: Lowering, name: str, size: int) -> None:
    if cx.dtype(name) is not DType.F32:
        raise UnsupportedError(f"a Fourier transform of {cx.dtype(name).short} is not done by the native backend")
    if not 0 < size <= MAX_SIZE:
        raise UnsupportedError(f"a Fourier transform of {size} samples; the native backend takes up to {MAX_SIZE}")


@lowers("dft")
def dft(node: Node, cx: Lowering) -> None:
    x, y = node.inputs[0], node.outputs[0]
    shape, out = cx.shape(x), cx.shape(y)
    axis = _number(node, cx, "axis", 2, "the axis of a transform")
    assert axis is not None
    axis = axis + len(shape) if axis < 0 else axis
    samples, parts, bins = shape[axis], shape[-1], out[axis]
    if not isinstance(samples, int) or not isinstance(parts, int) or not isinstance(bins, int):
        raise UnsupportedError("a Fourier transform of a symbolic length", hint="bind it with --shape")
    inverse = bool(node.attrs.get("inverse", False))
    if inverse and node.attrs.get("onesided", False):
        raise UnsupportedError("an inverse one-sided transform is not done by the native backend")
    size = _number(node, cx, "size", 1, "the length of a transform") or samples
    _check(cx, x, size)
    order = [k for k in range(len(shape) - 1) if k != axis]
    rows: Shape = tuple(shape[k] for k in order)
    flat = cx.temp(DType.F32, (*rows, samples * parts), "samples")
    strides = strides_of(shape)
    permutation = [*order, axis, len(shape) - 1]
    copy_nd(cx, x, flat, [shape[p] for p in permutation], [strides[p] for p in permutation], why="the signal axis last")
    spectrum = cx.temp(DType.F32, (*rows, bins * 2), "spectrum")
    _product(cx, flat, fourier_matrix(size, samples, parts, bins, inverse=inverse), spectrum)
    moved = (*rows, bins, 2)
    back = [permutation.index(k) for k in range(len(shape))]
    steps = strides_of(moved)
    copy_nd(cx, spectrum, y, [moved[p] for p in back], [steps[p] for p in back], why="the signal axis in its place")


@lowers("stft")
def stft(node: Node, cx: Lowering) -> None:
    """Frames overlap in a strided copy; the window is part of the matrix."""
    x, y = node.inputs[0], node.outputs[0]
    batch, length, parts = cx.shape(x)
    _, frames, bins, _ = cx.shape(y)
    window = static_input(node, cx, 1, "the window of a transform")
    hop = _number(node, cx, "hop", 2, "the distance of frames")
    size = _number(node, cx, "size", 3, "the length of frames") or (len(window) if window is not None else None)
    if not isinstance(size, int) or not isinstance(parts, int) or not isinstance(bins, int) or hop is None:
        raise UnsupportedError("frames of a symbolic length", hint="bind it with --shape")
    _check(cx, x, size)
    framed = cx.temp(DType.F32, (batch, frames, size * parts), "frames")
    strides = [length * parts, hop * parts, 1]
    copy_nd(cx, x, framed, [batch, frames, size * parts], strides, why="overlapping frames")
    spectrum = cx.temp(DType.F32, (batch, frames, bins * 2), "spectrum")
    _product(cx, framed, fourier_matrix(size, size, parts, bins, window=window), spectrum)
    view(cx, spectrum, y)
