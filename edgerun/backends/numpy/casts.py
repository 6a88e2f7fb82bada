"""Conversions between all element types, by the one rule that docs/semantics.md states."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.dtypes import DType, from_numpy
from edgerun.errors import ShapeError

Array = np.ndarray
SMALL_FLOATS = {
    DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ, DType.F4E2M1, DType.F6E2M3, DType.F6E3M2,
}  # fmt: skip


def convert(x: Array, dtype: DType, function: str = "cast") -> Array:
    """`x` as `dtype`. `function`: cast, cast_wrap, cast_up or cast_down of edgerun.ops.elementwise.SCALARS.

    Float to integer truncates and saturates (below 8 bits: 0 for what does not fit), NaN gives 0; integer to narrower
    integer wraps; to bool: not zero.
    Raises ShapeError for text that is no number.
    """
    source = from_numpy(x.dtype)
    if source is dtype:
        return x
    if dtype is DType.STRING:
        return _to_text(x)
    if source is DType.STRING:
        return _from_text(x, dtype)
    return np.asarray(_convert_number(x, source, dtype, function))  # NumPy turns rank 0 into scalars on the way


def _convert_number(x: Array, source: DType, dtype: DType, function: str) -> Any:
    if dtype is DType.BOOL:
        return x.astype(np.float32) != 0 if source.is_float and source is not DType.F64 else x != 0
    if dtype.is_integer:
        if not source.is_float:
            return _wrap(x, dtype)
        if dtype.bits >= 8:
            return _float_to_integer(x, dtype)
        # As the official tests have it: what does not fit a narrow type gives 0.
        whole, (low, high) = _float_to_integer(x, DType.I64), integer_range(dtype)
        return _wrap(np.where((whole < low) | (whole > high), 0, whole), dtype)
    if dtype is DType.F8E8M0:
        return _to_power_of_two(x, function)
    if dtype in SMALL_FLOATS:
        from edgerun.backends.numpy.quant import to_small_float

        return to_small_float(x.astype(np.float32), dtype, function != "cast_wrap")
    if dtype is DType.BF16 or source not in (DType.F32, DType.F64, DType.F16):
        # Through float32 (float64 keeps its digits for f64): one rounding for every pair of types.
        wide = x if source in (DType.F32, DType.F64) else x.astype(np.float64 if dtype is DType.F64 else np.float32)
        return wide.astype(dtype.numpy)
    return x.astype(dtype.numpy)


def integer_range(dtype: DType) -> tuple[int, int]:
    """Smallest and largest value of an integer type."""
    if dtype.is_unsigned:
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def _float_to_integer(x: Array, dtype: DType) -> Array:
    wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    low, high = integer_range(dtype)
    inside = np.clip(wide, float(low), float(high))
    if dtype.bits < 64:
        return inside.astype(np.int64).astype(dtype.numpy)
    above, below = wide >= float(high), wide <= float(low)
    result = np.where(above | below, 0.0, inside).astype(dtype.numpy)
    result = np.where(above, dtype.numpy.type(high), result)
    return np.where(below, dtype.numpy.type(low), result)


def _wrap(x: Array, dtype: DType) -> Array:
    if dtype.bits >= 8:
        return x.astype(dtype.numpy) if x.dtype.kind in "iub" else x.astype(np.int64).astype(dtype.numpy)
    low = x.astype(np.int64) & ((1 << dtype.bits) - 1)
    if dtype.is_signed:
        low = np.where(low >= 1 << (dtype.bits - 1), low - (1 << dtype.bits), low)
    return low.astype(np.int8).astype(dtype.numpy)


def _to_power_of_two(x: Array, function: str) -> Array:
    """float8_e8m0: the exponent alone. Nearest by default (halves up), or rounded up or down; saturated."""
    value = np.abs(x.astype(np.float64))
    mantissa, exponent = np.frexp(value)  # value = mantissa * 2^exponent, mantissa in [1/2, 1)
    exponent = exponent - 1
    above = mantissa > 0.5
    if function == "cast_up":
        exponent = exponent + above
    elif function != "cast_down":
        exponent = exponent + (mantissa >= 0.75)
    codes = np.clip(exponent + 127, 0, 254)
    codes = np.where(value == 0, 0, codes)
    codes = np.where(np.isinf(value), 254, codes)
    codes = np.where(np.isnan(value), 255, codes).astype(np.uint8)
    return codes.view(DType.F8E8M0.numpy)


def _to_text(x: Array) -> Array:
    if x.dtype == bool:
        values: list[Any] = ["1" if v else "0" for v in x.ravel().tolist()]
    elif from_numpy(x.dtype).is_float:
        plain = x if x.dtype in (np.float16, np.float32, np.float64) else x.astype(np.float32)
        values = [str(v) for v in plain.ravel()]
    else:
        values = [str(int(v)) for v in x.ravel()]
    result = np.empty(len(values), object)
    result[:] = values
    return result.reshape(x.shape)


def _from_text(x: Array, dtype: DType) -> Array:
    texts = [v.decode() if isinstance(v, bytes) else str(v) for v in x.ravel().tolist()]
    try:
        if dtype is DType.BOOL:
            return np.array([float(t) != 0 for t in texts]).reshape(x.shape)
        if dtype.is_integer:
            numbers = [int(t) if t.strip().lstrip("+-").isdigit() else int(float(t)) for t in texts]
            return _wrap(np.array(numbers, np.int64), dtype).reshape(x.shape)
        return convert(np.array([float(t) for t in texts], np.float64), dtype).reshape(x.shape)
    except (ValueError, OverflowError) as e:
        raise ShapeError(f"text is no number: {e}") from e
