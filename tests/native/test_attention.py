"""Native attention, rotary embedding and cache update against the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgerun.backends.numpy.registry import find
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType
from tests.native.kernel_harness import levels, run_op


def _same(op: str, inputs: list[Any], attrs: dict[str, Any], level: str = "", tolerance: float = 1e-5) -> None:
    expected = find(op)(*inputs, **attrs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for threads in (True, False):
        for a, e in zip(run_op(op, inputs, attrs, level=level, threads=threads), expected, strict=True):
            assert a.shape == e.shape and a.dtype == e.dtype
            np.testing.assert_allclose(a.astype("f"), e.astype("f"), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("level", levels())
def test_attention(level: str) -> None:
    rng = np.random.default_rng(0)
    for b, h, g, sq, sk, past, d, dv in [
        (2, 4, 2, 7, 7, 0, 8, 8),
        (1, 2, 2, 1, 1, 20, 16, 16),
        (1, 3, 1, 40, 33, 5, 20, 12),
        (2, 2, 1, 3, 17, 0, 64, 33),
        (1, 1, 1, 70, 70, 0, 32, 32),
    ]:
        q, k, v = (rng.normal(size=s).astype("f") for s in ((b, h, sq, d), (b, g, sk, d), (b, g, sk, dv)))
        pk, pv = (rng.normal(size=(b, g, past, n)).astype("f") for n in (d, dv)) if past else (None, None)
        total = sk + past
        masks: list[Any] = [
            None,
            rng.normal(size=(sq, total)).astype("f"),
            rng.random((b, 1, sq, total)) > 0.4,
            np.where(rng.random((h, 1, total)) > 0.5, 0, -np.inf).astype("f"),
            rng.random((sq, max(total - 2, 1))) > 0.2,
        ]
        for mask in masks:
            for attrs in (
                {},
                {"causal": True},
                {"softcap": 2.0, "scores": "capped"},
                {"left": 2, "right": 1, "scores": "biased"},
                {"scores": "weights", "causal": True},
            ):
                _same("attention", [q, k, v, mask, pk, pv], {"scale": 0.3, **attrs}, level)
        nonpad, offset = rng.integers(0, total + 1, b), rng.integers(0, 3, b)
        sink = rng.normal(size=h).astype("f")
        _same("attention", [q, k, v, None, pk, pv, nonpad], {"scale": 0.3, "causal": True, "scores": "weights"}, level)
        _same(
            "attention",
            [q, k, v, None, pk, pv, nonpad, offset, sink],
            {"scale": 0.3, "left": 3, "scores": "weights"},
            level,
        )


@pytest.mark.parametrize("level", levels())
def test_attention_around_tile_edges(level: str) -> None:
    """Few and many queries, chunks of 28, panels of keys, head sizes around 16 lanes; causal windows end in a panel."""
    rng = np.random.default_rng(4)
    for steps in (3, 4, 27, 28, 29, 57):
        for total, size, value_size in (
            (15, 16, 16),
            (16, 15, 17),
            (17, 17, 31),
            (32, 1, 32),
            (33, 33, 1),
            (65, 20, 33),
        ):
            q, k, v = (
                rng.normal(size=(1, h, n, d)).astype("f")
                for h, n, d in ((4, steps, size), (2, total, size), (2, total, value_size))
            )
            _same("attention", [q, k, v], {"scale": 0.3}, level)
            _same("attention", [q, k, v], {"scale": 0.3, "causal": True, "left": 20}, level)


@pytest.mark.parametrize("level", levels())
def test_attention_without_scores_stops_at_the_last_key_that_counts(level: str) -> None:
    """A cache longer than the text: the keys beyond it must not be read into the result, whatever they are."""
    rng = np.random.default_rng(6)
    for steps, position in ((1, 0), (1, 63), (3, 9), (29, 0), (57, 4), (64, 0)):
        q, k, v = (rng.normal(size=(1, h, n, 40)).astype("f") for h, n in ((4, steps), (2, 64), (2, 64)))
        k[:, :, steps + position :] = v[:, :, steps + position :] = np.nan
        clean = [np.nan_to_num(k), np.nan_to_num(v)]
        attrs = {"scale": 0.3, "causal": True}
        expected = find("attention")(q, *clean, offset=np.array([position]), **attrs)[0]
        inputs = [q, k, v, None, None, None, None, np.array([position])]
        for threads in (True, False):
            (y,) = run_op(
                "attention", inputs, attrs, types=(TensorType(DType.F32, q.shape),), level=level, threads=threads
            )
            np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_attention_in_half_precision() -> None:
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(1, 2, 5, 8)).astype(np.float16) for _ in range(3))
    _same("attention", [q, k, v], {"scale": 0.35}, tolerance=2e-3)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(interleaved: bool) -> None:
    rng = np.random.default_rng(2)
    for b, cb, half in ((2, 1, 4), (2, 2, 3), (1, 1, 5)):
        x = rng.normal(size=(b, 3, 6, 10)).astype("f")
        cos, sin = (rng.normal(size=(cb, 6, half)).astype("f") for _ in range(2))
        _same("rotary", [x, cos, sin], {"interleaved": interleaved})


def test_cache_update() -> None:
    rng = np.random.default_rng(3)
    past, new = rng.normal(size=(2, 3, 5, 4)).astype("f"), rng.normal(size=(2, 3, 2, 4)).astype("f")
    inputs = [past, new, np.array([5, 1]), np.array([7])]
    (y,) = run_op("cache_update", inputs, {}, constant=(3,))
    np.testing.assert_array_equal(y, find("cache_update")(*inputs))
