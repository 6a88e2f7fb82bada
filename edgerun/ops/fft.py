"""Fourier transforms, window functions and mel filter banks. Complex numbers are pairs in the last axis."""

from __future__ import annotations

from edgerun.dims import DimLike
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, fresh_symbol, op, require, static_value

WINDOWS = frozenset({"hann", "hamming", "blackman"})


@op("fft")
def dft(
    x: TensorType,
    length: TensorType | None = None,
    along: TensorType | None = None,
    *,
    axis: int | None = None,
    size: DimLike | None = None,
    inverse: bool = False,
    onesided: bool = False,
) -> TensorType:
    """Discrete Fourier transform along `axis` (or the value of `along`) of x [..., 1] (real) or [..., 2] (complex).

    The signal is cut or zero-padded to `size` (or to the value of `length`; default: what the axis holds). The inverse
    is scaled by 1 / size. `onesided` turns real input into its size // 2 + 1 first bins, and inversely such bins into
    `size` real numbers [..., 1] (default 2 * (bins - 1)). Computed in f32, or in f64 for f64.
    """
    require(x.dtype.is_float, f"a Fourier transform takes floats, not {x.dtype.short}")
    if x.shape is None:
        return x.like()
    rank, parts = len(x.shape), x.shape[-1]
    require((axis is None) != (along is None), "the axis is given once")
    require(rank >= 2 and (axis is None or 0 <= axis < rank - 1), f"axis {axis} is not a signal axis of {x}")
    require(
        not isinstance(parts, int) or parts in (1, 2), f"the last axis of {x} holds neither real nor complex values"
    )
    require(not (onesided and not inverse and parts == 2), "a one-sided transform takes real input")
    shape = list(x.shape)
    shape[-1] = 1 if onesided and inverse else 2
    if axis is None:
        return x.like((*(fresh_symbol("dft") for _ in shape[:-1]), shape[-1]))
    if size is not None:
        count: DimLike = size
    elif length is not None:
        known = static_value(length)
        count = fresh_symbol("dft") if known is None else int(known.reshape(-1)[0])
    else:
        count = (shape[axis] - 1) * 2 if inverse and onesided else shape[axis]
    shape[axis] = count // 2 + 1 if onesided and not inverse else count
    return x.like(tuple(shape))


@op("fft")
def stft(
    signal: TensorType,
    window: TensorType | None = None,
    step: TensorType | None = None,
    length: TensorType | None = None,
    *,
    hop: int | None = None,
    size: DimLike | None = None,
    onesided: bool = True,
) -> TensorType:
    """Short-time Fourier transform of [B, L, 1 or 2]: [B, (L - size) // hop + 1, bins, 2].

    Frames of `size` samples every `hop` are multiplied by `window` [size]. Both numbers may come as tensors, `length`
    and `step`; `size` defaults to the window's length, then to L. bins = size // 2 + 1 if `onesided`, else size.
    """
    require(signal.dtype.is_float, f"a Fourier transform takes floats, not {signal.dtype.short}")
    require((hop is None) != (step is None), "the step between frames is given once")
    require(hop is None or hop > 0, f"frames cannot be {hop} samples apart")
    if signal.shape is None:
        return signal.like()
    require(len(signal.shape) == 3, f"the signal has rank 3, not {signal}")
    batch, samples, parts = signal.shape
    require(not (onesided and parts == 2), "a one-sided transform takes real input")
    count = _frame(samples, window, length, size)
    known = static_value(step)
    every = hop if known is None else int(known.reshape(-1)[0])
    frames = fresh_symbol("frames") if every is None else (samples - count) // every + 1
    return signal.like((batch, frames, count // 2 + 1 if onesided else count, 2))


def _frame(samples: DimLike, window: TensorType | None, length: TensorType | None, size: DimLike | None) -> DimLike:
    if size is not None:
        return size
    if window is not None and window.shape is not None:
        return window.shape[0]
    if length is not None:
        known = static_value(length)
        return fresh_symbol("frame") if known is None else int(known.reshape(-1)[0])
    return samples


@op("fft")
def window(size: TensorType, *, kind: str, periodic: bool = True, dtype: DType = DType.F32) -> TensorType:
    """A hann, hamming or blackman window of `size` (rank 0) samples; `periodic` leaves out the last of size + 1."""
    require(kind in WINDOWS, f"there is no window {kind!r}")
    known = static_value(size)
    return TensorType(dtype, (fresh_symbol("window") if known is None else int(known.reshape(-1)[0]),))


@op("fft")
def mel_weights(
    bins: TensorType,
    length: TensorType,
    rate: TensorType,
    low: TensorType,
    high: TensorType,
    *,
    dtype: DType = DType.F32,
) -> TensorType:
    """Triangular mel filters [length // 2 + 1, bins] for a transform of `length` at sampling `rate`, low..high hertz.

    Band edges are rounded down to whole transform bins and are equally spaced on the scale 2595 log10(1 + f / 700), of
    which (high - low) / (bins + 2) is the distance, as the ONNX operator MelWeightMatrix defines it.
    """
    count, size = static_value(bins), static_value(length)
    return TensorType(
        dtype,
        (
            fresh_symbol("spectrum") if size is None else int(size.reshape(-1)[0]) // 2 + 1,
            fresh_symbol("mel") if count is None else int(count.reshape(-1)[0]),
        ),
    )
