"""NumPy kernels of Fourier transforms, windows and mel filters."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.dtypes import DType
from edgerun.errors import ShapeError

Array = np.ndarray


@kernel("dft")
def dft(
    x: Array,
    length: Array | None = None,
    along: Array | None = None,
    *,
    axis: int | None = None,
    size: int | None = None,
    inverse: bool = False,
    onesided: bool = False,
) -> Array:
    """See edgerun.ops.fft.dft."""
    if size is None and length is not None:
        size = int(length.reshape(-1)[0])
    if axis is None and along is not None:
        axis = int(along.reshape(-1)[0])
        axis += x.ndim if axis < 0 else 0
    if axis is None or not 0 <= axis < x.ndim - 1:
        raise ShapeError(f"axis {axis} is not a signal axis of {x.shape}")
    values = _complex(x)
    if inverse and onesided:
        count = 2 * (values.shape[axis] - 1) if size is None else size
        return np.fft.irfft(values, n=count, axis=axis)[..., None].astype(x.dtype)
    if inverse:
        return _pairs(np.fft.ifft(values, n=size, axis=axis), x.dtype)
    if onesided:
        if np.iscomplexobj(values):
            raise ShapeError("a one-sided transform takes real input")
        return _pairs(np.fft.rfft(values, n=size, axis=axis), x.dtype)
    return _pairs(np.fft.fft(values, n=size, axis=axis), x.dtype)


@kernel("stft")
def stft(
    signal: Array,
    window: Array | None = None,
    step: Array | None = None,
    length: Array | None = None,
    *,
    hop: int | None = None,
    size: int | None = None,
    onesided: bool = True,
) -> Array:
    """See edgerun.ops.fft.stft."""
    if hop is None and step is not None:
        hop = int(step.reshape(-1)[0])
    if size is None and length is not None:
        size = int(length.reshape(-1)[0])
    if size is None:
        size = signal.shape[1] if window is None else window.shape[0]
    if hop is None or hop <= 0:
        raise ShapeError(f"frames cannot be {hop} samples apart")
    if size > signal.shape[1]:
        raise ShapeError(f"a signal of {signal.shape[1]} samples is shorter than a frame of {size}")
    values = _complex(signal)
    frames = np.lib.stride_tricks.sliding_window_view(values, size, axis=1)[:, ::hop]
    if window is not None:
        frames = frames * window.astype(values.real.dtype)
    if onesided and np.iscomplexobj(values):
        raise ShapeError("a one-sided transform takes real input")
    return _pairs(np.fft.rfft(frames, axis=2) if onesided else np.fft.fft(frames, axis=2), signal.dtype)


def _complex(x: Array) -> Array:
    """[..., 1] to real numbers, [..., 2] to complex ones, in single precision unless x is double."""
    working: Any = np.float64 if x.dtype == np.float64 else np.float32
    values = x.astype(working, copy=False)
    if x.shape[-1] == 1:
        return values[..., 0]
    return values[..., 0] + values[..., 1] * working(1) * (1j if working is np.float64 else np.complex64(1j))


def _pairs(values: Array, dtype: Any) -> Array:
    return np.stack([values.real, values.imag], axis=-1).astype(dtype)


@kernel("window")
def window(size: Array, *, kind: str, periodic: bool = True, dtype: DType = DType.F32) -> Array:
    """See edgerun.ops.fft.window."""
    count = int(size.reshape(-1)[0])
    if count < 0:
        raise ShapeError(f"a window cannot have {count} samples")
    period = count if periodic else count - 1
    # A single symmetric sample is the middle of the window.
    phase = 2 * np.pi * np.arange(count) / period if period else np.full(count, np.pi)
    if kind == "hann":
        values = 0.5 - 0.5 * np.cos(phase)
    elif kind == "hamming":
        values = 25 / 46 - 21 / 46 * np.cos(phase)
    else:
        values = 0.42 - 0.5 * np.cos(phase) + 0.08 * np.cos(2 * phase)
    return values.astype(dtype.numpy)


@kernel("mel_weights")
def mel_weights(bins: Array, length: Array, rate: Array, low: Array, high: Array, *, dtype: DType = DType.F32) -> Array:
    """See edgerun.ops.fft.mel_weights."""
    count, size, sampling = (int(v.reshape(-1)[0]) for v in (bins, length, rate))
    ends = [2595 * np.log10(1 + float(v.reshape(-1)[0]) / 700) for v in (low, high)]
    mels = ends[0] + np.arange(count + 2) * (ends[1] - ends[0]) / (count + 2)
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = ((size + 1) * hertz // sampling).astype(np.int64)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    bin_numbers = np.arange(size // 2 + 1)[:, None]
    rising = np.where(centre == left, bin_numbers == centre, (bin_numbers - left) / np.maximum(centre - left, 1))
    falling = (right - bin_numbers) / np.maximum(right - centre, 1)
    inside_rise = (bin_numbers >= left) & (bin_numbers <= centre)
    inside_fall = (bin_numbers >= centre) & (bin_numbers < right)
    weights = np.where(inside_rise, rising, 0.0)
    # The falling side is written last: it decides at the centre unless it is empty.
    return np.where(inside_fall, falling, weights).astype(dtype.numpy)
