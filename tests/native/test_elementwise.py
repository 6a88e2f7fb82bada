"""The native elementwise machine against NumPy in double precision, on every ISA level of this CPU."""

from __future__ import annotations

import math
import re
from typing import Any

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

from edgerun.backends.native.backend import compile_graph
from edgerun.backends.native.ops.elementwise import OPS
from edgerun.dtypes import DType, from_numpy
from edgerun.ops.elementwise import SCALARS, Program, single
from edgerun_converters.onnx.importer import import_model
from tests.native.kernel_harness import CSRC, levels, run_op

F32, F64, I32, BOOL = DType.F32, DType.F64, DType.I32, DType.BOOL
_erf = np.vectorize(math.erf, otypes=[np.float64])
FLOAT_FUNCTIONS: dict[str, Any] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "reciprocal": lambda x: 1 / x,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _erf,
    "sigmoid": lambda x: np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))),
    "softplus": lambda x: np.logaddexp(0, x),
    "gelu": lambda x: np.where(np.isneginf(x), 0, x / 2 * (1 + _erf(x / np.sqrt(2)))),
    "gelu_tanh": lambda x: np.where(
        np.isneginf(x), 0, x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
}
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "mod": np.mod,
    "fmod": np.fmod,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
ABSOLUTE = {"sin", "cos", "gelu", "gelu_tanh", "erf", "tanh", "sigmoid", "softplus"}
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def test_opcodes_match_the_header() -> None:
    text = (CSRC / "kernels" / "elementwise_ops.h").read_text().split("enum ew_op")[0]
    assert tuple(re.findall(r"EW_OP\((\w+), \d", text)) == OPS


def _samples(rng: np.random.Generator, function: str) -> np.ndarray:
    x = np.concatenate([rng.normal(0, 3, 2001), rng.uniform(-100, 100, 500), rng.normal(0, 1e-3, 300)])
    special = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 88.5, -88.5, 89, -104, 1e-40, 3e38, 0.5, 1.5, 2.5, -2.5, 5000]
    return np.concatenate([x, special]).astype(np.float32)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("function", FLOAT_FUNCTIONS)
def test_float_functions(function: str, level: str) -> None:
    x = _samples(np.random.default_rng(1), function)
    expected = FLOAT_FUNCTIONS[function](x.astype(np.float64))
    (y,) = run_op("elementwise", [x], {"program": single(function, F32)}, level=level)
    with np.errstate(over="ignore"):
        expected = expected.astype(np.float32)
    atol = 3e-7 if function in ABSOLUTE else 1e-44
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=atol)
    (z,) = run_op("elementwise", [x.astype(np.float64)], {"program": single(function, F64)}, level=level)
    np.testing.assert_allclose(z, FLOAT_FUNCTIONS[function](x.astype(np.float64)), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("function", BINARY)
def test_binary_floats(function: str, level: str) -> None:
    rng = np.random.default_rng(2)
    special = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2.5, -3], np.float32)
    a = np.concatenate([rng.normal(0, 3, 700).astype(np.float32), np.repeat(special, 9)])
    b = np.concatenate([rng.normal(0, 3, 700).astype(np.float32), np.tile(special, 9)])
    dtype = BOOL if SCALARS[function].result == "bool" else F32
    (y,) = run_op("elementwise", [a, b], {"program": ((function, dtype, 0, 1),)}, level=level)
    np.testing.assert_allclose(y, BINARY[function](a, b), rtol=1e-6)
    if dtype is F32:
        (y,) = run_op("elementwise", [a.astype("d"), b.astype("d")], {"program": ((function, F64, 0, 1),)}, level=level)
        np.testing.assert_allclose(y, BINARY[function](a.astype("d"), b.astype("d")), rtol=1e-12)


INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("level", levels())
def test_integers_wrap(dtype: Any, level: str) -> None:
    rng, info, code = np.random.default_rng(3), np.iinfo(dtype), from_numpy(dtype)
    edge = [info.min, info.max, 0, 1, info.max - 1, info.min + 1, 2, 3, 7]
    a = np.concatenate([rng.integers(info.min, info.max, 500, dtype, endpoint=True), np.repeat(edge, 9).astype(dtype)])
    b = np.concatenate([rng.integers(info.min, info.max, 500, dtype, endpoint=True), np.tile(edge, 9).astype(dtype)])

    def wrapped(values: list[int]) -> np.ndarray:
        return np.array([(v - info.min) % (1 << info.bits) + info.min for v in values], dtype=object).astype(dtype)

    def truncated(x: int, y: int) -> int:
        q = abs(x) // abs(y) if y else 0
        return q if (x < 0) == (y < 0) else -q

    shift = (np.arange(a.size) % (info.bits + 3)).astype(dtype)
    cases: dict[str, Any] = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": truncated,
        "mod": lambda x, y: x % y if y else 0,
        "fmod": lambda x, y: x - truncated(x, y) * y if y else 0,
        "min": min,
        "max": max,
        "bit_and": lambda x, y: x & y,
        "bit_or": lambda x, y: x | y,
        "bit_xor": lambda x, y: x ^ y,
        "shl": lambda x, y: x << y if y < info.bits else 0,
        "shr": lambda x, y: x >> min(y, info.bits),
        "pow": lambda x, y: pow(x, y),
    }
    for name, function in cases.items():
        second = shift if name in ("shl", "shr") else np.abs(b % 5).astype(dtype) if name == "pow" else b
        (y,) = run_op("elementwise", [a, second], {"program": ((name, code, 0, 1),)}, level=level)
        pairs = zip(a.tolist(), second.tolist(), strict=True)
        np.testing.assert_array_equal(y, wrapped([function(p, q) for p, q in pairs]), err_msg=name)
    for name in ("eq", "lt", "ge"):
        (y,) = run_op("elementwise", [a, b], {"program": ((name, BOOL, 0, 1),)}, level=level)
        np.testing.assert_array_equal(y, BINARY[name](a, b))
    for name, unary in {
        "neg": lambda x: -x,
        "abs": abs,
        "bit_not": lambda x: ~x,
        "sign": lambda x: (x > 0) - (x < 0),
    }.items():
        (y,) = run_op("elementwise", [a], {"program": ((name, code, 0),)}, level=level)
        np.testing.assert_array_equal(y, wrapped([unary(x) for x in a.tolist()]), err_msg=name)


@pytest.mark.parametrize("target", INTEGERS)
def test_float_to_int_saturates(target: Any) -> None:
    info = np.iinfo(target)
    x = np.array(
        [0, -0.9, 1.9, -1.9, 1e30, -1e30, np.nan, np.inf, -np.inf, 127.5, 128, 255.9, 256, -129, 2**31, 2**63] * 3
    )
    expected = [0 if math.isnan(v) else info.max if v >= info.max else info.min if v <= info.min else int(v) for v in x]
    for source in (np.float32, np.float64):
        (y,) = run_op("elementwise", [x.astype(source)], {"program": (("cast", from_numpy(target), 0),)})
        assert y.tolist() == expected


def test_casts_between_all_types() -> None:
    kinds = [*INTEGERS, np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.bool_]
    for source in kinds:
        x = np.arange(50).astype(source)
        for target in kinds:
            (y,) = run_op("elementwise", [x], {"program": (("cast", from_numpy(target), 0),)})
            np.testing.assert_array_equal(
                y.astype(np.float64), x.astype(target).astype(np.float64), f"{source} {target}"
            )
    x = np.array([300, -1, 70000, 5], np.int64)
    (y,) = run_op("elementwise", [x], {"program": (("cast", DType.U8, 0),)})
    assert y.tolist() == [44, 255, 112, 5]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_types_round_each_result(dtype: Any) -> None:
    bits = np.arange(65536, dtype=np.uint16).view(dtype)
    (y,) = run_op("elementwise", [bits], {"program": (("cast", F32, 0),)})
    np.testing.assert_array_equal(y, bits.astype(np.float32))
    x = np.concatenate([y, y * 1.0003, y * np.float32(0.99951), y + np.float32(2**-25)])
    (z,) = run_op("elementwise", [x], {"program": (("cast", from_numpy(dtype), 0),)})
    expected = x.astype(dtype)
    both_nan = np.isnan(z.astype("f")) & np.isnan(expected.astype("f"))
    assert ((z.view(np.uint16) == expected.view(np.uint16)) | both_nan).all()
    code = from_numpy(dtype)
    a = np.random.default_rng(0).normal(0, 2, 999).astype(dtype)
    (w,) = run_op("elementwise", [a], {"program": (("mul", code, 0, 0), ("add", code, 1, 0))})
    product = (a.astype("f") * a.astype("f")).astype(dtype)
    np.testing.assert_array_equal(w.astype("f"), (product.astype("f") + a.astype("f")).astype(dtype).astype("f"))


