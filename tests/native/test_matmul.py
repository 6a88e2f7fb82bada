"""Matrix products of float32: packed, packed while running, single rows; around tile edges, against NumPy."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from edgerun.backends.numpy.registry import find
from edgerun.dims import symbol
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Graph, Node
from edgerun.ops.registry import TensorType, infer
from tests.native.kernel_harness import REMOTE, levels, run_graph, run_op
from tests.native.test_conv import EPILOGUES

ACTS = tuple(e for e in EPILOGUES if e[0] != "prelu")


def real(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def check(
    a: np.ndarray,
    b: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    constant: bool = True,
    constant_bias: bool = True,
    act: tuple[str, float, float] = ("none", 0, 0),
    res: str = "none",
    trans_b: bool = False,
    level: str = "",
    **options: Any,
) -> None:
    """Assert that the native product is NumPy's; `constant` makes b a weight."""
    attrs: dict[str, Any] = {"trans_b": trans_b, "act": act[0], "p0": float(act[1]), "p1": float(act[2]), "res": res}
    inputs = [a, b, bias, None]
    if res != "none":
        inputs[3] = real(*find("matmul")(a, b, trans_b=trans_b).shape, seed=9)
    expected = find("matmul")(*inputs, **attrs)
    weights = ((1,) if constant else ()) + ((2,) if constant_bias else ())
    (actual,) = run_op("matmul", inputs, attrs, constant=weights, level=level, **options)
    tolerance = 2e-6 * (1 + np.sqrt(a.shape[-1]))
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("constant", [True, False])
def test_around_tile_edges(level: str, constant: bool) -> None:
    for m in (1, 2, 3, 5, 6, 7, 13, 14, 15, 28, 29):
        for n in (1, 8, 15, 16, 17, 31, 32, 33, 65):
            check(real(m, 9), real(9, n), real(n), constant=constant, level=level)
    for k in (1, 2, 3, 4, 5, 7, 31, 32, 33, 100):
        for m in (1, 8):
            check(real(m, k), real(k, 20), constant=constant, level=level, threads=False)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("act", ACTS, ids=lambda e: f"{e[0]}-{e[2]}")
@pytest.mark.parametrize("res", ["none", "before", "after"])
def test_epilogues(level: str, act: tuple[str, float, float], res: str) -> None:
    for m in (1, 5, 17):
        a, b, bias = real(m, 12), real(12, 41), real(41)
        for constant in (True, False):
            check(a, b, bias, constant=constant, act=act, res=res, level=level)
            check(a, b, bias, constant=constant, act=act, res=res, level=level, apart=3, in_place=True)
            check(a, b, None, constant=constant, act=act, res=res, level=level, in_place=True)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("trans_b", [False, True])
def test_batches(level: str, trans_b: bool) -> None:
    for left, right in (
        ((2, 3), (2, 3)), ((2, 3), (1, 3)), ((2, 3), (2, 1)), ((2, 3), ()), ((), (2, 3)), ((1, 3), (2, 1)),
        ((4,), (2, 4)), ((2, 4), (4,)), ((2, 1, 3), (4, 1)),
    ):  # fmt: skip
        for m, n in ((1, 17), (5, 20), (15, 33)):
            a, b = real(*left, m, 10), real(*right, *((n, 10) if trans_b else (10, n)))
            for constant in (True, False):
                check(a, b, real(n), constant=constant, trans_b=trans_b, level=level)
    check(real(3, 4, 5, 6), real(3, 4, 6, 7), constant=False, act=("gelu", 0, 0), res="after", level=level)


@pytest.mark.parametrize("level", levels())
def test_vectors(level: str) -> None:
    for constant in (True, False):
        check(real(9), real(9, 20), constant=constant, level=level)
        check(real(4, 9), real(9), constant=constant, level=level)
        check(real(9), real(9), constant=constant, level=level)
        check(real(2, 4, 9), real(9), constant=constant, level=level, act=("tanh", 0, 0))
        check(real(9), real(2, 3, 9, 4), constant=constant, level=level)


@pytest.mark.parametrize("level", levels())
def test_computed_bias(level: str) -> None:
    for constant in (True, False):
        check(real(5, 9), real(9, 20), real(20), constant=constant, constant_bias=False, level=level)


@pytest.mark.parametrize("level", levels())
def test_sizes_of_zero(level: str) -> None:
    for m, k, n in ((0, 4, 5), (3, 0, 5), (3, 4, 0), (1, 0, 5)):
        for constant in (True, False):
            check(real(m, k), real(k, n), constant=constant, level=level)
            check(real(m, k), real(k, n), real(n), constant=constant, level=level, act=("sigmoid", 0, 0))
    check(real(0, 3, 4), real(0, 4, 5), constant=False, level=level)


@pytest.mark.parametrize("level", levels())
def test_large_inner_size(level: str) -> None:
    """Weights beyond the caches: several panels and blocks of rows."""
    for m in (1, 2, 30, 100):
        check(real(m, 3000), real(3000, 200), real(200), level=level)


