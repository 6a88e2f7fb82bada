"""Native resizing against the NumPy kernel."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from edgerun.backends.numpy.registry import find
from edgerun.dims import floordiv, symbol
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType
from edgerun.ops.resample import COORDINATES, NEAREST
from tests.native.kernel_harness import levels, run_op


def _same(x: np.ndarray, attrs: dict[str, Any], roi: np.ndarray | None = None, level: str = "") -> None:
    expected = find("resize")(x, None, None, roi, **attrs)
    for threads in (True, False):
        (y,) = run_op("resize", [x, None, None, roi], attrs, constant=(3,), level=level, threads=threads)
        assert y.dtype == expected.dtype and y.shape == expected.shape
        if x.dtype.kind in "iu":
            np.testing.assert_array_equal(y, expected)
        else:
            tolerance = 2e-3 if x.dtype.itemsize == 2 else 1e-5
            np.testing.assert_allclose(y.astype("d"), expected.astype("d"), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_coordinates(mode: str, coordinate: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 7, 3)).astype(np.float32)
    roi = np.array([0.2, -0.1, 0.9, 1.2], np.float32) if coordinate == "tf_crop_and_resize" else None
    for to in ((10, 14), (3, 4), (5, 9), (1, 1), (13, 3)):
        for extra in ({}, {"exclude_outside": True}, {"antialias": True}):
            if mode == "nearest" and extra:
                continue
            _same(x, dict(axes=(1, 2), to=to, mode=mode, coordinate=coordinate, extrapolation=9.0, **extra), roi)
    if mode == "nearest":
        for nearest in NEAREST:
            _same(x, {"axes": (1, 2), "to": (9, 3), "mode": mode, "coordinate": coordinate, "nearest": nearest}, roi)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.uint8, np.int8, np.int32])
def test_types(dtype: Any) -> None:
    x = (np.random.default_rng(1).normal(size=(1, 3, 6, 5)) * 40).astype(np.int32).astype(dtype)
    for mode, antialias in itertools.product(("nearest", "linear", "cubic"), (False, True)):
        _same(x, {"axes": (2, 3), "to": (4, 11), "mode": mode, "antialias": antialias and mode != "nearest"})
    _same(x, {"axes": (0, 1), "to": (2, 6), "mode": "linear"})


@pytest.mark.parametrize("level", levels())
def test_usual_enlargement(level: str) -> None:
    x = np.random.default_rng(2).normal(size=(1, 9, 10, 34)).astype(np.float32)
    for mode in ("nearest", "linear"):
        for coordinate in ("half_pixel", "asymmetric", "align_corners"):
            _same(
                x,
                {"axes": (1, 2), "to": (18, 20), "factors": (2.0, 2.0), "mode": mode, "coordinate": coordinate},
                level=level,
            )


@pytest.mark.parametrize(
    "coordinate", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn"]
)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_symbolic_sizes(mode: str, coordinate: str) -> None:
    x = np.random.default_rng(3).normal(size=(1, 5, 7, 2)).astype(np.float32)
    a, h, w, c = (symbol(f"in0_{k}") for k in range(4))
    attrs: dict[str, Any] = {
        "axes": (1, 2),
        "to": (2 * h, floordiv(3 * w, 2)),
        "factors": (2.0, 1.5),
        "mode": mode,
        "coordinate": coordinate,
    }
    fixed = attrs | {"to": (10, 10)}
    for extra in ({}, {"factors": None}, {"exclude_outside": mode != "nearest"}):
        expected = find("resize")(x, **(fixed | extra))
        types = [TensorType(DType.F32, (a, 2 * h, floordiv(3 * w, 2), c))]
        (y,) = run_op("resize", [x], attrs | extra, types=types, symbolic=True)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
