"""Shorthand for tests of native kernels: types of outputs that a shape rule would give."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.dtypes import from_numpy
from edgerun.ops.registry import TensorType
from tests.native.kernel_harness import run_op


def check(
    op: str,
    inputs: list[Any],
    expected: Any,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    constant: tuple[int, ...] = (),
    level: str = "",
    **attrs: Any,
) -> None:
    """Assert that the native kernels of `op` give the expected arrays (whose dtypes and shapes declare the outputs)."""
    wanted = expected if isinstance(expected, list) else [expected]
    types = [TensorType(from_numpy(e.dtype), e.shape) for e in wanted]
    for threads in (True, False):
        actual = run_op(op, inputs, attrs, types=types, constant=constant, level=level, threads=threads)
        for a, e in zip(actual, wanted, strict=True):
            if e.dtype.kind in "biu":
                np.testing.assert_array_equal(a, e)
            else:
                np.testing.assert_allclose(a.astype(np.float64), e.astype(np.float64), rtol=rtol, atol=atol)
