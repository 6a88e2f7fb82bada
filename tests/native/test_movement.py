"""Native copies against NumPy's own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType
from tests.native.kernel_harness import levels, run_op
from tests.native.oracle import check

TYPES = [np.uint8, np.float16, np.float32, np.int64]


def _array(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    return (np.arange(np.prod(shape)) % 251).astype(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("level", levels())
def test_transposes_of_every_order(dtype: Any, level: str) -> None:
    for perm in itertools.permutations(range(4)):
        for shape in [(2, 3, 5, 7), (1, 16, 9, 17), (3, 70, 1, 33), (0, 2, 3, 4)]:
            x = _array(shape, dtype)
            check("transpose", [x], x.transpose(perm), perm=perm, level=level)


def test_large_plain_transposes() -> None:
    for shape in [(128, 300), (1000, 3), (3, 1000), (131, 77), (512, 512)]:
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        check("transpose", [x], x.T, perm=(1, 0))


@pytest.mark.parametrize("dtype", TYPES)
def test_expand_and_tile(dtype: Any) -> None:
    for shape, to in [
        ((3, 1), (3, 5)),
        ((1,), (2, 3)),
        ((2, 1, 4), (2, 6, 4)),
        ((), (3,)),
        ((1, 3), (4, 3)),
        ((1, 2), (0, 2)),
    ]:
        x = _array(shape, dtype)
        check("expand", [x], np.broadcast_to(x, to).copy(), to=to)
    for shape, times in [
        ((2, 3), (2, 1)),
        ((2, 3), (1, 4)),
        ((2, 3), (3, 2)),
        ((2, 1, 3), (1, 1, 1)),
        ((2, 3), (0, 2)),
    ]:
        x = _array(shape, dtype)
        check("tile", [x], np.tile(x, times), times=times)


@pytest.mark.parametrize("dtype", TYPES)
def test_slices(dtype: Any) -> None:
    x = _array((5, 6, 7), dtype)
    for cuts in [
        (slice(1, 3),),
        (slice(None), slice(1, None, 2)),
        (slice(None), slice(None), slice(2, 5)),
        (slice(None, None, -1), slice(4, 1, -2), slice(None, None, 3)),
        (slice(2, 2),),
    ]:
        ranges = []
        for axis, cut in enumerate(cuts):
            found = range(*cut.indices(x.shape[axis]))
            ranges.append((axis, found.start, len(found), found.step))
        check("slice", [x], x[cuts], ranges=tuple(ranges))
    starts, ends, axes, steps = (np.array(v) for v in ([-1, 1], [-100, 3], [0, 2], [-2, 1]))
    check("slice", [x, starts, ends, axes, steps], x[::-2, :, 1:3], constant=(1, 2, 3, 4))


@pytest.mark.parametrize("dtype", TYPES)
def test_concat(dtype: Any) -> None:
    for axis in range(3):
        parts = []
        for n in (1, 4, 0, 2):
            shape = [2, 3, 5]
            shape[axis] = n
            parts.append(_array(tuple(shape), dtype))
        check("concat", parts, np.concatenate(parts, axis), axis=axis)
    check("concat", [_array((3,), dtype)], _array((3,), dtype), axis=0)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("dtype", TYPES)
def test_pads(dtype: Any, mode: Any) -> None:
    x = _array((3, 4, 5), dtype)
    widths: Any
    for widths in [((1, 2), (0, 3), (2, 1)), ((0, 0), (0, 0), (4, 4)), ((2, 2), (3, 0), (0, 0))]:
        if mode == "constant":
            expected = np.pad(x, widths, constant_values=7)
            check("pad", [x, None, np.asarray(7, dtype)], expected, widths=widths)
        check("pad", [x], np.pad(x, widths, mode), widths=widths, mode=mode)
    check("pad", [x], np.pad(x[1:, :-2], ((0, 0), (1, 0), (0, 1)), mode="constant"), widths=((-1, 0), (1, -2), (0, 1)))


def test_reshape_is_a_view_with_a_fallback() -> None:
    x = _array((4, 6))
    check("reshape", [x], x.reshape(3, 8), to=(3, 8))


def test_sizes_known_from_shapes() -> None:
    x = _array((4, 6, 2))
    (y,) = run_op("shape", [x], {}, types=[TensorType(DType.I64, (3,))], symbolic=True)
    assert y.tolist() == [4, 6, 2]
    start, limit, delta = (np.asarray(v, np.int64) for v in (3, 12, 2))
    check("range", [start, limit, delta], np.arange(3, 12, 2))


def test_symbolic_sizes() -> None:
    from edgerun.dims import symbol

    x = _array((3, 4, 5))
    a, b, c = (symbol(f"in0_{k}") for k in range(3))
    (y,) = run_op("transpose", [x], {"perm": (2, 0, 1)}, types=[TensorType(DType.F32, (c, a, b))], symbolic=True)
    np.testing.assert_array_equal(y, x.transpose(2, 0, 1))
    (y,) = run_op(
        "slice", [x], {"ranges": ((1, b - 1, b - 1, -1),)}, types=[TensorType(DType.F32, (a, b - 1, c))], symbolic=True
    )
    np.testing.assert_array_equal(y, x[:, :0:-1])
