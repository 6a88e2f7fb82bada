"""Native reductions, arg reductions and softmax against NumPy in double precision."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.native.kernel_harness import levels
from tests.native.oracle import check

KINDS = {
    "sum": lambda x, **k: x.sum(**k),
    "mean": lambda x, **k: x.mean(**k),
    "max": lambda x, **k: x.max(**k),
    "min": lambda x, **k: x.min(**k),
    "prod": lambda x, **k: x.prod(**k),
    "l1": lambda x, **k: np.abs(x).sum(**k),
    "l2": lambda x, **k: np.sqrt((x * x).sum(**k)),
    "logsum": lambda x, **k: np.log(x.sum(**k)),
    "logsumexp": lambda x, **k: np.log(np.exp(x).sum(**k)),
    "sumsq": lambda x, **k: (x * x).sum(**k),
}
AXES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 4, 5), (2,)),
    ((3, 4, 5), (0,)),
    ((3, 4, 5), (1,)),
    ((3, 4, 5), (0, 2)),
    ((3, 4, 5), (0, 1, 2)),
    ((7, 1300), (1,)),
    ((2, 130, 3, 40), (1, 2)),
    ((2, 3, 200, 5), (1, 3)),
    ((1, 49, 1100), (1,)),
    ((5,), (0,)),
    ((2, 3, 4, 5, 6), (0, 2, 4)),
    ((1, 1, 5000), (2,)),
    ((3, 1, 2), (1,)),
]


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_float_reductions(kind: str, dtype: Any, level: str) -> None:
    rng = np.random.default_rng(0)
    for shape, over in AXES:
        x = rng.uniform(0.5, 1.5, shape).astype(dtype)
        if kind == "prod":
            x = rng.uniform(0.99, 1.01, shape).astype(dtype)
        for keepdims in (True, False):
            expected = KINDS[kind](x.astype(np.float64), axis=over, keepdims=keepdims)
            tolerance = {"float32": 2e-6, "float64": 1e-12, "float16": 1e-3, "bfloat16": 1e-2}[np.dtype(dtype).name]
            check(
                "reduce",
                [x],
                np.asarray(expected).astype(dtype),
                rtol=tolerance,
                atol=tolerance,
                level=level,
                kind=kind,
                over=over,
                keepdims=keepdims,
            )


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_integer_reductions(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    for shape, over in AXES[:6]:
        x = rng.integers(0, 100, shape).astype(dtype)
        for kind in ("sum", "max", "min", "sumsq", "l1", "prod"):
            expected = KINDS[kind](x.astype(np.int64), axis=over).astype(dtype)
            check("reduce", [x], np.asarray(expected), kind=kind, over=over, keepdims=False)
        check(
            "reduce", [x], np.asarray(np.trunc(x.mean(axis=over))).astype(dtype), kind="mean", over=over, keepdims=False
        )
    high = np.array([[1 << 63, 5], [3, 1 << 62]], np.uint64)
    check("reduce", [high], high.max(axis=1), kind="max", over=(1,), keepdims=False)
    check("reduce", [high], high.min(axis=1), kind="min", over=(1,), keepdims=False)


def test_specials_and_empty_reductions() -> None:
    x = np.array([[1, np.nan, 3], [np.inf, -np.inf, 0]], np.float32)
    for kind in ("max", "min"):
        check("reduce", [x], KINDS[kind](x, axis=1), kind=kind, over=(1,), keepdims=False)
        check("reduce", [np.tile(x, (1, 50))], KINDS[kind](x, axis=1), kind=kind, over=(1,), keepdims=False)
    big = np.array([[1000, 1000], [-np.inf, -np.inf], [np.inf, 0]], np.float32)
    expected = np.array([1000 + np.log(2), -np.inf, np.inf], np.float32)
    check("reduce", [big], expected, kind="logsumexp", over=(1,), keepdims=False)
    check("reduce", [big.T.copy()], expected, kind="logsumexp", over=(0,), keepdims=False)
    empty = np.zeros((2, 0, 3), np.float32)
    for kind, value in {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf, "l2": 0}.items():
        check("reduce", [empty], np.full((2, 3), value, np.float32), kind=kind, over=(1,), keepdims=False)
        check("reduce", [empty], np.full((2,), value, np.float32), kind=kind, over=(1, 2), keepdims=False)
    check("reduce", [np.zeros((0, 3), np.int8)], np.full(3, -128, np.int8), kind="max", over=(0,), keepdims=False)


def test_equal_rows_do_not_drift() -> None:
    """Rounding that always goes the same way does not add up: groups of rows join in double."""
    rows = np.full((2048, 33), 0.7, np.float32)
    expected = rows.astype("d").sum(0).astype("f")
    check("reduce", [rows], expected, rtol=3e-7, kind="sum", over=(0,), keepdims=False)


def test_a_long_sum_is_accurate() -> None:
    x = np.random.default_rng(2).uniform(0, 1, (1, 100000)).astype(np.float32)
    check("reduce", [x], x.astype("d").sum(1).astype("f"), rtol=3e-7, kind="sum", over=(1,), keepdims=False)
    columns = np.random.default_rng(3).uniform(0, 1, (12544, 33)).astype(np.float32)
    check(
        "reduce", [columns], columns.astype("d").mean(0).astype("f"), rtol=1e-6, kind="mean", over=(0,), keepdims=False
    )


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.int64, np.uint64]
)
def test_arg_reductions(dtype: Any) -> None:
    rng = np.random.default_rng(4)
    for shape in [(3, 4, 5), (2, 100), (7,), (1, 1), (5, 3, 40)]:
        x = rng.integers(0, 9, shape).astype(dtype)
        for axis in range(x.ndim):
            n = shape[axis]
            for kind, function in {"max": np.argmax, "min": np.argmin}.items():
                check("argreduce", [x], np.asarray(function(x, axis=axis)), kind=kind, axis=axis, keepdims=False)
                backwards = n - 1 - function(np.flip(x, axis), axis=axis)
                check("argreduce", [x], np.asarray(backwards), kind=kind, axis=axis, keepdims=False, last=True)
    x = np.array([1, np.nan, 3, np.nan], np.float32)
    for kind in ("max", "min"):
        check("argreduce", [x], np.asarray(1), kind=kind, axis=0, keepdims=False)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_softmax(dtype: Any, level: str) -> None:
    rng = np.random.default_rng(5)
    for shape in [(2, 3, 5), (4, 1000), (3, 17, 70), (1,), (2, 64), (0, 3), (2, 100, 130)]:
        x = (rng.normal(size=shape) * 5).astype(dtype)
        for axis in range(x.ndim):
            d = x.astype(np.float64)
            shifted = d - d.max(axis=axis, keepdims=True, initial=-np.inf)
            total = np.exp(shifted).sum(axis=axis, keepdims=True)
            tolerance = 1e-3 if dtype is np.float16 else 1e-6
            for log, e in ((False, np.exp(shifted) / total), (True, shifted - np.log(total))):
                check(
                    "softmax",
                    [x],
                    e.astype(dtype),
                    rtol=2 * tolerance,
                    atol=3 * tolerance,
                    level=level,
                    axis=axis,
                    log=log,
                )
            hard = np.zeros_like(x)
            if x.size:
                np.put_along_axis(hard, np.expand_dims(d.argmax(axis=axis), axis), 1, axis)
            check("hardmax", [x], hard, axis=axis, level=level)


def test_softmax_of_extremes() -> None:
    x = np.array([[1e30, 0, -1e30], [-np.inf, 0, 0], [np.nan, 1, 2]], np.float32)
    expected = np.array([[1, 0, 0], [0, 0.5, 0.5], [np.nan] * 3], np.float32)
    check("softmax", [x], expected, axis=1)
