"""Small floats and integers of 2 and 4 bits: every code and the numbers around it, as the NumPy kernels convert."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgerun.backends.numpy.casts import convert
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType
from tests.native.kernel_harness import REMOTE, levels, run_op

FLOATS = (
    DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ, DType.F4E2M1, DType.F8E8M0, DType.F6E2M3,
    DType.F6E3M2,
)  # fmt: skip
INTEGERS = (DType.I4, DType.U4, DType.I2, DType.U2)
OTHERS = (DType.F16, DType.BF16, DType.F64, DType.I8, DType.U8, DType.I32, DType.I64, DType.BOOL)
LEVELS = [*levels(), *REMOTE]


def codes(dtype: DType) -> np.ndarray:
    """Every element of a type."""
    every = np.arange(1 << dtype.bits, dtype=np.uint8)
    return convert(every, dtype) if dtype.is_integer else every.view(dtype.numpy)


def cast(x: np.ndarray, dtype: DType, function: str, level: str) -> np.ndarray:
    program = ((function, dtype, 0),)
    return run_op("elementwise", [x], {"program": program}, types=[TensorType(dtype, x.shape)], level=level)[0]


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal bytes; all NaN count as one."""
    a, b = (v.astype(np.float64) for v in (got, want))
    nan = np.isnan(b)
    assert (np.isnan(a) == nan).all()
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(a[~nan], b[~nan])
    np.testing.assert_array_equal(np.signbit(a[~nan]), np.signbit(b[~nan]))


def around(dtype: DType) -> np.ndarray:
    """The numbers of a type, those halfway between neighbours, and the float32 next to each."""
    x = codes(dtype).astype(np.float32)
    x = np.unique(x[np.isfinite(x)])
    x = np.concatenate([x, (x[1:] + x[:-1]) / 2, [np.inf, -np.inf, np.nan, 0, -0.0, 1e30, -1e30, 3e-30]])
    x = x.astype(np.float32)
    return np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_small_floats(dtype: DType, level: str) -> None:
    same(cast(codes(dtype), DType.F32, "cast", level), convert(codes(dtype), DType.F32))
    functions = ["cast", "cast_up", "cast_down"] if dtype is DType.F8E8M0 else ["cast", "cast_wrap"]
    for function in functions:
        x = around(dtype)
        same(cast(x, dtype, function, level), convert(x, dtype, function))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("other", OTHERS)
def test_from_and_to_other_types(dtype: DType, other: DType) -> None:
    with np.errstate(all="ignore"):
        same(cast(codes(dtype), other, "cast", ""), convert(codes(dtype), other))
        x = np.arange(-40, 41).astype(other.numpy)
        same(cast(x, dtype, "cast", ""), convert(x, dtype))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_small_integers(dtype: DType, level: str) -> None:
    x = np.array([-1e20, -9, -8.5, -8, -2.9, -2, -1, -0.5, 0, 0.9, 1, 2.5, 3, 4, 7, 8, 15, 15.9, 16, np.nan, np.inf])
    same(cast(x.astype(np.float32), dtype, "cast", level), convert(x.astype(np.float32), dtype))
    for other in INTEGERS:
        same(cast(codes(dtype), other, "cast", level), convert(codes(dtype), other))


@pytest.mark.parametrize(("source", "target"), [(DType.I4, DType.U4), (DType.U2, DType.I2), (DType.F8E5M2, DType.U8)])
def test_bits_under_another_type(source: DType, target: DType) -> None:
    from edgerun.backends.numpy.bits import bit_cast

    x: Any = codes(source)
    got = run_op("bit_cast", [x], {"dtype": target})[0]
    np.testing.assert_array_equal(got.astype(np.int64), bit_cast(x, dtype=target).astype(np.int64))


@pytest.mark.parametrize("dtype", [DType.F8E4M3FN, DType.I4])
def test_they_are_moved_but_not_reduced(dtype: DType) -> None:
    x = codes(dtype)[:12].reshape(3, 4)
    got = run_op("transpose", [x], {"perm": (1, 0)})[0]
    np.testing.assert_array_equal(got.view(np.uint8), x.T.copy().view(np.uint8))
    from edgerun.errors import UnsupportedError

    with pytest.raises(UnsupportedError, match="reduction of"):
        run_op("reduce", [x], {"kind": "sum", "over": (0,)}, types=[TensorType(dtype, (1, 4))])


@pytest.mark.parametrize("dtype", [DType.F8E4M3FN, DType.F8E5M2FNUZ, DType.F4E2M1, DType.I4, DType.U2])
@pytest.mark.parametrize("scales", [(), (3,)])
@pytest.mark.parametrize("with_zero", [False, True])
def test_quantisation(dtype: DType, scales: tuple[int, ...], with_zero: bool) -> None:
    from edgerun.backends.numpy.quant import dequantize_linear, quantize_linear

    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 20)).astype(np.float32) * 4
    scale = np.full(scales, 0.25, np.float32) * (1 + np.arange(3, dtype=np.float32) if scales else 1)
    zero = convert(np.full(scales, 1, np.float32), dtype) if with_zero else None
    inputs = [x, np.asarray(scale, np.float32), zero]
    attrs: dict[str, Any] = {"axis": 1, "dtype": dtype}
    want = quantize_linear(*inputs, **attrs)
    got = run_op("quantize_linear", inputs, attrs, types=[TensorType(dtype, x.shape)])[0]
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))
    back = run_op("dequantize_linear", [want, *inputs[1:]], {"axis": 1}, types=[TensorType(DType.F32, x.shape)])[0]
    np.testing.assert_allclose(back, dequantize_linear(want, *inputs[1:], axis=1), rtol=1e-6)


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_progressions(dtype: DType) -> None:
    start, limit, delta = (np.asarray(v, dtype.numpy) for v in (1, 10, 2))
    got = run_op("range", [start, limit, delta], types=[TensorType(dtype, (5,))])[0]
    assert got.astype(np.float32).tolist() == [1, 3, 5, 7, 9]
