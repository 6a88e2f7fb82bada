"""Small graphs on which runtimes have gone wrong, with values computed by hand, on every backend and with and without
the passes."""

from typing import Any

import numpy as np
import onnx.parser
import pytest

from edgerun.onnx_backend import EdgerunBackend

NAN, INF = float("nan"), float("inf")
HEAD = '<ir_version: 9, opset_import: ["": {opset}]>'
WAYS = [("numpy", True), ("numpy", False), ("native", True), ("native", False)]


def line(*values: float, dtype: Any = np.float32) -> np.ndarray:
    return np.array(values, dtype)


def count(*shape: int) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


CASES: dict[str, tuple[int, str, list[np.ndarray], np.ndarray]] = {
    # Before opset 13 the axes from `axis` on are one: with equal logits each of 3 * 4 elements gets 1 / 12.
    "softmax of flattened axes": (
        11,
        "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax <axis = 1> (x) }",
        [np.full((2, 3, 4), 7, np.float32)],
        np.full((2, 3, 4), 1 / 12, np.float32),
    ),
    "two reshapes of nothing keep their zeros": (
        18,
        """g (float[0, 6, 2] x) => (float[a, b, c] y) <int64[3] s = {3, 2, -1}, int64[3] t = {0, 0, 3}> {
            m = Reshape <allowzero = 1> (x, s)
            y = Reshape <allowzero = 1> (m, t)
        }""",
        [np.zeros((0, 6, 2), np.float32)],
        np.zeros((0, 0, 3), np.float32),
    ),
    "a backward slice that runs the wrong way is empty": (
        18,
        """g (float[10] x) => (float[n] y) <int64[1] s = {0}, int64[1] e = {5}, int64[1] a = {0}, int64[1] t = {-1}> {
            y = Slice(x, s, e, a, t)
        }""",
        [count(10)],
        np.zeros(0, np.float32),
    ),
    "index tuples count from the end": (
        18,
        "g (float[3, 4] x) => (float[n] y) <int64[2, 2] i = {-1, -1, 0, -2}> { y = GatherND(x, i) }",
        [count(3, 4)],
        line(11, 2),
    ),
    "scattered tuples count from the end": (
        18,
        """g (float[2, 2] x) => (float[2, 2] y) <int64[2, 2] i = {-1, 0, 0, 1}, float[2] u = {7, 8}> {
            y = ScatterND(x, i, u)
        }""",
        [np.zeros((2, 2), np.float32)],
        np.array([[0, 8], [7, 0]], np.float32),
    ),
    "all additions to one element count": (
        18,
        """g (float[3, 2] x) => (float[3, 2] y)
        <int64[3, 2] i = {0, 1, 0, 1, 2, 1}, float[3, 2] u = {1, 2, 3, 4, 5, 6}> {
            y = ScatterElements <axis = 0, reduction = "add"> (x, i, u)
        }""",
        [np.ones((3, 2), np.float32)],
        np.array([[5, 1], [1, 13], [6, 1]], np.float32),
    ),
    "the least of all updates and the element": (
        18,
        """g (float[2, 2] x) => (float[2, 2] y) <int64[3, 2] i = {0, 1, 0, 1, 1, 1}, float[3] u = {3, -2, 9}> {
            y = ScatterND <reduction = "min"> (x, i, u)
        }""",
        [np.full((2, 2), 5, np.float32)],
        np.array([[5, -2], [5, 5]], np.float32),
    ),
    "the first of equal elements come first": (
        18,
        "g (float[4] x) => (int64[n] y) <int64[1] k = {2}> { v, y = TopK(x, k) }",
        [line(1, 3, 3, 3)],
        line(1, 2, dtype=np.int64),
    ),
    "crossed bounds give the upper one": (
        18,
        "g (float[4] x) => (float[4] y) <float low = {2}, float high = {1}> { y = Clip(x, low, high) }",
        [line(-2, 1.5, 6, NAN)],
        line(1, 1, 1, NAN),
    ),
    "a lower bound below zero does not undo relu": (
        11,
        "g (float[5] x) => (float[5] y) <float low = {-1}> { r = Relu(x)  y = Clip(r, low) }",
        [line(-3, -0.5, 0, 2, NAN)],
        line(0, 0, 0, 2, NAN),
    ),
    "relu after relu6": (
        13,
        "g (float[5] x) => (float[5] y) <float a = {0}, float b = {6}> { c = Clip(x, a, b)  y = Relu(c) }",
        [line(-3, 0.5, 7, INF, NAN)],
        line(0, 0.5, 6, 6, NAN),
    ),
    "the maximum of anything and nan": (
        13,
        "g (float[2, 4] x) => (float[2, 1] y) { y = ReduceMax <axes = [1]> (x) }",
        [np.array([[NAN, NAN, NAN, 42], [1, 2, NAN, 3]], np.float32)],
        np.array([[NAN], [NAN]], np.float32),
    ),
    "additions are not cancelled": (
        18,
        "g (float[3] x) => (float[3] y) <float c = {1}> { t = Add(x, c)  y = Sub(x, t) }",
        [line(3, 1e10, INF)],
        line(-1, 0, NAN),
    ),
    "negative pads crop before positive ones grow": (
        13,
        "g (float[3, 3] x) => (float[a, b] y) <int64[4] p = {-1, 1, 0, -2}> { y = Pad(x, p) }",
        [count(3, 3)],
        np.array([[0, 3], [0, 6]], np.float32),
    ),
    "wrapping repeats what cropping left": (
        19,
        """g (float[2, 4] x) => (float[a, b] y) <int64[4] p = {1, -1, 0, 2}> {
            y = Pad <mode = "wrap"> (x, p)
        }""",
        [count(2, 4)],
        np.array([[5, 6, 7, 5, 6], [1, 2, 3, 1, 2], [5, 6, 7, 5, 6]], np.float32),
    ),
    "the length of a vector of bytes saturates": (
        13,
        "g (int8[2, 2] x) => (int8[2] y) { y = ReduceL2 <axes = [1], keepdims = 0> (x) }",
        [np.array([[100, 100], [-3, 4]], np.int8)],
        line(127, 5, dtype=np.int8),
    ),
    "the logarithm of nothing, in integers": (
        13,
        "g (int32[2, 2] x) => (int32[2] y) { y = ReduceLogSum <axes = [1], keepdims = 0> (x) }",
        [np.array([[1, -1], [10, 10]], np.int32)],
        line(-(2**31), 2, dtype=np.int32),
    ),
    "the mean of large numbers without sign": (
        13,
        "g (uint64[2, 2] x) => (uint64[2] y) { y = ReduceMean <axes = [1], keepdims = 0> (x) }",
        [np.array([[2**63, 2], [7, 2]], np.uint64)],
        line(2**62 + 1, 4, dtype=np.uint64),
    ),
    "the sum of nothing is zero": (
        13,
        "g (float[0] x) => (float[1] y) { y = ReduceSum <keepdims = 1> (x) }",
        [np.zeros(0, np.float32)],
        line(0),
    ),
    "an empty part of a concatenation": (
        13,
        "g (float[0] a, float[2] b) => (float[2] y) { y = Concat <axis = 0> (a, b) }",
        [np.zeros(0, np.float32), line(1, 2)],
        line(1, 2),
    ),
    "floats saturate": (
        18,
        "g (float[7] x) => (int8[7] y) { y = Cast <to = 3> (x) }",
        [line(200, -200, 1e10, NAN, INF, 50.9, -50.9)],
        line(127, -128, 127, 0, 127, 50, -50, dtype=np.int8),
    ),
    "one of equal maxima": (
        13,
        "g (float[2, 4] x) => (float[2, 4] y) { y = Hardmax <axis = -1> (x) }",
        [np.array([[1, 3, 3, 2], [0, 0, 0, 0]], np.float32)],
        np.array([[0, 1, 0, 0], [1, 0, 0, 0]], np.float32),
    ),
    "the last of equal maxima": (
        13,
        "g (float[4] x) => (int64 y) { y = ArgMax <axis = 0, keepdims = 0, select_last_index = 1> (x) }",
        [line(1, 3, 3, 2)],
        np.array(2, np.int64),
    ),
    "halves round to even, remainders take the sign of the dividend": (
        13,
        "g (float[4] x) => (float[4] y) <float d = {3}> { r = Round(x)  y = Mod <fmod = 1> (r, d) }",
        [line(0.5, 1.5, -4.5, 7.5)],
        line(0, 2, -1, 2),
    ),
    "a product with nothing": (
        13,
        "g (float[0, 3] x) => (float[0, 3] y) <float[1, 3] c = {1, 1, 1}> { y = Mul(x, c) }",
        [np.zeros((0, 3), np.float32)],
        np.zeros((0, 3), np.float32),
    ),
}


