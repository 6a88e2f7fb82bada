"""Native tree ensembles against the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgerun.backends.numpy.registry import find
from tests.native.kernel_harness import run_op


def _forest(
    rng: np.random.Generator, trees: int, depth: int, features: int, width: int, dtype: Any
) -> list[np.ndarray]:
    """Full trees: inner node k of a tree has the children 2k + 1 and 2k + 2."""
    inner, leaves = 2**depth - 1, 2**depth
    yes: list[int] = []
    no: list[int] = []
    for t in range(trees):
        for k in range(inner):
            for side, table in ((1, yes), (2, no)):
                child = 2 * k + side
                table.append(t * inner + child if child < inner else -1 - (t * leaves + child - inner))
    n, votes = trees * inner, rng.integers(0, 3, trees * leaves)
    offsets = np.concatenate([[0], np.cumsum(votes)]).astype(np.int32)
    return [
        np.arange(trees, dtype=np.int32) * inner,
        rng.integers(0, features, n).astype(np.int32),
        rng.integers(0, 6, n).astype(np.uint8),
        np.round(rng.normal(size=n), 1).astype(dtype),
        np.array(yes, np.int32),
        np.array(no, np.int32),
        rng.random(n) < 0.5,
        offsets,
        rng.integers(0, width, offsets[-1]).astype(np.int32),
        rng.normal(size=offsets[-1]).astype(dtype),
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("aggregate", ["sum", "average", "min", "max"])
def test_trees(aggregate: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    for trees, depth, width in [(5, 3, 2), (1, 1, 1), (20, 5, 7)]:
        x = np.round(rng.normal(size=(33, 4)), 1).astype(dtype)
        x[rng.random(x.shape) < 0.1] = np.nan
        inputs = [x, *_forest(rng, trees, depth, 4, width, dtype)]
        attrs = {"width": width, "aggregate": aggregate}
        (y,) = run_op("tree_ensemble", inputs, attrs, constant=range(1, 11))
        np.testing.assert_allclose(y, find("tree_ensemble")(*inputs, **attrs), rtol=1e-5, atol=1e-6)
