"""Native Fourier transforms against the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import find
from tests.native.kernel_harness import run_op


def _same(op: str, inputs: list[Any], attrs: dict[str, Any], constant: tuple[int, ...] = ()) -> None:
    expected = find(op)(*inputs, **attrs)
    (y,) = run_op(op, inputs, attrs, constant=constant)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


def test_dft() -> None:
    rng = np.random.default_rng(0)
    for shape, axis in [((2, 16, 1), 1), ((2, 15, 2), 1), ((3, 8, 5, 2), 1), ((3, 8, 5, 1), 2), ((4, 6, 2), 0)]:
        x = rng.normal(size=shape).astype(np.float32)
        for size in (None, shape[axis] + 3, shape[axis] - 2):
            _same("dft", [x], {"axis": axis, "size": size})
            _same("dft", [x], {"axis": axis, "size": size, "inverse": True})
            if shape[-1] == 1:
                _same("dft", [x], {"axis": axis, "size": size, "onesided": True})


def test_stft() -> None:
    rng = np.random.default_rng(1)
    window = np.hanning(12).astype(np.float32)
    for parts in (1, 2):
        x = rng.normal(size=(2, 50, parts)).astype(np.float32)
        _same("stft", [x, window], {"hop": 5, "onesided": parts == 1}, constant=(1,))
        _same("stft", [x], {"hop": 4, "size": 16, "onesided": False})