@pytest.mark.parametrize(("backend", "optimize"), WAYS)
@pytest.mark.parametrize("name", CASES)
def test_graph(name: str, backend: str, optimize: bool):
    opset, text, inputs, expected = CASES[name]
    model = onnx.parser.parse_model(HEAD.format(opset=opset) + text)
    (y,) = EdgerunBackend.prepare(model, backend=backend, optimize=optimize).run(inputs)
    assert y.dtype == expected.dtype
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-6)


@pytest.mark.parametrize(("backend", "optimize"), WAYS)
def test_branches_see_the_tensors_around_them(backend: str, optimize: bool):
    text = """g (float[2] x) => (float[2] y) <float[2] c = {10, 20}, float zero = {0}> {
        s = ReduceSum <keepdims = 0> (x)
        k = Greater(s, zero)
        y = If (k) <
            then_branch = t () => (float[2] a) { a = Add(x, c) },
            else_branch = e () => (float[2] b) { b = Neg(x) }
        >
    }"""
    prepared = EdgerunBackend.prepare(
        onnx.parser.parse_model(HEAD.format(opset=18) + text), backend=backend, optimize=optimize
    )
    for x, expected in [(line(1, 2), [11, 22]), (line(-1, -2), [1, 2])]:
        assert prepared.run([x])[0].tolist() == expected
