"""Native normalisation and pooling against NumPy in double precision."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests.native.kernel_harness import levels
from tests.native.oracle import check


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_norms(dtype: Any, level: str) -> None:
    rng = np.random.default_rng(0)
    tolerance = 2e-3 if dtype is np.float16 else 3e-6
    for shape, axis in [((3, 40), 1), ((2, 5, 7), 1), ((2, 3, 129), 2), ((4, 1), 1), ((0, 4), 1)]:
        x = (rng.normal(size=shape) * 3 + 10).astype(dtype)
        scale, bias = (rng.normal(size=shape[axis:]).astype(dtype) for _ in range(2))
        d, axes = x.astype(np.float64), tuple(range(axis, len(shape)))
        mean, var = d.mean(axes, keepdims=True), d.var(axes, keepdims=True)
        y = (d - mean) / np.sqrt(var + 1e-5)
        for s, b in ((scale, bias), (scale, None), (None, None)):
            expected = y * (1 if s is None else s) + (0 if b is None else b)
            check(
                "layer_norm",
                [x, s, b],
                expected.astype(dtype),
                rtol=10 * tolerance,
                atol=10 * tolerance,
                level=level,
                axis=axis,
                epsilon=1e-5,
            )
        if dtype is np.float32 and x.size:
            outs = [(y * scale + bias).astype(dtype), mean.astype("f"), (1 / np.sqrt(var + 1e-5)).astype("f")]
            check("layer_norm", [x, scale, bias], outs, rtol=3e-5, atol=3e-5, axis=axis, epsilon=1e-5)
        rms = d / np.sqrt((d * d).mean(axes, keepdims=True) + 1e-6) * scale
        check(
            "rms_norm",
            [x, scale],
            rms.astype(dtype),
            rtol=tolerance,
            atol=tolerance,
            level=level,
            axis=axis,
            epsilon=1e-6,
        )
    for shape, groups in [((2, 5, 6, 8), 4), ((1, 9, 64), 2), ((2, 3, 4, 3), 3), ((1, 7, 33), 1)]:
        x = (rng.normal(size=shape) * 2 + 5).astype(dtype)
        scale, bias = (rng.normal(size=shape[-1]).astype(dtype) for _ in range(2))
        d = x.astype(np.float64).reshape(shape[0], -1, groups, shape[-1] // groups)
        y = (d - d.mean((1, 3), keepdims=True)) / np.sqrt(d.var((1, 3), keepdims=True) + 1e-5)
        expected = y.reshape(shape) * scale + bias
        check(
            "group_norm",
            [x, scale, bias],
            expected.astype(dtype),
            rtol=10 * tolerance,
            atol=10 * tolerance,
            level=level,
            groups=groups,
            epsilon=1e-5,
        )


def _pool(x: np.ndarray, out: tuple[int, ...], a: dict[str, Any]) -> np.ndarray:
    """Window by window, by definition."""
    spatial = len(out)
    y = np.zeros((x.shape[0], *out, x.shape[-1]))
    for o in np.ndindex(*out):
        cells, padded = [], 0
        for tap in np.ndindex(*a["kernel"]):
            at = [o[k] * a["strides"][k] - a["pads"][k] + tap[k] * a["dilations"][k] for k in range(spatial)]
            padded += all(at[k] < x.shape[1 + k] + a["pads"][spatial + k] for k in range(spatial))
            if all(0 <= at[k] < x.shape[1 + k] for k in range(spatial)):
                cells.append(x[(slice(None), *at)].astype(np.float64))
        stack = np.stack(cells) if cells else np.zeros((0, x.shape[0], x.shape[-1]))
        if a["kind"] == "max":
            value = stack.max(axis=0, initial=-np.inf)
        elif a["kind"] == "average":
            value = stack.sum(axis=0) / (padded if a["count_include_pad"] else len(cells))
        else:
            value = (np.abs(stack) ** a["p"]).sum(axis=0) ** (1 / a["p"])
        y[(slice(None), *o)] = value
    return y


CASES = [
    ((2, 7, 9, 5), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1)),
    ((1, 8, 8, 33), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    ((1, 6, 5, 16), (3, 2), (1, 2), (1, 0, 2, 1), (2, 1)),
    ((2, 11, 3), (4,), (3,), (1, 2), (1,)),
    ((1, 4, 5, 6, 17), (2, 3, 2), (1, 2, 3), (0, 1, 1, 1, 0, 1), (1, 1, 2)),
    ((0, 4, 4, 2), (2, 2), (1, 1), (0,) * 4, (1, 1)),
]


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("kind", ["max", "average", "lp"])
def test_pools(kind: str, level: str) -> None:
    rng = np.random.default_rng(1)
    for (shape, kernel, strides, pads, dilations), ceil_mode in itertools.product(CASES, (False, True)):
        n = len(kernel)
        out = []
        for k in range(n):
            room = shape[1 + k] + pads[k] + pads[n + k] - (kernel[k] - 1) * dilations[k] - 1
            count = (-(-room // strides[k]) if ceil_mode else room // strides[k]) + 1
            if ceil_mode and (count - 1) * strides[k] >= shape[1 + k] + pads[k]:
                count -= 1
            out.append(count)
        x = rng.normal(size=shape)
        for include, p in ((False, 2), (True, 3)):
            attrs: dict[str, Any] = {
                "kind": kind,
                "kernel": kernel,
                "strides": strides,
                "pads": pads,
                "dilations": dilations,
                "ceil_mode": ceil_mode,
                "count_include_pad": include,
                "p": p,
            }
            dtype: Any
            for dtype in (np.float32, np.float64):
                expected = _pool(x.astype(dtype), tuple(out), attrs).astype(dtype)
                check("pool", [x.astype(dtype)], expected, level=level, **attrs)
            if kind == "max":
                for dtype in (np.int8, np.uint8, np.int32, np.float16):
                    ints = (rng.integers(0, 100, shape) - (50 if dtype is np.int8 else 0)).astype(dtype)
                    check("pool", [ints], _pool(ints, tuple(out), attrs).astype(dtype), level=level, **attrs)


def test_max_pool_keeps_nan_and_its_place() -> None:
    x = np.array([[1, np.nan], [3, 4], [7, 2], [7, np.nan]], np.float32).reshape(1, 4, 2)
    attrs: dict[str, Any] = {"kernel": (2,), "strides": (1,), "pads": (0, 0), "dilations": (1,)}
    check("pool", [x], np.array([[[3, np.nan], [7, 4], [7, np.nan]]], np.float32), kind="max", **attrs)
    y = np.array([[[3, np.nan], [7, 4], [7, np.nan]]], np.float32)
    check("max_pool_indices", [x], [y, np.array([[[1, 4], [2, 5], [2, 7]]])], **attrs)


def test_lrn() -> None:
    x = np.random.default_rng(2).normal(size=(2, 3, 7)).astype(np.float32)
    for size in (1, 3, 4, 9):
        y = np.empty_like(x)
        for c in range(7):
            low, high = max(0, c - (size - 1) // 2), min(7, c + size // 2 + 1)
            y[..., c] = x[..., c] / (1.5 + 0.3 / size * (x[..., low:high].astype("d") ** 2).sum(-1)) ** 0.75
        check("lrn", [x], y, size=size, alpha=0.3, beta=0.75, bias=1.5)
