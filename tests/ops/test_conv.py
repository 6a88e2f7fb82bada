"""Convolutions against onnxruntime, and against sums written out where it has no kernel."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.backends.numpy.conv import conv, conv_transpose, deform_conv
from edgerun.dims import symbol
from edgerun.dtypes import DType
from edgerun.errors import EdgerunError, ShapeError
from edgerun.ops.registry import TensorType, infer, spec
from tests.ops.shapes import assert_symbolic_shapes
from tests.ops.single_node import NodeCase, assert_same


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@st.composite
def convolutions(draw, transposed=False):
    """(input shape, weight shape, attributes) of a legal node with one to three spatial axes."""
    n = draw(st.integers(1, 3))
    group = draw(st.integers(1, 3))
    inputs, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    kernel = [draw(st.integers(1, 3)) for _ in range(n)]
    strides = [draw(st.integers(1, 3)) for _ in range(n)]
    dilations = [draw(st.integers(1, 2)) for _ in range(n)]
    sizes = [draw(st.integers((k - 1) * d + 1, 9)) for k, d in zip(kernel, dilations, strict=True)]
    attributes = {"strides": strides, "dilations": dilations, "group": group}
    mode = draw(st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if mode == "NOTSET":
        limit = [min(k - 1, 2) for k in kernel]
        attributes["pads"] = [draw(st.integers(0, top)) for top in (*limit, *limit)]
    else:
        attributes["auto_pad"] = mode
    if mode.startswith("SAME"):
        # onnxruntime refuses SAME padding of dilated kernels.
        attributes["dilations"] = [1] * n
    batch = draw(st.integers(1, 2))
    weights = (inputs * group, outputs, *kernel) if transposed else (outputs * group, inputs, *kernel)
    return (batch, inputs * group, *sizes), weights, attributes


@given(convolutions(), st.booleans(), st.booleans())
@settings(max_examples=120, deadline=None)
def test_conv_matches_onnxruntime(node, constant, with_bias):
    shape, weights, attributes = node
    bias = normal(weights[0], seed=2) if with_bias else None
    inputs = {"X": normal(*shape), "W": normal(*weights, seed=1), "B": bias}
    NodeCase("Conv", inputs, attributes, constant=["W", "B"] if constant else []).check(1e-4, 1e-4)


@given(convolutions())
@settings(max_examples=40, deadline=None)
def test_conv_with_symbolic_sizes(node):
    shape, weights, attributes = node
    inputs = {"X": normal(*shape), "W": normal(*weights, seed=1)}
    assert_symbolic_shapes(NodeCase("Conv", inputs, attributes, constant=["W"]))


@given(convolutions(transposed=True), st.data())
@settings(max_examples=120, deadline=None)
def test_conv_transpose_matches_onnxruntime(node, data):
    shape, weights, attributes = node
    n = len(shape) - 2
    for k in range(n):
        # Where SAME would have to grow the output beyond the kernel's reach, onnxruntime gives another size.
        if (weights[2 + k] - 1) * attributes["dilations"][k] + 1 < attributes["strides"][k]:
            attributes.pop("auto_pad", None)
    if data.draw(st.booleans()):
        attributes["output_padding"] = [data.draw(st.integers(0, s - 1)) for s in attributes["strides"]]
    inputs = {"X": normal(*shape), "W": normal(*weights, seed=1), "B": normal(weights[1] * attributes["group"], seed=2)}
    NodeCase("ConvTranspose", inputs, attributes, constant=["W"]).check(1e-4, 1e-4)


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("shape", [(7, 8), (8, 7), (9, 9)])
def test_conv_transpose_output_shape(mode, shape):
    inputs = {"X": normal(1, 2, 4, 4), "W": normal(2, 3, 3, 3, seed=1)}
    attributes = {"strides": [2, 2], "output_shape": shape, "auto_pad": mode}
    NodeCase("ConvTranspose", inputs, attributes).check(1e-4, 1e-4)


def test_conv_transpose_output_shape_beyond_the_kernel_is_zero():
    inputs = {"X": np.ones((1, 1, 2), np.float32), "W": np.ones((1, 1, 2), np.float32)}
    (y,) = NodeCase("ConvTranspose", inputs, {"strides": [2], "output_shape": [6]}).edgerun()
    assert y.tolist() == [[[1, 1, 1, 1, 0, 0]]]


def test_conv_transpose_same_upper_keeps_the_size():
    x = np.arange(2, 6, dtype=np.float32).reshape(1, 1, 2, 2)
    w = np.arange(2, 11, dtype=np.float32).reshape(1, 1, 3, 3)
    full = np.zeros((4, 4))
    for i, j in itertools.product(range(2), range(2)):
        full[i : i + 3, j : j + 3] += x[0, 0, i, j] * w[0, 0]
    (y,) = NodeCase(
        "ConvTranspose", {"X": x, "W": w}, {"auto_pad": "SAME_UPPER", "strides": [1, 1]}, opset=11
    ).edgerun()
    np.testing.assert_array_equal(y[0, 0], full[1:3, 1:3])


def test_conv_transpose_same_upper_with_output_padding_doubles_the_size():
    x, w = np.ones((1, 1, 3, 3), np.float32), np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    full = np.zeros((8, 8))
    for i, j in itertools.product(range(3), range(3)):
        full[2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += w[0, 0]
    attributes = {"auto_pad": "SAME_UPPER", "strides": [2, 2], "output_padding": [1, 1]}
    (y,) = NodeCase("ConvTranspose", {"X": x, "W": w}, attributes, opset=11).edgerun()
    np.testing.assert_array_equal(y[0, 0], full[1:7, 1:7])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_other_floats(op_type, dtype):
    x, w = normal(1, 4, 8, 8).astype(dtype), normal(4, 4, 3, 3, seed=1).astype(dtype)
    (y,) = NodeCase(op_type, {"X": x, "W": w}).edgerun()
    assert y.dtype == dtype
    (expected,) = NodeCase(op_type, {"X": x.astype(np.float32), "W": w.astype(np.float32)}).reference()
    tolerance = {2: 1e-2, 8: 1e-5}[np.dtype(dtype).itemsize]
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 4)


def test_half_precision_is_summed_in_single():
    x = np.full((1, 4096, 1), 1.0, np.float16)
    w = np.full((1, 4096, 1), 1.0, np.float16)
    (y,) = NodeCase("Conv", {"X": x, "W": w}).edgerun()
    assert y.item() == 4096


@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise_in_several_blocks(multiplier):
    x, w = normal(2, 24, 70, 50), normal(24 * multiplier, 1, 3, 3, seed=1)
    NodeCase("Conv", {"X": x, "W": w}, {"group": 24, "pads": [1, 1, 1, 1]}).check(1e-4, 1e-4)


def test_dense_in_several_blocks():
    x, w = normal(3, 40, 60, 60), normal(8, 40, 5, 5, seed=1)
    NodeCase("Conv", {"X": x, "W": w}, {"strides": [2, 1]}).check(1e-3, 1e-3)


def test_empty_batch_and_empty_output():
    assert NodeCase("Conv", {"X": normal(0, 2, 4, 4), "W": normal(3, 2, 3, 3)}).edgerun()[0].shape == (0, 3, 2, 2)
    assert NodeCase("Conv", {"X": normal(1, 2, 2), "W": normal(3, 2, 3)}).edgerun()[0].shape == (1, 3, 0)


@pytest.mark.parametrize(
    ("attributes", "weights", "message"),
    [
        ({"kernel_shape": [2, 2]}, (3, 2, 3, 3), "kernel_shape"),
        ({"group": 3}, (3, 2, 3, 3), "input channels"),
        ({"strides": [1]}, (3, 2, 3, 3), "strides"),
        ({"auto_pad": "SAME"}, (3, 2, 3, 3), "auto_pad"),
        ({}, (3, 2, 9, 9), "does not fit"),
        ({}, (3, 2, 3), "do not make a convolution"),
    ],
)
def test_refusals_name_node_and_reason(attributes, weights, message):
    with pytest.raises(EdgerunError, match=message) as caught:
        NodeCase("Conv", {"X": normal(1, 2, 6, 6), "W": normal(*weights)}, attributes).graph()
    assert "node" in str(caught.value)


def test_shape_rule_is_an_expression_of_the_symbols():
    x = TensorType(DType.F32, (1, symbol("H"), symbol("W"), 3))
    w = TensorType(DType.F32, (8, 3, 3, 3))
    (y,) = infer("conv", [x, w], {"strides": (2, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)})
    assert [str(d) for d in y.dims] == ["1", "floordiv(H - 1, 2) + 1", "W", "8"]


def test_macs():
    x, w = TensorType(DType.F32, (1, 8, 8, 4)), TensorType(DType.F32, (6, 3, 3, 2))
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 2}
    (y,) = infer("conv", [x, w], attrs)
    assert spec("conv").macs(x, w, **attrs, out=y) == 8 * 8 * 6 * 3 * 3 * 2
    attrs["output_padding"] = (0, 0)
    w = TensorType(DType.F32, (4, 3, 3, 3))
    (y,) = infer("conv_transpose", [x, w], attrs)
    assert spec("conv_transpose").macs(x, w, **attrs, out=y) == 8 * 8 * 4 * 3 * 3 * 3


@pytest.mark.parametrize("res", ["before", "after"])
def test_epilogue_with_residual(res):
    x, w, b = normal(1, 5, 5, 4), normal(6, 3, 3, 4, seed=1), normal(6, seed=2)
    residual = normal(1, 3, 3, 6, seed=3)
    attrs = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1)}
    plain = conv(x, w, b, **attrs)
    fused = conv(x, w, b, residual, **attrs, act="clamp", p0=0.0, p1=6.0, res=res)
    relu6 = np.clip(plain + residual, 0, 6) if res == "before" else np.clip(plain, 0, 6) + residual
    np.testing.assert_allclose(fused, relu6, rtol=1e-6, atol=1e-6)


def test_epilogue_prelu_slope_per_channel():
    x, w, slope = normal(1, 5, 4), normal(4, 3, 2, seed=1), np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    attrs = {"strides": (1,), "pads": (0, 0), "dilations": (1,), "output_padding": (0,)}
    plain = conv_transpose(x, w, **attrs)
    fused = conv_transpose(x, w, None, slope[:2], **attrs, act="prelu")
    np.testing.assert_allclose(fused, np.where(plain < 0, plain * slope[:2], plain), rtol=1e-6)


def test_epilogue_checks():
    x, w = TensorType(DType.F32, (1, 5, 4)), TensorType(DType.F32, (6, 3, 4))
    attrs = {"strides": (1,), "pads": (0, 0), "dilations": (1,)}
    with pytest.raises(ShapeError, match="activation"):
        infer("conv", [x, w], {**attrs, "act": "relu7"})
    with pytest.raises(ShapeError, match="residual"):
        infer("conv", [x, w], {**attrs, "res": "before"})
    with pytest.raises(ShapeError, match="slope"):
        infer("conv", [x, w], {**attrs, "act": "prelu"})
    with pytest.raises(ShapeError, match="bias"):
        infer("conv", [x, w, TensorType(DType.F32, (5,))], attrs)


def deform_by_hand(x, w, offset, mask, strides, pads, dilations, group, offset_group):
    """Deformable convolution with scalar loops; x [C, H, W], w [O, C/g, kh, kw], one image."""
    channels, height, width = x.shape
    filters, per_group, kh, kw = w.shape
    oh = (height + 2 * pads[0] - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    ow = (width + 2 * pads[1] - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    offset = offset.reshape(offset_group, kh, kw, 2, oh, ow)
    mask = mask.reshape(offset_group, kh, kw, oh, ow)

    def read(c, p, q):
        p0, q0 = int(np.floor(p)), int(np.floor(q))
        total = 0.0
        for i, j in itertools.product((0, 1), (0, 1)):
            if 0 <= p0 + i < height and 0 <= q0 + j < width:
                total += x[c, p0 + i, q0 + j] * (1 - abs(p - p0 - i)) * (1 - abs(q - q0 - j))
        return total

    y = np.zeros((filters, oh, ow))
    for o, i, j, c, a, b in itertools.product(*map(range, (filters, oh, ow, per_group, kh, kw))):
        channel = o // (filters // group) * per_group + c
        g = channel // (channels // offset_group)
        p = i * strides[0] - pads[0] + a * dilations[0] + offset[g, a, b, 0, i, j]
        q = j * strides[1] - pads[1] + b * dilations[1] + offset[g, a, b, 1, i, j]
        y[o, i, j] += w[o, c, a, b] * read(channel, p, q) * mask[g, a, b, i, j]
    return y


@pytest.mark.parametrize(("group", "offset_group"), [(1, 1), (2, 1), (1, 2), (2, 4)])
def test_deform_conv(group, offset_group):
    x, w = normal(1, 4, 6, 5), normal(4, 4 // group, 3, 2, seed=1)
    strides, pads, dilations = (2, 1), (1, 1), (1, 2)
    oh, ow = 3, 5
    offset = normal(1, offset_group * 12, oh, ow, seed=2)
    mask = np.random.default_rng(3).random((1, offset_group * 6, oh, ow), dtype=np.float32)
    attributes = {"strides": strides, "pads": [*pads, *pads], "dilations": dilations}
    attributes |= {"group": group, "offset_group": offset_group, "kernel_shape": [3, 2]}
    inputs = {"X": x, "W": w, "offset": offset, "B": None, "mask": mask}
    (y,) = NodeCase("DeformConv", inputs, attributes).edgerun()
    expected = deform_by_hand(x[0], w, offset[0], mask[0], strides, pads, dilations, group, offset_group)
    np.testing.assert_allclose(y[0], expected, rtol=1e-4, atol=1e-4)


def test_deform_conv_without_offsets_is_a_convolution():
    x, w, b = normal(2, 6, 6, 4), normal(3, 3, 3, 4, seed=1), normal(3, seed=2)
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    y = deform_conv(x, w, np.zeros((2, 6, 6, 18), np.float32), b, **attrs)
    assert_same([y], [conv(x, w, b, **attrs)])


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_of_a_dilated_kernel(mode):
    x, w = normal(1, 1, 7), normal(1, 1, 2, seed=1)
    (y,) = NodeCase("Conv", {"X": x, "W": w}, {"auto_pad": mode, "dilations": [3]}).edgerun()
    pads = (1, 2) if mode == "SAME_UPPER" else (2, 1)
    padded = np.pad(x[0, 0], pads)
    np.testing.assert_allclose(
        y[0, 0], [padded[i] * w[0, 0, 0] + padded[i + 3] * w[0, 0, 1] for i in range(7)], rtol=1e-5
    )


@pytest.mark.parametrize("size", [2, 4])
def test_conv_transpose_output_shape_with_symbolic_sizes(size):
    inputs = {"X": normal(1, 1, size), "W": normal(1, 1, 3, seed=1)}
    case = NodeCase("ConvTranspose", inputs, {"strides": [2], "output_shape": [7]}, constant=["W"])
    (plain,) = case.edgerun()
    assert_symbolic_shapes(case)
    np.testing.assert_array_equal(case.edgerun()[0], plain)


@pytest.mark.parametrize(
    ("op_type", "weights", "group"), [("Conv", (8, 1, 3), 8), ("Conv", (4, 2, 3), 1), ("ConvTranspose", (2, 3, 3), 1)]
)
def test_channels_that_turn_out_wrong_at_run_time(op_type, weights, group):
    inputs = {"X": normal(1, 4, 8), "W": normal(*weights)}
    case = NodeCase(op_type, inputs, {"group": group}, constant=["W"], symbolic=True)
    with pytest.raises(ShapeError, match="4 channels"):
        case.edgerun()


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_constant_weights_are_rearranged_once(op_type):
    graph = NodeCase(op_type, {"X": normal(1, 4, 8, 8), "W": normal(4, 4, 3, 3)}, constant=["W"]).graph()
    (node,) = [n for n in graph.nodes if n.op.startswith("conv")]
    weights = graph.constant(node.inputs[1])
    assert weights is not None
    assert weights.flags.c_contiguous
    assert sum(n.op == "transpose" for n in graph.nodes) == 2


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
def test_depthwise_with_one_to_three_axes(n, stride, dilation):
    x, w = normal(2, 5, *(9, 8, 7)[:n]), normal(5, 1, *(3, 2, 3)[:n], seed=1)
    attributes = {"group": 5, "pads": [1] * (2 * n), "strides": [stride] * n, "dilations": [dilation] * n}
    NodeCase("Conv", {"X": x, "W": w}, attributes).check(1e-4, 1e-4)
