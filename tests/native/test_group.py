"""Products with weights in blocks of 32 and 8-bit activations, and rows of such weights, against the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgerun.backends.native.group import pack
from edgerun.backends.numpy.registry import find
from tests.native.kernel_harness import dot_levels, run_op

RNG = np.random.default_rng


def weights(n: int, k: int, bits: int, kind: str) -> list[Any]:
    """Codes, scales, zeros: "none", "half" (scales and minima fit f16, as in Q4_1), "wide" (they do not)."""
    rng = RNG(n + k + bits)
    codes = rng.integers(0, 256, (n, k * bits // 8)).astype(np.uint8)
    scales = rng.uniform(-0.1, 0.1, (n, k // (16 if kind == "blocks of 16" else 32))).astype(np.float16)
    if kind == "blocks of 16":
        return [codes, scales.astype(np.float32) * np.float32(1.001), None]
    if kind == "none":
        return [codes, scales, None]
    if kind == "half":
        minima = rng.normal(0, 0.5, scales.shape).astype(np.float16)
        return [codes, scales, -minima.astype(np.float32) / scales.astype(np.float32)]
    return [
        codes,
        rng.uniform(0.01, 0.1, scales.shape).astype(np.float32),
        rng.normal(5, 3, scales.shape).astype(np.float32),
    ]


@pytest.mark.parametrize("level", dot_levels())
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("kind", ["none", "half", "wide", "blocks of 16"])
def test_products(bits: int, kind: str, level: str) -> None:
    for rows, n, k in ((1, 16, 32), (1, 37, 96), (3, 5, 64), (9, 33, 160)):
        rng = RNG(rows)
        a = (rng.normal(size=(rows, k)) * 10 ** rng.uniform(-3, 3, (rows, 1))).astype(np.float32)
        bias = rng.normal(size=n).astype(np.float32)
        attrs = {"k": k, "n": n, "bits": bits, "block": 16 if kind == "blocks of 16" else 32, "a_bits": 8}
        if kind == "blocks of 16" and bits == 4:
            return  # there are none
        table = weights(n, k, bits, kind)
        for end in ([], [None, bias]):
            inputs = [a, *table, *end]
            expected = find("matmul_nbits")(*inputs, **attrs)
            size = np.abs(a).max(1, keepdims=True) * np.abs(expected / np.abs(a).max(1, keepdims=True)).max()
            for threads in (True, False):
                (y,) = run_op("matmul_nbits", inputs, attrs, constant=(1, 2, 3, 4, 5), level=level, threads=threads)
                assert (np.abs(y - expected) <= 1e-5 * size + 1e-6).all()


def test_codes_round_to_even_and_zero_blocks_stay_zero() -> None:
    """With the identity as weights a product gives the rounded row itself."""
    codes = np.full((32, 32), 128, np.uint8) + np.eye(32, dtype=np.uint8)
    inputs = [codes, np.ones((32, 1), np.float16), None]
    attrs = {"k": 32, "n": 32, "bits": 8, "block": 32, "a_bits": 8}
    row = np.zeros((3, 32), np.float32)
    row[0, :6] = [127, 0.5, 1.5, 2.5, -0.5, -3.5]
    row[2] = 1e-42
    for found in (
        find("matmul_nbits")(row, *inputs, **attrs),
        run_op("matmul_nbits", [row, *inputs], attrs, constant=(1, 2))[0],
    ):
        np.testing.assert_array_equal(found[0, :6], [127, 0, 2, 2, 0, -4])
        np.testing.assert_array_equal(found[1:], 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_makes_its_row_nan(value: float) -> None:
    a = np.ones((3, 64), np.float32)
    a[1, 40] = value
    inputs = [a, *weights(20, 64, 4, "half")]
    attrs = {"k": 64, "n": 20, "bits": 4, "block": 32, "a_bits": 8}
    for found in (find("matmul_nbits")(*inputs, **attrs), run_op("matmul_nbits", inputs, attrs, constant=(1, 2, 3))[0]):
        assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("kind", ["none", "half", "wide", "blocks of 16"])
def test_rows(bits: int, kind: str) -> None:
    if kind == "blocks of 16" and bits == 4:
        return  # there are none
    inputs = [np.array([[0, 36], [-1, 17]]), *weights(37, 96, bits, kind)]
    attrs = {"k": 96, "n": 37, "bits": bits, "block": 16 if kind == "blocks of 16" else 32}
    expected = find("rows_nbits")(*inputs, **attrs)
    (y,) = run_op("rows_nbits", inputs, attrs, constant=(1, 2, 3))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_scales_take_two_bytes_where_that_changes_nothing() -> None:
    for kind, minima, wide in (("none", False, False), ("half", True, False), ("wide", True, True)):
        packed, found_minima, found_wide = pack(*weights(37, 96, 4, kind), 37, 96, 4)
        assert (found_minima, found_wide) == (minima, wide)
        assert packed.nbytes == 3 * 3 * 16 * (16 + (1 + minima) * (4 if wide else 2))