SHAPES = [
    ((), ()),
    ((7,), ()),
    ((3, 1), (1, 5)),
    ((2, 3, 40, 33), (33,)),
    ((2, 3, 40, 33), (3, 1, 1)),
    ((4, 1, 3), (4, 700, 3)),
    ((5000, 3), (3,)),
    ((5000, 3), (5000, 1)),
    ((1, 1), (3, 4)),
    ((0, 4), (4,)),
    ((6, 2000), (6, 1)),
    ((6, 2000), (2000,)),
    ((2, 1, 5, 1), (3, 1, 7)),
    ((1,), (2, 3, 1)),
    ((31, 1, 2), (31, 9, 1)),
]


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_broadcasting(shapes: tuple[tuple[int, ...], tuple[int, ...]], level: str) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.normal(size=s).astype(np.float32) for s in shapes)
    program: Program = (("mul", F32, 0, 1), ("const", F32, 0.5), ("add", F32, 2, 3), ("sub", F32, 4, 0))
    for symbolic in (False, True):
        (y,) = run_op(
            "elementwise",
            [a, b],
            {"program": program},
            level=level,
            symbolic=symbolic and 1 not in (*a.shape, *b.shape),
        )
        np.testing.assert_allclose(y, a * b + np.float32(0.5) - a, rtol=1e-5, atol=1e-6)
    i, j = (rng.integers(-100, 100, s).astype(np.int8) for s in shapes)
    (y,) = run_op("elementwise", [i, j], {"program": (("add", DType.I8, 0, 1),)}, level=level)
    np.testing.assert_array_equal(y, (i.astype(int) + j).astype(np.int8))
    mixed: Program = (
        ("gt", BOOL, 0, 1),
        ("cast", F64, 0),
        ("cast", F64, 1),
        ("where", F64, 2, 3, 4),
        ("cast", DType.U8, 5),
    )
    (y,) = run_op("elementwise", [np.abs(a) * 50, np.abs(b) * 50], {"program": mixed}, level=level)
    np.testing.assert_array_equal(y, np.maximum(np.abs(a) * 50, np.abs(b) * 50).astype(np.uint8))


def test_logic_and_constants() -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    program: Program = (("and", BOOL, 0, 1), ("xor", BOOL, 2, 0), ("not", BOOL, 3), ("or", BOOL, 4, 1))
    (y,) = run_op("elementwise", [a, b], {"program": program})
    np.testing.assert_array_equal(y, ~((a & b) ^ a) | b)
    (y,) = run_op(
        "elementwise",
        [np.array([1, 2], np.float32), np.array([3], np.float32)],
        {"program": (("pow", F32, 0, 1),)},
        constant=[1],
    )
    np.testing.assert_array_equal(y, [1, 8])
    (y,) = run_op("elementwise", [np.zeros(5, np.int64)], {"program": (("const", DType.I64, -(1 << 40)),)})
    assert y.shape == (5,) and (y == -(1 << 40)).all()


def test_a_long_program_reuses_registers() -> None:
    program: list = []
    for i in range(300):
        program.append(("add" if i % 2 else "sub", I32, i, 0))
    x = np.arange(5000, dtype=np.int32)
    (y,) = run_op("elementwise", [x], {"program": tuple(program)})
    value = x
    for i in range(300):
        value = value + x if i % 2 else value - x
    np.testing.assert_array_equal(y, value)


@pytest.mark.parametrize("step", [2, 3])
def test_rows_of_one_element_that_lie_apart(step: int) -> None:
    """One column of a tensor, read in place: all its dims collapse to one whose elements are not neighbours."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["": 18]> g (float[9, 13, {step}] x) => (float[9, 13, 1] y)
        <int64[1] start = {{0}}, int64[1] end = {{1}}, int64[1] axis = {{2}}> {{
            column = Slice(x, start, end, axis)
            y = Tanh(column)
        }}"""
    )
    x = np.random.default_rng(0).normal(size=(9, 13, step)).astype(np.float32)
    got = compile_graph(import_model(model)).run({"x": x})["y"]
    np.testing.assert_allclose(got, np.tanh(x[..., :1]), rtol=1e-5, atol=1e-6)
