"""GridSample, AffineGrid and Col2Im against onnxruntime and against definitions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.errors import EdgerunError
from tests.ops.shapes import assert_symbolic_shapes
from tests.ops.single_node import NodeCase


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@given(
    n=st.integers(2, 3),
    mode=st.sampled_from(["nearest", "linear", "cubic"]),
    padding=st.sampled_from(["zeros", "border", "reflection"]),
    align=st.integers(0, 1),
    sizes=st.lists(st.integers(2, 5), min_size=6, max_size=6),
    reach=st.sampled_from([0.9, 1.5, 4.0]),
)
@settings(max_examples=120, deadline=None)
def test_grid_sample_matches_onnxruntime(n, mode, padding, align, sizes, reach):
    n = 2 if mode == "cubic" else n  # all that onnxruntime has
    x = normal(2, 3, *sizes[:n])
    grid = np.random.default_rng(1).uniform(-reach, reach, (2, *sizes[n : 2 * n], n)).astype(np.float32)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": align}
    NodeCase("GridSample", {"X": x, "grid": grid}, attributes, opset=20).check(1e-3, 1e-3)


@pytest.mark.parametrize(("old", "new"), [("bilinear", "linear"), ("bicubic", "cubic"), ("nearest", "nearest")])
def test_names_of_opset_16(old, new):
    inputs = {"X": normal(1, 1, 4, 4), "grid": normal(1, 3, 3, 2, seed=1) / 2}
    (a,) = NodeCase("GridSample", inputs, {"mode": old}, opset=16).edgerun()
    (b,) = NodeCase("GridSample", inputs, {"mode": new}, opset=20).edgerun()
    np.testing.assert_array_equal(a, b)


def test_identity_grid_gives_the_image_back():
    x = normal(1, 2, 5, 7)
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    for align in (0, 1):
        inputs = {"theta": theta, "size": np.array([1, 2, 5, 7], np.int64)}
        (grid,) = NodeCase("AffineGrid", inputs, {"align_corners": align}, opset=20).edgerun()
        (y,) = NodeCase("GridSample", {"X": x, "grid": grid}, {"align_corners": align}, opset=20).edgerun()
        np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-5)


def test_infinity_outside_the_image_does_not_leak_in():
    x = np.full((1, 1, 2, 2), np.inf, np.float32)
    grid = np.full((1, 1, 1, 2), 5.0, np.float32)
    (y,) = NodeCase("GridSample", {"X": x, "grid": grid}, opset=20).edgerun()
    assert y.item() == 0


def test_coordinates_that_are_not_finite_read_zeros():
    grid = np.array([[[[np.nan, 0], [np.inf, 0], [0, -np.inf], [1e30, 1e30]]]], np.float32)
    (y,) = NodeCase("GridSample", {"X": np.ones((1, 1, 3, 3), np.float32), "grid": grid}, opset=20).edgerun()
    assert y.tolist() == [[[[0, 0, 0, 0]]]]


def test_grid_sample_symbolic_sizes():
    assert_symbolic_shapes(NodeCase("GridSample", {"X": normal(2, 3, 4, 5), "grid": normal(2, 6, 7, 2)}, opset=20))


@pytest.mark.parametrize("constant", [["size"], []])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 1, 3, 4, 2), (2, 1, 2, 3)])
def test_affine_grid(shape, align, constant):
    n = len(shape) - 2
    theta = normal(2, n, n + 1)
    inputs = {"theta": theta, "size": np.array(shape, np.int64)}
    (y,) = NodeCase("AffineGrid", inputs, {"align_corners": align}, opset=20, constant=constant).edgerun()
    expected = np.empty((2, *shape[2:], n))
    for place in itertools.product(*map(range, shape[2:])):
        centre = [
            -1 + 2 * i / (size - 1) if align else -1 + (2 * i + 1) / size
            for i, size in zip(place, shape[2:], strict=True)
        ]
        expected[(slice(None), *place)] = theta @ np.array([*centre[::-1], 1.0])
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_affine_grid_of_one_cell_is_centred():
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    inputs = {"theta": theta, "size": np.array([1, 1, 1, 1], np.int64)}
    (y,) = NodeCase("AffineGrid", inputs, {"align_corners": 1}, opset=20).edgerun()
    assert y.ravel().tolist() == [0, 0]


def col2im_by_hand(x, image, block, strides, pads, dilations):
    n = len(image)
    channels = x.shape[1] // int(np.prod(block))
    counts = [
        (image[k] + pads[k] + pads[n + k] - (block[k] - 1) * dilations[k] - 1) // strides[k] + 1 for k in range(n)
    ]
    y = np.zeros((x.shape[0], channels, *image))
    columns = x.reshape(x.shape[0], channels, *block, *counts)
    for step in itertools.product(*map(range, block)):
        for place in itertools.product(*map(range, counts)):
            cell = [place[k] * strides[k] - pads[k] + step[k] * dilations[k] for k in range(n)]
            if all(0 <= c < s for c, s in zip(cell, image, strict=True)):
                y[(slice(None), slice(None), *cell)] += columns[(slice(None), slice(None), *step, *place)]
    return y


@given(st.data(), st.integers(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_col2im(data, n, constant):
    def draw(low, high):
        return [data.draw(st.integers(low, high)) for _ in range(n)]

    block, strides, dilations, pads = draw(1, 3), draw(1, 2), draw(1, 2), draw(0, 1) * 2
    image = [data.draw(st.integers((k - 1) * d + 1, 7)) for k, d in zip(block, dilations, strict=True)]
    counts = [
        (image[k] + pads[k] + pads[n + k] - (block[k] - 1) * dilations[k] - 1) // strides[k] + 1 for k in range(n)
    ]
    x = normal(2, 3 * int(np.prod(block)), int(np.prod(counts)))
    inputs = {"X": x, "image": np.array(image, np.int64), "block": np.array(block, np.int64)}
    attributes = {"strides": strides, "pads": pads, "dilations": dilations}
    case = NodeCase("Col2Im", inputs, attributes, opset=18, constant=["image", "block"] if constant else [])
    (y,) = case.edgerun()
    np.testing.assert_allclose(y, col2im_by_hand(x, image, block, strides, pads, dilations), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            NodeCase("GridSample", {"X": normal(1, 1, 3, 3), "grid": normal(1, 2, 2, 3)}, opset=20),
            "does not name places",
        ),
        (NodeCase("GridSample", {"X": normal(1, 1, 3, 3), "grid": normal(1, 2, 2)}, opset=20), "does not fit"),
        (
            NodeCase("GridSample", {"X": normal(1, 1, 3, 3), "grid": normal(1, 2, 2, 2)}, {"mode": "area"}, opset=20),
            "interpolation",
        ),
        (
            NodeCase(
                "Col2Im",
                {"X": normal(1, 5, 4), "i": np.array([3, 3], np.int64), "b": np.array([2, 2], np.int64)},
                opset=18,
                constant=["i", "b"],
            ),
            "multiple",
        ),
    ],
)
def test_refusals(case, message):
    with pytest.raises(EdgerunError, match=message):
        case.edgerun()


@pytest.mark.parametrize("symbolic", [False, True])
def test_grid_and_map_must_have_one_batch(symbolic):
    inputs = {"X": normal(1, 1, 3, 3), "grid": normal(2, 2, 2, 2)}
    with pytest.raises(EdgerunError, match="grid"):
        NodeCase("GridSample", inputs, opset=20, symbolic=symbolic).edgerun()
