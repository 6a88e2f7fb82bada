"""Native sampling of feature maps against the NumPy kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.backends.numpy.spatial import grid_sample
from tests.native.kernel_harness import REMOTE, levels
from tests.native.oracle import check

MODES, PADDING = ["nearest", "linear", "cubic"], ["zeros", "border", "reflection"]


def compare(x: np.ndarray, grid: np.ndarray, level: str = "", **attrs: Any) -> None:
    with np.errstate(all="ignore"):
        want = grid_sample(x, grid, **attrs)
    tolerance = 2e-3 if x.dtype == np.float16 else 2e-5
    check("grid_sample", [x, grid], want, level=level, rtol=tolerance, atol=tolerance, **attrs)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_shape(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    places = data.draw(st.lists(st.integers(0, 5), min_size=len(sizes), max_size=len(sizes)))
    batch, channels = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.normal(size=(batch, channels, *sizes)).astype(data.draw(st.sampled_from([np.float32, np.float16])))
    # Eighths: exact in every type, so that both sides agree on which cell a place lies in.
    grid = rng.integers(-20, 21, (batch, *places, len(sizes))).astype(np.float32) / 8
    attrs = {"mode": data.draw(st.sampled_from(MODES)), "padding": data.draw(st.sampled_from(PADDING))}
    compare(x, grid, align_corners=data.draw(st.booleans()), **attrs)


@pytest.mark.parametrize("level", [*levels(), *REMOTE])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", PADDING)
def test_every_level(level: str, mode: str, padding: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 5, 7)).astype(np.float32)
    grid = rng.integers(-12, 13, (2, 4, 3, 2)).astype(np.float32) / 8
    compare(x, grid, level, mode=mode, padding=padding, align_corners=mode == "linear")


def test_places_far_off_and_nan() -> None:
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    grid = np.array([[np.nan, 0], [1e30, 0], [-np.inf, 1], [0, -1e9]], np.float32).reshape(1, 1, 4, 2)
    for mode in ("nearest", "linear"):
        compare(x, grid, mode=mode, padding="zeros")
