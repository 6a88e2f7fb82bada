"""Native quantisation and integer products against the NumPy kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgerun.backends.numpy.registry import find
from edgerun.dtypes import DType
from tests.native.kernel_harness import dot_levels, levels, run_op

RNG = np.random.default_rng


def _same(
    op: str,
    inputs: list[Any],
    attrs: dict[str, Any] | None = None,
    *,
    constant: tuple[int, ...] = (),
    level: str = "",
) -> None:
    expected = find(op)(*inputs, **(attrs or {}))
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    for threads in (True, False):
        for a, e in zip(
            run_op(op, inputs, attrs, constant=constant, level=level, threads=threads), expected, strict=True
        ):
            assert a.shape == e.shape and a.dtype == e.dtype
            if e.dtype.kind == "f":
                np.testing.assert_allclose(a, e, rtol=1e-5, atol=1e-5)
            else:
                np.testing.assert_array_equal(a, e)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantize_and_dequantize(dtype: Any, level: str) -> None:
    rng, info = RNG(0), np.iinfo(dtype)
    x = (rng.normal(size=(3, 5, 40)) * 100).astype(np.float32)
    x[0, 0, :4] = [np.nan, np.inf, -np.inf, 1e30]
    codes = rng.integers(info.min, info.max, x.shape, dtype, endpoint=True)
    cases: list[tuple[tuple[int, ...], int, int]] = [
        ((), 0, 0),
        ((5,), 1, 0),
        ((40,), 2, 0),
        ((3,), 0, 0),
        ((3, 5, 3), 2, 16),
        ((3, 3, 40), 1, 2),
        ((2, 5, 40), 0, 2),
    ]
    for shape, axis, block in cases:
        scale = np.asarray(rng.uniform(0.5, 2, shape), np.float32)
        zero = np.asarray(rng.integers(info.min, info.max, shape, dtype, endpoint=True))
        for z in (zero, None):
            attrs = {"axis": axis, "block": block}
            if z is not None or dtype is np.uint8:
                kind = {
                    "dtype": {np.uint8: DType.U8, np.int8: DType.I8, np.uint16: DType.U16, np.int16: DType.I16}[dtype]
                }
                _same("quantize_linear", [x, scale, z], attrs | kind, level=level)
            _same("dequantize_linear", [codes, scale, z], attrs, level=level)
    wide = rng.integers(-(1 << 30), 1 << 30, (4, 7)).astype(np.int32)
    _same("dequantize_linear", [wide, np.asarray(0.5, np.float32)], level=level)


def test_dynamic_quantisation() -> None:
    for x in (RNG(1).normal(size=(7, 33)), np.zeros((2, 3)), np.full((3,), 5.0), -np.ones((20, 30)), np.zeros((0, 2))):
        _same("dynamic_quantize_linear", [x.astype(np.float32)])


@pytest.mark.parametrize("level", levels() + dot_levels())
@pytest.mark.parametrize("a_type", [np.uint8, np.int8])
@pytest.mark.parametrize("b_type", [np.uint8, np.int8])
def test_matmul_integer(a_type: Any, b_type: Any, level: str) -> None:
    rng = RNG(2)

    def codes(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        info = np.iinfo(dtype)
        return np.asarray(rng.integers(info.min, info.max, shape, dtype, endpoint=True))

    for a_shape, b_shape in [
        ((5, 7), (7, 3)),
        ((70, 129), (129, 37)),
        ((1, 64), (64, 16)),
        ((2, 3, 9), (9, 20)),
        ((2, 3, 9), (2, 9, 5)),
        ((9,), (9, 5)),
        ((4, 9), (9,)),
        ((0, 4), (4, 3)),
        ((3, 9), (2, 9, 5)),
        ((2, 1, 3, 4), (1, 5, 4, 6)),
        ((3, 0), (0, 5)),
    ]:
        a, b = codes(a_shape, a_type), codes(b_shape, b_type)
        n = b_shape[-1] if len(b_shape) > 1 else 1
        for za, zb in [(None, None), (codes((), a_type), codes((), b_type)), (codes((), a_type), codes((n,), b_type))]:
            if len(b_shape) == 1 and zb is not None and zb.ndim:
                continue
            for constant in ((), (1,)) if len(b_shape) <= 2 else ((),):
                _same("matmul_integer", [a, b, za, zb], constant=constant, level=level)
    a, b = codes((6, 8), a_type), codes((8, 4), b_type)
    _same("matmul_integer", [a, b, codes((6, 1), a_type), codes((4,), b_type)], constant=(1,), level=level)
    extreme = np.full((3, 600), np.iinfo(a_type).max, a_type), np.full((600, 16), np.iinfo(b_type).min, b_type)
    _same("matmul_integer", list(extreme), constant=(1,), level=level)


def _scale(rng: np.random.Generator, shape: tuple[int, ...] = ()) -> np.ndarray:
    return np.asarray(rng.uniform(0.01, 0.1, shape), np.float32)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_qlinear_matmul(kind: Any) -> None:
    rng, info = RNG(3), np.iinfo(kind)

    def codes(*shape: int) -> np.ndarray:
        return np.asarray(rng.integers(info.min, info.max, shape, kind, endpoint=True))

    for bias in (None, rng.integers(-1000, 1000, 19).astype(np.int32)):
        for per_column in ((), (19,)):
            inputs = [
                codes(9, 33),
                _scale(rng),
                codes(),
                codes(33, 19),
                _scale(rng, per_column),
                codes(*per_column),
                np.asarray(2, np.float32),
                codes(),
                bias,
            ]
            for constant in ((), (3,)):
                _same("qlinear_matmul", inputs, constant=constant)


CONVS: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], int]] = [
    ((1, 7, 8, 5), (9, 3, 3, 5), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((2, 9, 8, 16), (33, 1, 1, 16), (1, 1), (0,) * 4, (1, 1), 1),
    ((1, 9, 7, 8), (6, 3, 2, 4), (2, 1), (1, 0, 2, 1), (1, 2), 2),
    ((1, 12, 6), (6, 5, 1), (2,), (2, 1), (1,), 6),
    ((2, 6, 7, 40), (40, 3, 3, 1), (2, 2), (1, 1, 0, 1), (1, 1), 40),
    ((1, 3, 4, 5, 2), (4, 2, 2, 2, 2), (1, 2, 1), (0, 1, 0, 1, 0, 1), (1, 1, 2), 1),
    ((1, 40, 40, 3), (16, 3, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1),
    ((1, 8, 8, 34), (34, 3, 3, 17), (1, 1), (1,) * 4, (1, 1), 2),
]


@pytest.mark.parametrize("level", levels() + dot_levels())
@pytest.mark.parametrize("x_type", [np.uint8, np.int8])
@pytest.mark.parametrize("w_type", [np.uint8, np.int8])
def test_quantised_convolutions(x_type: Any, w_type: Any, level: str) -> None:
    rng = RNG(4)

    def codes(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        info = np.iinfo(dtype)
        return np.asarray(rng.integers(info.min, info.max, shape, dtype, endpoint=True))

    for x_shape, w_shape, strides, pads, dilations, group in CONVS:
        attrs = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
        x, w, outputs = codes(x_shape, x_type), codes(w_shape, w_type), w_shape[0]
        for zx, zw in (
            (None, None),
            (codes((), x_type), codes((), w_type)),
            (codes((), x_type), codes((outputs,), w_type)),
        ):
            _same("conv_integer", [x, w, zx, zw], attrs, constant=(1, 3), level=level)
        bias = rng.integers(-500, 500, outputs).astype(np.int32)
        inputs = [
            x,
            _scale(rng),
            codes((), x_type),
            w,
            _scale(rng, (outputs,)),
            codes((outputs,), w_type),
            np.asarray(1, np.float32),
            codes((), np.uint8),
            bias,
        ]
        _same("qlinear_conv", inputs, attrs, constant=(3, 4, 5, 8), level=level)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_of_few_bits(bits: int) -> None:
    rng = RNG(5)
    k, n, block = 70, 37, 32
    blocks = 3
    codes = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)
    packed = rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    attrs = {"k": k, "n": n, "bits": bits, "block": block}
    for zeros in (None, packed, rng.normal(size=(n, blocks)).astype(np.float32)):
        for index in (None, rng.integers(0, blocks, k).astype(np.int32)):
            a, bias = rng.normal(size=(2, 3, k)).astype(np.float32), rng.normal(size=n).astype(np.float32)
            inputs: list[Any] = [a, codes, scales, zeros, index, bias]
            expected = find("matmul_nbits")(*inputs, **attrs)
            (y,) = run_op("matmul_nbits", inputs, attrs, constant=(1, 2, 3, 4, 5))
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-3)


def _sum_program(kinds: list[DType], out: DType, bounds: tuple[float, float] | None, zero: float) -> tuple[Any, ...]:
    """The program of a quantised sum: see edgerun/backends/native/ops/requantize.py."""
    f, program, values = DType.F32, list[Any](), list[int]()
    count = len(kinds)

    def add(*step: Any) -> int:
        program.append(step)
        return count + len(program) - 1

    for k, kind in enumerate(kinds):
        if kind is f:
            values.append(k)
            continue
        number = add("cast", f, k)
        centred = add("sub", f, number, add("const", f, 3.0 + k))
        values.append(add("mul", f, centred, add("const", f, 0.04 * (k + 1))))
    total = values[0] if count == 1 else add("add", f, values[1], values[0])
    if bounds:
        total = add("max", f, add("const", f, bounds[0]), total)
        total = add("min", f, total, add("const", f, bounds[1]))
    rounded = add("round", f, add("div", f, total, add("const", f, 0.07)))
    add("cast", out, add("add", f, rounded, add("const", f, zero)))
    return tuple(program)


@pytest.mark.parametrize("level", ["", *levels(), *dot_levels(), "armv7", "aarch64", "riscv64"])
def test_sums_of_codes(level: str) -> None:
    rng = RNG(6)

    def values(kind: DType, shape: tuple[int, ...]) -> np.ndarray:
        if kind is DType.F32:
            x = (rng.normal(size=shape) * 5).astype(np.float32)
            x.reshape(-1)[:4] = [np.nan, np.inf, -np.inf, 1e30]
            return x
        info = np.iinfo(kind.numpy)
        return np.asarray(rng.integers(info.min, info.max, shape, kind.numpy, endpoint=True))

    for kinds in ([DType.U8, DType.U8], [DType.I8, DType.U8], [DType.F32], [DType.I8], [DType.F32, DType.I8]):
        for out, zero in ((DType.U8, 7.0), (DType.I8, -128.0)):
            for bounds in (None, (0.0, 6.0)):
                for shape in ((33,), (3, 5, 40)) if level in ("", *levels()) else ((3, 35),):
                    program = _sum_program(kinds, out, bounds, zero)
                    inputs = [values(kind, shape) for kind in kinds]
                    with np.errstate(invalid="ignore"):
                        _same("elementwise", inputs, {"program": program}, level=level)


def test_sums_become_one_kernel() -> None:
    from edgerun.backends.native.lowering import Lowering
    from edgerun.graph import Graph, Node

    for broken, kernel in ((False, "quantised_sum"), (True, "elementwise")):
        program = _sum_program([DType.U8, DType.I8], DType.U8, (0.0, 6.0), 0.5 if broken else 7.0)
        graph = Graph()
        for name, kind in (("a", DType.U8), ("b", DType.I8), ("y", DType.U8)):
            graph.add_tensor(name, kind, (2, 9))
        graph.inputs, graph.outputs = ["a", "b"], ["y"]
        graph.nodes.append(Node("elementwise", ["a", "b"], ["y"], {"program": program}, "sum"))
        cx = Lowering(graph, "aarch64")
        cx.run()
        assert [n.kernel for n in cx.nodes] == [kernel]


@pytest.mark.parametrize("level", ["", "armv7"])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("out", [DType.U8, DType.I8, DType.F32])
def test_tables_of_codes(kind: Any, out: DType, level: str) -> None:
    """All functions of one 8-bit code, also with a constant for an input, and lengths around whole words."""
    info, f = np.iinfo(kind), DType.F32
    program = (("cast", f, 0), ("mul", f, 1, 2), ("tanh", f, 3), ("const", f, 90.0), ("mul", f, 4, 5))
    program += (("round", f, 6), ("cast", out, 7)) if out is not f else ()
    for length in (1, 7, 8, 300):
        x = np.resize(np.arange(info.min, info.max + 1).astype(kind), (1, length))
        inputs = [x, np.asarray([0.02], np.float32)]
        expected = find("elementwise")(*inputs, program=program)
        (y,) = run_op("elementwise", inputs, {"program": program}, constant=(1,), level=level, in_place=True)
        np.testing.assert_array_equal(y, expected)