@pytest.mark.parametrize("level", levels())
def test_not_a_number_stays(level: str) -> None:
    for act in ACTS:
        for m in (1, 4):
            a, b = real(m, 8), real(8, 20)
            a[0, 3] = np.nan
            attrs = {"act": act[0], "p0": float(act[1]), "p1": float(act[2])}
            (y,) = run_op("matmul", [a, b], attrs, constant=(1,), level=level)
            assert np.isnan(y[0]).all() and np.isfinite(y[1:]).all()


def test_activations_are_accurate() -> None:
    """Within 1e-6 of NumPy's float64 functions, relative to 1 or the result; most near and far from 0 too."""
    x = np.concatenate([np.linspace(-12, 12, 3000), np.geomspace(1e-6, 1, 500), -np.geomspace(1e-6, 1, 500)])
    x = x.astype(np.float32).reshape(-1, 1)
    for act in ACTS:
        attrs = {"act": act[0], "p0": float(act[1]), "p1": float(act[2])}
        expected = find("matmul")(x.astype(np.float64), np.ones((1, 1)), **attrs)
        for level in levels():
            (actual,) = run_op("matmul", [x, np.ones((1, 1), np.float32)], attrs, constant=(1,), level=level)
            error = np.abs(actual - expected)
            assert (error <= 1e-6 * np.maximum(np.abs(expected), 1)).all(), act
            if act[0] in ("leaky", "sigmoid", "silu", "tanh", "elu"):
                assert (error <= 1e-6 * np.abs(expected)).all(), act


def test_symbolic_sizes() -> None:
    """Rows, batches, and for two computed operands every size, bound at run time."""
    for constant in (True, False):
        a, b = real(3, 7, 9), real(9, 20) if constant else real(3, 9, 20)
        graph, values = Graph(), {"b": 3, "m": 7, "k": 9, "n": 20}
        graph.symbols |= {"b": (0, 4), "m": (0, 20), "k": (0, 30), "n": (0, 40)}
        k = 9 if constant else symbol("k")
        left = TensorType(DType.F32, (symbol("b"), symbol("m"), k))
        right = TensorType(DType.F32, (9, 20), b) if constant else TensorType(DType.F32, (symbol("b"), k, symbol("n")))
        (y,) = infer("matmul", [left, right], {})
        for name, t in (("a", left), ("b", right), ("y", y)):
            graph.add_tensor(name, t.dtype, t.shape, t.value)
        graph.nodes.append(Node("matmul", ["a", "b"], ["y"], {}, "product"))
        graph.outputs = ["y"]
        (actual,) = run_graph(graph, {"a": a, "b": b}, values)
        np.testing.assert_allclose(actual, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", REMOTE)
def test_other_architectures(level: str) -> None:
    """Tiles of AArch64, Armv7 and RISC-V in emulators."""
    assert shutil.which(REMOTE[level][2]), f"{REMOTE[level][2]} is not installed"
    for m in (1, 4, 5, 7, 8, 9):
        for n in (1, 4, 5, 8, 9):
            check(real(m, 7), real(7, n), real(n), level=level)
    for trans_b in (False, True):
        b = real(2, 21, 10) if trans_b else real(2, 10, 21)
        check(real(2, 9, 10), b, constant=False, trans_b=trans_b, level=level)
    for act in ACTS:
        check(real(6, 11), real(11, 10), real(10), act=act, res="after", level=level)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64, np.uint32, np.uint64])
def test_other_types(dtype: type) -> None:
    """float64 is summed in float64, integers wrap; vectors, batches, computed and constant operands."""
    rng = np.random.default_rng(5)
    info = None if dtype is np.float64 else np.iinfo(dtype)

    def numbers(*shape: int) -> np.ndarray:
        if info is None:
            return rng.standard_normal(shape)
        return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)

    for left, right, trans_b in (
        ((3, 4), (4, 5), False), ((3, 4), (5, 4), True), ((2, 1, 3, 4), (6, 4, 5), False), ((4,), (4, 5), False),
        ((3, 4), (4,), False), ((4,), (4,), False), ((2, 3, 4), (4,), False), ((0, 4), (4, 5), False),
        ((3, 0), (0, 5), False), ((2, 3, 4), (2, 5, 4), True),
    ):  # fmt: skip
        a, b = numbers(*left), numbers(*right)
        expected = find("matmul")(a, b, trans_b=trans_b)
        for constant in ((), (1,), (0, 1)):
            (actual,) = run_op("matmul", [a, b], {"trans_b": trans_b}, constant=constant)
            assert actual.dtype == dtype and actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)
    a, b, bias, residual = numbers(2, 3, 4), numbers(4, 5), numbers(5), numbers(2, 3, 5)
    for inputs in ([a, b, bias], [a, b, bias, residual], [a, b, None, residual]):
        attrs = {"res": "before" if len(inputs) > 3 else "none"}
        (actual,) = run_op("matmul", inputs, attrs, constant=(1,))
        np.testing.assert_allclose(actual, find("matmul")(*inputs, **attrs), rtol=1e-12, atol=1e-12)


def test_what_the_plain_product_refuses() -> None:
    with pytest.raises(UnsupportedError, match="i8"):
        run_op("matmul", [np.zeros((2, 2), np.int8), np.zeros((2, 2), np.int8)], {})
    with pytest.raises(UnsupportedError, match="gelu"):
        run_op("matmul", [np.zeros((2, 2)), np.zeros((2, 2))], {"act": "gelu"})
