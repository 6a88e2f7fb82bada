"""Quantised operators of com.microsoft against onnxruntime."""

import ml_dtypes
import numpy as np
import pytest

from edgerun.errors import EdgerunError
from tests.ops.single_node import NodeCase, assert_same

f32 = np.float32
MS = "com.microsoft"


def node(op_type, inputs, constant=(), **attributes):
    return NodeCase(op_type, inputs, attributes, opset=1, domain=MS, constant=constant)


def codes(*shape, dtype=np.uint8, seed=0):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def scale(value):
    return np.array(value, f32)


def zero(value, dtype=np.uint8):
    return np.array(value, dtype)


def within_one(case):
    """Runtimes may round a tie, or a value next to one, to either side."""
    (y,), (expected,) = case.edgerun(), case.reference()
    assert y.dtype == expected.dtype and y.shape == expected.shape
    difference = np.abs(y.astype(int) - expected.astype(int))
    assert difference.max() <= 1 and difference.mean() < 0.05


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_binary(op_type, dtype):
    a, b = codes(2, 3, 4, dtype=dtype), codes(3, 1, dtype=dtype, seed=1)
    inputs = {
        "a": a, "as": scale(0.02), "az": zero(10, dtype), "b": b, "bs": scale(0.03), "bz": zero(20, dtype),
        "cs": scale(0.05), "cz": zero(5, dtype),
    }  # fmt: skip
    within_one(node(op_type, inputs))


def unary(op_type, x=None, constant=(), ys=0.01, yz=3, **attributes):
    x = codes(2, 3, 8, 8) if x is None else x
    inputs = {"x": x, "xs": scale(0.03), "xz": zero(100), "ys": scale(ys), "yz": zero(yz)}
    return node(op_type, inputs, constant or ("xs", "xz", "ys", "yz"), **attributes)


