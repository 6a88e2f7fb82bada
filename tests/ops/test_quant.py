"""Quantised operators against onnxruntime, hand values and exact integer arithmetic."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.dtypes import DType
from edgerun.errors import EdgerunError
from tests.ops.single_node import NodeCase, assert_same

f32 = np.float32
RNG = np.random.default_rng(0)


def quantize(x, scale, zero=None, *, opset=21, **attributes):
    return NodeCase("QuantizeLinear", {"x": x, "s": scale, "z": zero}, attributes, opset=opset)


def dequantize(x, scale, zero=None, *, opset=21, **attributes):
    return NodeCase("DequantizeLinear", {"x": x, "s": scale, "z": zero}, attributes, opset=opset)


def test_ties_go_to_even_and_range_ends_are_reached():
    x = np.array([-200, -128, 0.5, 1.5, 2.5, -2.5, 200], f32)
    (y,) = quantize(x, f32(1) * np.ones(()), np.int8(0) * np.ones((), np.int8), opset=13).edgerun()
    np.testing.assert_array_equal(y, np.array([-128, -128, 0, 2, 2, -2, 127], np.int8))


def test_nan_and_infinity():
    x = np.array([np.nan, np.inf, -np.inf], f32)
    (y,) = quantize(x, np.array(0.5, f32), np.array(7, np.uint8)).edgerun()
    np.testing.assert_array_equal(y, np.array([7, 255, 0], np.uint8))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_quantize_and_dequantize_match_the_reference(dtype, axis):
    x = (RNG.standard_normal((3, 4, 5)) * 300).astype(f32)
    size = 1 if axis is None else x.shape[axis]
    scale = (RNG.random(size) + 0.1).astype(f32)
    zero = RNG.integers(0, 100, size).astype(dtype)
    if axis is None:
        scale, zero = scale.reshape(()), zero.reshape(())
    attributes = {} if axis is None else {"axis": axis}
    node = quantize(x, scale, zero, **attributes)
    node.check()
    dequantize(node.edgerun()[0], scale, zero, **attributes).check()


def test_default_type_is_u8():
    x = np.array([[1, 2], [300, -4]], f32)
    quantize(x, np.array(1.0, f32), opset=10).check()


def test_int32_dequantises_exactly():
    x = np.array([2**30 + 1, -(2**30), 7], np.int32)
    dequantize(x, np.array(0.5, f32), opset=13).check()
    zero = np.array(2**30, np.int32)
    (y,) = dequantize(x, np.array(1.0, f32), zero, opset=13).edgerun()
    np.testing.assert_array_equal(y, (x.astype(np.int64) - 2**30).astype(f32))


def test_one_scale_in_a_vector_is_per_tensor():
    x = np.array([2, 4, 6], np.int32)
    (y,) = dequantize(x, np.array([0.5], f32), np.array([0], np.int32), opset=13).edgerun()
    np.testing.assert_array_equal(y, np.array([1, 2, 3], f32))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("block", [2, 3])
def test_blocked_scales(axis, block):
    x = (RNG.standard_normal((6, 6)) * 50).astype(f32)
    shape = [6, 6]
    shape[axis] = -(-6 // block)
    scale = (RNG.random(shape) + 0.5).astype(f32)
    zero = RNG.integers(-9, 9, shape).astype(np.int8)
    node = quantize(x, scale, zero, axis=axis, block_size=block)
    (q,) = node.edgerun()
    spread_scale, spread_zero = np.repeat(scale, block, axis), np.repeat(zero, block, axis)
    expected = np.clip(np.rint(x / spread_scale) + spread_zero, -128, 127).astype(np.int8)
    np.testing.assert_array_equal(q, expected)
    (y,) = dequantize(q, scale, zero, axis=axis, block_size=block).edgerun()
    np.testing.assert_allclose(y, (q.astype(f32) - spread_zero) * spread_scale, rtol=1e-6)


def test_last_block_may_be_short():
    x = np.array([[10, 20, 30, 40, 50]], np.int8)
    scale = np.array([[1, 2, 3]], f32)
    (y,) = dequantize(x, scale, axis=1, block_size=2).edgerun()
    np.testing.assert_array_equal(y, np.array([[10, 20, 60, 80, 150]], f32))


@pytest.mark.parametrize(("name", "low", "high"), [("int4", -8, 7), ("uint4", 0, 15), ("int2", -2, 1), ("uint2", 0, 3)])
def test_codes_below_a_byte(name, low, high):
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = np.array([-100, -2, -1, 0, 1, 2, 100], f32)
    (q,) = quantize(x, np.array(1.0, f32), np.zeros((), dtype), opset=25).edgerun()
    assert q.dtype == dtype
    np.testing.assert_array_equal(q.astype(int), np.clip(x, low, high).astype(int))
    (y,) = dequantize(q, np.array(2.0, f32), np.zeros((), dtype), opset=25).edgerun()
    np.testing.assert_array_equal(y, np.clip(x, low, high) * 2)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_eight_bit_floats_saturate_or_overflow(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    largest = float(ml_dtypes.finfo(dtype).max)
    x = np.array([0, 1, -3.3, 2 * largest, -2 * largest, np.nan, np.inf], f32)
    zero = np.zeros((), dtype)
    (y,) = quantize(x, np.array(1.0, f32), zero).edgerun()
    np.testing.assert_array_equal(y[3:5].astype(f32), [largest, -largest])
    np.testing.assert_array_equal(y[:3].astype(f32), x[:3].astype(dtype).astype(f32))
    assert np.isnan(y[5].astype(f32)) and float(y[6]) == largest
    (y,) = quantize(x, np.array(1.0, f32), zero, saturate=0).edgerun()
    assert not np.isfinite(y[3].astype(f32))


def test_output_type_attribute():
    (y,) = quantize(np.array([5.0], f32), np.array(2.0, f32), output_dtype=DType.I16.onnx).edgerun()
    assert y.dtype == np.int16 and y[0] == 2
    x = np.array([4], np.uint8)
    (y,) = dequantize(x, np.array(0.25, f32), output_dtype=DType.F16.onnx, opset=23).edgerun()
    assert y.dtype == np.float16 and y[0] == 1


def test_contradicting_output_type_is_refused():
    with pytest.raises(EdgerunError, match="output_dtype"):
        quantize(np.ones(2, f32), np.array(1.0, f32), np.zeros((), np.int8), output_dtype=DType.U8.onnx).graph()


def test_power_of_two_scales():
    scale = np.array([[2.0], [0.5]]).astype(ml_dtypes.float8_e8m0fnu)
    x = np.array([[8, 4, 2], [1, 1, 1]], f32)
    attributes = {"axis": 1, "block_size": 3, "output_dtype": DType.I8.onnx, "precision": DType.F32.onnx}
    (q,) = quantize(x, scale, opset=25, **attributes).edgerun()
    np.testing.assert_array_equal(q, np.array([[4, 2, 1], [2, 2, 2]], np.int8))
    (y,) = dequantize(q, scale, axis=1, block_size=3, output_dtype=DType.F32.onnx, opset=25).edgerun()
    np.testing.assert_array_equal(y, x)


def test_wrong_number_of_scales_is_refused():
    with pytest.raises(EdgerunError, match="scales"):
        quantize(np.ones((2, 3), f32), np.ones(4, f32), np.zeros(4, np.uint8)).graph()


@pytest.mark.parametrize("low", [-3.0, 0.5, -2.0])
def test_dynamic_quantisation(low):
    high = -0.5 if low == -2.0 else 4.0
    x = RNG.uniform(low, high, (3, 7)).astype(f32)
    NodeCase("DynamicQuantizeLinear", {"x": x}, outputs=3, opset=11).check(rtol=1e-6, atol=0)


def test_dynamic_quantisation_of_zeros():
    y, scale, zero = NodeCase("DynamicQuantizeLinear", {"x": np.zeros((2, 2), f32)}, outputs=3, opset=11).edgerun()
    assert scale == 1 and zero == 0 and not y.any()


def matmul_integer(a, b, a_zero=None, b_zero=None):
    return NodeCase("MatMulInteger", {"a": a, "b": b, "az": a_zero, "bz": b_zero}, opset=10)


def test_integer_matmul_does_not_saturate():
    a = np.array([[210, 198, 234]], np.uint8)
    b = np.array([[-81], [-80], [127]], np.int8)
    (y,) = matmul_integer(a, b).edgerun()
    np.testing.assert_array_equal(y, a.astype(np.int32) @ b.astype(np.int32))


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 5), st.integers(0, 400), st.integers(1, 5), st.sampled_from(["u8u8", "u8i8", "i8i8"]), st.integers()
)
def test_integer_matmul_is_exact(m, k, n, types, seed):
    r = np.random.default_rng(abs(seed))
    pick = {"u8": (np.uint8, 0, 256), "i8": (np.int8, -128, 128)}
    (ta, la, ha), (tb, lb, hb) = pick[types[:2]], pick[types[2:]]
    a, b = r.integers(la, ha, (m, k)).astype(ta), r.integers(lb, hb, (k, n)).astype(tb)
    az, bz = r.integers(la, ha, m).astype(ta), r.integers(lb, hb, n).astype(tb)
    expected = (a.astype(np.int64) - az[:, None]) @ (b.astype(np.int64) - bz)
    (y,) = matmul_integer(a, b, az, bz).edgerun()
    np.testing.assert_array_equal(y, expected.astype(np.int32))


def test_batched_integer_matmul():
    a = RNG.integers(0, 255, (2, 3, 4)).astype(np.uint8)
    b = RNG.integers(-128, 127, (2, 4, 5)).astype(np.int8)
    matmul_integer(a, b, np.array(3, np.uint8), np.array(-4, np.int8)).check()


def conv_inputs(kernel=(3, 3), channels=4, filters=6, group=1, size=(7, 6), seed=1):
    r = np.random.default_rng(seed)
    x = r.integers(0, 256, (2, channels, *size)).astype(np.uint8)
    w = r.integers(-128, 128, (filters, channels // group, *kernel)).astype(np.int8)
    return x, w


def exact_conv(x, w, strides, pads, dilations, group):
    """Direct sum over every product, in Python integers. x is centred, [N, C, H, W]."""
    x = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    filters, per_group, kh, kw = w.shape
    oh = (x.shape[2] - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    ow = (x.shape[3] - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    y = np.zeros((x.shape[0], filters, oh, ow), np.int64)
    for o, i, j in itertools.product(range(filters), range(oh), range(ow)):
        first = o // (filters // group) * per_group
        rows = slice(i * strides[0], i * strides[0] + (kh - 1) * dilations[0] + 1, dilations[0])
        columns = slice(j * strides[1], j * strides[1] + (kw - 1) * dilations[1] + 1, dilations[1])
        y[:, o, i, j] = (x[:, first : first + per_group, rows, columns] * w[o]).sum((1, 2, 3))
    return y


@pytest.mark.parametrize(("group", "filters"), [(1, 6), (2, 6), (4, 4), (4, 8)])
@pytest.mark.parametrize(
    ("strides", "pads", "dilations"), [((1, 1), (0, 0, 0, 0), (1, 1)), ((2, 1), (1, 2, 0, 1), (1, 2))]
)
def test_integer_convolution_is_exact(group, filters, strides, pads, dilations):
    x, w = conv_inputs(group=group, filters=filters)
    w_zero = RNG.integers(-9, 9, filters).astype(np.int8)
    node = NodeCase(
        "ConvInteger",
        {"x": x, "w": w, "xz": np.array(128, np.uint8), "wz": w_zero},
        {"strides": strides, "pads": pads, "dilations": dilations, "group": group},
        opset=10,
    )
    (y,) = node.edgerun()
    centred = w.astype(np.int64) - w_zero[:, None, None, None]
    expected = exact_conv(x.astype(np.int64) - 128, centred, strides, pads, dilations, group)
    np.testing.assert_array_equal(y, expected.astype(np.int32))


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_automatic_padding(auto_pad):
    x, w = conv_inputs()
    NodeCase("ConvInteger", {"x": x, "w": w}, {"auto_pad": auto_pad, "strides": [2, 2]}, opset=10).check()


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_quantised_convolution(group, per_channel):
    x, w = conv_inputs(group=group, filters=8)
    shape = (8,) if per_channel else ()
    w_scale, w_zero = np.asarray(RNG.uniform(0.01, 0.02, shape), f32), np.zeros(shape, np.int8)
    inputs = {
        "x": x, "xs": np.array(0.03, f32), "xz": np.array(120, np.uint8), "w": w, "ws": w_scale, "wz": w_zero,
        "ys": np.array(0.35, f32), "yz": np.array(100, np.uint8),
        "b": RNG.integers(-3000, 3000, 8).astype(np.int32),
    }  # fmt: skip
    attributes = {"group": group, "pads": [1, 1, 1, 1], "strides": [2, 1]}
    NodeCase("QLinearConv", inputs, attributes, opset=10, constant=("w", "ws", "wz", "b")).check()


def test_quantised_matmul():
    a = RNG.integers(0, 256, (2, 4, 9)).astype(np.uint8)
    b = RNG.integers(-128, 128, (9, 5)).astype(np.int8)
    inputs: dict[str, np.ndarray] = {
        "a": a, "as": np.array(0.02, f32), "az": np.array(110, np.uint8), "b": b,
        "bs": RNG.uniform(0.01, 0.03, 5).astype(f32), "bz": np.zeros(5, np.int8),
        "ys": np.array(0.1, f32), "yz": np.array(120, np.uint8),
    }  # fmt: skip
    node = NodeCase("QLinearMatMul", inputs, opset=10, constant=("bs", "bz", "b"))
    real = ((a.astype(int) - 110) * 0.02) @ (b.astype(int) * inputs["bs"].astype(float))
    (y,) = node.edgerun()
    assert np.abs(y.astype(int) - np.clip(np.rint(real / 0.1) + 120, 0, 255)).max() <= 1
    assert_same([y], node.reference())


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 6),
    st.sampled_from([np.uint8, np.int8, np.uint16, np.int16]),
    st.integers(0, 10**6),
)
def test_round_trip_is_within_half_a_step(rows, columns, dtype, seed):
    r = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    scale = r.uniform(1e-3, 2, columns).astype(f32)
    zero = r.integers(info.min, info.max, columns, endpoint=True).astype(dtype)
    inside = r.uniform(info.min, info.max, (rows, columns)) - zero.astype(float)
    x = (inside * scale).astype(f32)
    (q,) = quantize(x, scale, zero, axis=1).edgerun()
    (y,) = dequantize(q, scale, zero, axis=1).edgerun()
    assert (np.abs(x - y) <= scale * (0.5 + 1e-4 * np.abs(inside))).all()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 2), st.sampled_from([1, 2, 4]), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2),
    st.integers(1, 2), st.integers(0, 10**6),
)  # fmt: skip
def test_any_integer_convolution_is_exact(batch, group, kernel, stride, dilation, pad, seed):
    r = np.random.default_rng(seed)
    x = r.integers(0, 256, (batch, 4, 7, 6)).astype(np.uint8)
    w = r.integers(-128, 128, (8, 4 // group, kernel, kernel)).astype(np.int8)
    geometry = {"strides": (stride, 1), "pads": (pad, 0, 1, pad), "dilations": (dilation, dilation), "group": group}
    zero = np.array(r.integers(0, 256), np.uint8)
    (y,) = NodeCase("ConvInteger", {"x": x, "w": w, "xz": zero}, geometry, opset=10).edgerun()
    expected = exact_conv(x.astype(np.int64) - int(zero), w.astype(np.int64), *geometry.values())
    np.testing.assert_array_equal(y, expected.astype(np.int32))


def test_long_sums_stay_exact():
    a, b = np.full((1, 70000), 255, np.uint8), np.full((70000, 1), 255, np.uint8)
    (y,) = matmul_integer(a, b).edgerun()
    assert y[0, 0] == np.int64(70000 * 255 * 255).astype(np.int32)