@pytest.mark.parametrize("op_type", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_unary(op_type):
    within_one(unary(op_type))


def test_softmax():
    within_one(unary("QLinearSoftmax", ys=1 / 256, yz=0, axis=-1, opset=13))


@pytest.mark.parametrize("channels_last", [0, 1])
def test_global_average_pool(channels_last):
    within_one(unary("QLinearGlobalAveragePool", ys=0.02, yz=90, channels_last=channels_last))


def test_average_pool():
    within_one(unary("QLinearAveragePool", ys=0.02, yz=90, kernel_shape=[2, 2], strides=[2, 2]))


def test_concat():
    inputs = {"ys": scale(0.04), "yz": zero(30)}
    for k in range(2):
        inputs |= {f"x{k}": codes(2, 3 + k, 4, seed=k), f"s{k}": scale(0.02 + k / 50), f"z{k}": zero(8 * k)}
    within_one(node("QLinearConcat", inputs, ("ys", "yz", "s0", "z0", "s1", "z1"), axis=1))


def test_where():
    inputs = {
        "c": codes(4, 5) > 128, "x": codes(4, 5, seed=1), "xs": scale(0.02), "xz": zero(7), "y": codes(5, seed=2),
        "ys": scale(0.03), "yz": zero(9), "zs": scale(0.05), "zz": zero(11),
    }  # fmt: skip
    within_one(node("QLinearWhere", inputs, ("xs", "xz", "ys", "yz", "zs", "zz")))


@pytest.mark.parametrize("real", [False, True], ids=["quantised", "float"])
@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm(real, transposed):
    a, b = codes(4, 6), codes(5, 6, dtype=np.int8, seed=1)
    inputs = {
        "a": a, "as": scale(0.02), "az": zero(120), "b": b if transposed else np.ascontiguousarray(b.T),
        "bs": np.linspace(0.01, 0.02, 5, dtype=f32), "bz": np.zeros(5, np.int8),
        "c": np.arange(-200, 300, 100, dtype=np.int32),
    } | ({} if real else {"ys": scale(0.2), "yz": zero(128)})  # fmt: skip
    constant = tuple(k for k in inputs if k != "a")
    case = node("QGemm", inputs, constant, transB=transposed)
    if real:
        case.check()
    else:
        within_one(case)


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_matmul_integer_to_float(per_column, biased):
    size = (5,) if per_column else ()
    inputs = {
        "a": codes(2, 4, 6), "b": codes(6, 5, dtype=np.int8, seed=1), "as": scale(0.02),
        "bs": np.full(size, 0.01, f32), "az": zero(120), "bz": np.full(size, 3, np.int8),
        "c": np.linspace(-1, 1, 5, dtype=f32) if biased else None,
    }  # fmt: skip
    node("MatMulIntegerToFloat", inputs).check()


@pytest.mark.parametrize("biased", [False, True])
def test_dynamic_quantize_matmul(biased):
    x = np.random.default_rng(3).standard_normal((2, 4, 6)).astype(f32)
    inputs = {
        "a": x, "b": codes(6, 5, dtype=np.int8, seed=1), "bs": scale(0.01), "bz": zero(3, np.int8),
        "c": np.linspace(-1, 1, 5, dtype=f32) if biased else None,
    }  # fmt: skip
    node("DynamicQuantizeMatMul", inputs).check()


def packed_weights(n, k, bits, block, seed=0):
    blocks = -(-k // block)
    return codes(n, blocks, block * bits // 8, seed=seed), np.random.default_rng(1).random((n, blocks)).astype(f32)


def dequantised(packed, scales, zeros, bits, k, block):
    """Weights [N, K], one number at a time."""
    n, blocks = scales.shape
    w = np.zeros((n, blocks * block), f32)
    for i in range(n):
        for j in range(blocks * block):
            byte = packed[i].ravel()[j * bits // 8]
            code = (int(byte) >> (j * bits % 8)) & ((1 << bits) - 1)
            w[i, j] = (code - zeros[i, j // block]) * scales[i, j // block]
    return w[:, :k]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("k", [64, 40])
@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
def test_matmul_with_few_bits(bits, k, zeros):
    n, block = 3, 32
    packed, scales = packed_weights(n, k, bits, block)
    blocks = scales.shape[1]
    a = np.random.default_rng(2).standard_normal((2, 4, k)).astype(f32)
    values = np.full((n, blocks), 1 << (bits - 1), f32)
    given = None
    if zeros == "packed":
        given = codes(n, -(-blocks * bits // 8), seed=5)
        values = np.array(
            [[(int(row[j * bits // 8]) >> (j * bits % 8)) & ((1 << bits) - 1) for j in range(blocks)] for row in given]
        )
    elif zeros == "float":
        given = values = np.random.default_rng(6).random((n, blocks)).astype(f32) * 3
    inputs = {"a": a, "b": packed, "s": scales, "z": given, "g": None, "c": np.arange(n, dtype=f32)}
    case = node("MatMulNBits", inputs, ("b", "s", "z"), K=k, N=n, bits=bits, block_size=block)
    expected = a @ dequantised(packed, scales, values, bits, k, block).T + inputs["c"]
    np.testing.assert_allclose(case.edgerun()[0], expected, rtol=1e-4, atol=1e-3)


def test_matmul_with_few_bits_matches_the_runtime():
    packed, scales = packed_weights(16, 64, 4, 32)
    a = np.random.default_rng(2).standard_normal((4, 64)).astype(f32)
    inputs = {"a": a, "b": packed, "s": scales.ravel(), "z": codes(16, seed=5)}
    node("MatMulNBits", inputs, ("b", "s", "z"), K=64, N=16, bits=4, block_size=32).check(rtol=1e-3, atol=1e-3)


def test_block_numbers_of_the_inner_dimension():
    packed, scales = packed_weights(3, 64, 4, 32)
    order = np.random.default_rng(3).integers(0, 2, 64).astype(np.int32)
    inputs = {"a": np.eye(64, dtype=f32), "b": packed, "s": scales, "z": None, "g": order}
    (y,) = node("MatMulNBits", inputs, K=64, N=3, bits=4, block_size=32).edgerun()
    low, high = packed.reshape(3, -1) & 15, packed.reshape(3, -1) >> 4
    values = np.stack([low, high], -1).reshape(3, 64).astype(f32)
    np.testing.assert_allclose(y.T, (values - 8) * scales[:, order], rtol=1e-5)


def test_packed_weights_of_a_wrong_size_are_refused():
    packed, scales = packed_weights(3, 64, 4, 32)
    with pytest.raises(EdgerunError, match="packed weights"):
        node(
            "MatMulNBits", {"a": np.ones((1, 64), f32), "b": packed, "s": scales}, K=64, N=4, bits=4, block_size=32
        ).graph()


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("packed", [False, True], ids=["int4", "bytes"])
def test_gather_block_quantized(zeros, packed):
    r = np.random.default_rng(7)
    rows, width, block = 6, 32, 16
    values, offsets = r.integers(0, 16, (rows, width)), r.integers(0, 16, (rows, width // block))
    scales = r.random((rows, width // block)).astype(f32)
    if packed:
        data, zero_points = ((v[:, ::2] | v[:, 1::2] << 4).astype(np.uint8) for v in (values, offsets))
    else:
        data, zero_points = values.astype(ml_dtypes.uint4), offsets.astype(ml_dtypes.uint4)
    indices = np.array([[5, 0], [2, 2]])
    inputs = {"d": data, "i": indices, "s": scales, "z": zero_points if zeros else None}
    case = node(
        "GatherBlockQuantized", inputs, ("d", "s", "z"), block_size=block, bits=4, gather_axis=0, quantize_axis=1
    )
    centre = np.repeat(offsets, block, 1) if zeros else (8 if packed else 0)
    expected = ((values - centre) * np.repeat(scales, block, 1)).astype(f32)[indices]
    assert_same(case.edgerun(), [expected])


def test_channels_last_convolution():
    r = np.random.default_rng(8)
    x, w = codes(1, 6, 5, 4), codes(8, 4, 3, 3, dtype=np.int8, seed=1)
    inputs = {
        "x": x, "xs": scale(0.03), "xz": zero(120), "w": w, "ws": r.uniform(0.01, 0.02, 8).astype(f32),
        "wz": np.zeros(8, np.int8), "ys": scale(0.3), "yz": zero(100), "b": np.arange(8, dtype=np.int32),
    }  # fmt: skip
    constant = ("w", "ws", "wz", "b")
    (y,) = node("QLinearConv", inputs, constant, channels_last=1, pads=[1, 1, 1, 1]).edgerun()
    first = inputs | {"x": np.ascontiguousarray(x.transpose(0, 3, 1, 2))}
    (z,) = NodeCase("QLinearConv", first, {"pads": [1, 1, 1, 1]}, opset=10, constant=constant).edgerun()
    np.testing.assert_array_equal(y, z.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("dtype", [np.uint16, np.int16, np.uint8])
def test_quantize_and_dequantize(dtype):
    x = np.random.default_rng(9).standard_normal((3, 4)).astype(f32)
    case = node("QuantizeLinear", {"x": x, "s": scale(0.01), "z": zero(100, dtype)})
    case.check()
    node("DequantizeLinear", {"x": case.edgerun()[0], "s": scale(0.01), "z": zero(100, dtype)}).check()
