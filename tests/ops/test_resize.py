"""Resize and Upsample against onnxruntime, hand values and exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.errors import EdgerunError, ShapeError
from edgerun.ops.resample import Axis, Filter, apply_policy, exact, scaled_size, taps
from tests.ops.shapes import assert_symbolic_shapes
from tests.ops.single_node import NodeCase

COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def resize(x, scales=None, sizes=None, roi=None, *, opset=19, constant=("scales", "sizes", "roi"), **attributes):
    """A Resize node; a list becomes the tensor the operator wants."""
    inputs = {
        "X": x,
        "roi": None if roi is None else np.array(roi, np.float32),
        "scales": None if scales is None else np.array(scales, np.float32),
        "sizes": None if sizes is None else np.array(sizes, np.int64),
    }
    return NodeCase("Resize", inputs, attributes, opset=opset, constant=constant)


@given(
    mode=st.sampled_from(["linear", "cubic"]),
    coordinate=st.sampled_from(COORDINATES),
    sizes=st.lists(st.integers(2, 9), min_size=4, max_size=4),
    exclude=st.integers(0, 1),
    antialias=st.integers(0, 1),
    constant=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_interpolation_to_sizes_matches_onnxruntime(mode, coordinate, sizes, exclude, antialias, constant):
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinate, "antialias": antialias}
    if mode == "cubic":
        attributes |= {"exclude_outside": exclude, "cubic_coeff_a": -0.5}
    x = normal(1, 2, *sizes[:2])
    wanted = [1, 2, *sizes[2:]]
    resize(x, sizes=wanted, constant=["sizes"] if constant else [], **attributes).check(1e-3, 1e-4)


@given(
    mode=st.sampled_from(["nearest", "linear", "cubic"]),
    coordinate=st.sampled_from(["half_pixel", "pytorch_half_pixel", "asymmetric"]),
    rounding=st.sampled_from(ROUNDINGS),
    scales=st.lists(st.sampled_from([0.5, 0.6, 0.75, 1.0, 1.7, 2.0, 3.0]), min_size=2, max_size=2),
    constant=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_scales_match_onnxruntime(mode, coordinate, rounding, scales, constant):
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinate}
    if mode == "nearest":
        attributes["nearest_mode"] = rounding
        # On a rounding threshold float32 noise decides in onnxruntime; exact values are tested below.
        scales = [s for s in scales if s in (0.5, 1.0, 2.0)] + [2.0, 0.5]
    x = normal(1, 2, 6, 5)
    resize(x, [1, 1, *scales[:2]], constant=["scales"] if constant else [], **attributes).check(1e-3, 1e-4)


def nearest_by_hand(length, count, scale, coordinate, rounding):
    """Source cells in exact arithmetic."""
    cells = []
    for i in range(count):
        place = {
            "half_pixel": (i + Fraction(1, 2)) / scale - Fraction(1, 2),
            "asymmetric": Fraction(i) / scale,
            "align_corners": Fraction(i * (length - 1), max(count - 1, 1)),
        }[coordinate]
        low = place.numerator // place.denominator
        part = place - low
        up = {
            "floor": False,
            "ceil": part > 0,
            "round_prefer_floor": part > Fraction(1, 2),
            "round_prefer_ceil": part >= Fraction(1, 2),
        }[rounding]
        cells.append(min(max(low + up, 0), length - 1))
    return cells


@given(
    length=st.integers(1, 40),
    count=st.integers(1, 60),
    coordinate=st.sampled_from(["half_pixel", "asymmetric", "align_corners"]),
    rounding=st.sampled_from(ROUNDINGS),
)
@settings(max_examples=200, deadline=None)
def test_nearest_cells_are_exact(length, count, coordinate, rounding):
    scale = Fraction(count, length)
    found = taps(Axis(length, count, scale), Filter("nearest", coordinate, rounding, -0.75, False, False))
    assert found.index[:, 0].tolist() == nearest_by_hand(length, count, scale, coordinate, rounding)


def test_nearest_halves_20_to_6():
    x = np.linspace(0, 1, 20, dtype=np.float32).reshape(1, 1, 1, 20)
    (y,) = resize(x, sizes=[1, 1, 1, 6], mode="nearest", nearest_mode="round_prefer_ceil", opset=13).edgerun()
    np.testing.assert_array_equal(y, x[..., [1, 5, 8, 11, 15, 18]])


def test_nearest_floor_doubles():
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    (y,) = resize(x, [1, 1, 2, 2], mode="nearest", nearest_mode="floor", opset=18).edgerun()
    cells = [0, 0, 0, 1, 1, 2, 2, 3]
    np.testing.assert_array_equal(y, x[:, :, cells][..., cells])


def test_linear_by_two_and_a_half():
    x = np.array([0, 1, 2], np.float32).reshape(1, 1, 1, 3)
    (y,) = resize(x, [1, 1, 1, 2.5], mode="linear", opset=18).edgerun()
    expected = np.clip((np.arange(7) + 0.5) / 2.5 - 0.5, 0, 2)
    np.testing.assert_allclose(y.ravel(), expected, rtol=1e-6, atol=1e-6)


def test_coordinates_use_the_given_scale_not_the_size_ratio():
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 1, 5)
    (y,) = resize(x, [1, 1, 1, 0.5], mode="linear", coordinate_transformation_mode="asymmetric").edgerun()
    assert y.ravel().tolist() == [0, 2]


@pytest.mark.parametrize(
    ("policy", "shape"), [("not_larger", (1, 1, 4, 6)), ("not_smaller", (1, 1, 5, 8)), ("stretch", (1, 1, 4, 8))]
)
@pytest.mark.parametrize("constant", [["sizes"], []])
def test_aspect_ratio_policy(policy, shape, constant):
    x = normal(1, 1, 2, 3)
    case = resize(
        x, sizes=[4, 8], axes=[2, 3], keep_aspect_ratio_policy=policy, mode="linear", opset=18, constant=constant
    )
    (y,) = case.edgerun()
    assert y.shape == shape
    case.check()


def test_policy_rounds_halves_up():
    assert apply_policy([4, 3], [6, 6], "not_larger") == ([6, 5], [Fraction(3, 2)] * 2)


@pytest.mark.parametrize("constant", [["roi", "sizes"], []])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_crop_and_resize_extrapolates(mode, constant):
    x = normal(1, 1, 5, 6)
    roi = [0, 0, -0.2, 0.25, 1, 1, 0.8, 1.3]
    attributes = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    resize(x, sizes=[1, 1, 4, 7], roi=roi, constant=constant, **attributes).check()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
@pytest.mark.parametrize("antialias", [0, 1])
def test_integers_interpolate_within_one_of_onnxruntime(dtype, antialias):
    x = np.random.default_rng(0).integers(0, 120, (1, 2, 7, 9)).astype(dtype)
    case = resize(x, sizes=[1, 2, 5, 6], mode="linear", antialias=antialias)
    (y,), (expected,) = case.edgerun(), case.reference()
    assert y.dtype == dtype
    assert np.abs(y.astype(int) - expected.astype(int)).max() <= 1


def test_integer_results_truncate_and_saturate():
    x = np.array([[[[0, 255, 255, 0]]]], np.uint8)
    (y,) = resize(x, [1, 1, 1, 2], mode="cubic").edgerun()
    assert y.max() == 255
    assert y.min() == 0
    (y,) = resize(np.array([[[[0, 3]]]], np.int32), [1, 1, 1, 2], mode="linear").edgerun()
    assert y.ravel().tolist() == [0, 0, 2, 3]


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.float16, np.float64])
def test_nearest_keeps_any_type(dtype):
    x = np.arange(6).reshape(1, 1, 2, 3).astype(dtype)
    (y,) = resize(
        x, [1, 1, 2, 2], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ).edgerun()
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, x.repeat(2, 2).repeat(2, 3))


@pytest.mark.parametrize("opset", [7, 9])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scale", [2.0, 1.5])
def test_upsample(opset, mode, scale):
    x = normal(1, 2, 3, 4)
    factors = [1.0, 1.0, scale, 2.0]
    if opset == 7:
        case = NodeCase("Upsample", {"X": x}, {"scales": factors, "mode": mode}, opset=7)
    else:
        inputs = {"X": x, "scales": np.array(factors, np.float32)}
        case = NodeCase("Upsample", inputs, {"mode": mode}, opset=9, constant=["scales"])
    case.check()


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [[1, 1, 2, 3], [1, 1, 0.5, 0.75]])
def test_resize_10(mode, scales):
    inputs = {"X": normal(1, 1, 6, 8), "scales": np.array(scales, np.float32)}
    NodeCase("Resize", inputs, {"mode": mode}, opset=10, constant=["scales"]).check()


def test_resize_11_takes_an_empty_region():
    inputs = {"X": normal(1, 1, 3, 3), "roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 2, 2], np.float32)}
    NodeCase("Resize", inputs, {"mode": "linear"}, opset=11, constant=["roi", "scales"]).check()


@given(st.sampled_from([0.5, 0.75, 1.5, 2.0, 0.3, 0.7, 2.5]), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_symbolic_sizes_by_scale(scale, size):
    assert_symbolic_shapes(resize(normal(1, 1, size, 4), [1, 1, scale, 2], mode="linear"))


def test_symbolic_sizes_by_size():
    assert_symbolic_shapes(resize(normal(1, 1, 5, 4), sizes=[1, 1, 7, 8], mode="linear"))
    assert_symbolic_shapes(
        resize(normal(1, 1, 5, 4), sizes=[1, 1, 7, 8], mode="cubic", keep_aspect_ratio_policy="not_larger")
    )


def test_unchanged_axes_cost_nothing():
    graph = resize(normal(1, 3, 4, 4), [1, 1, 2, 2], mode="linear").graph()
    (node,) = graph.nodes
    assert node.attrs["axes"] == (2, 3)
    assert all(n.op != "resize" for n in resize(normal(1, 3, 4, 4), [1, 1, 1, 1]).graph().nodes)


def test_exact_scale():
    assert exact(np.float32(10 / 3)) == Fraction(10, 3)
    assert exact(0.1) == Fraction(1, 10)
    assert exact(2.0) == 2
    with pytest.raises(ShapeError, match="positive"):
        exact(0.0)
    with pytest.raises(ShapeError, match="positive"):
        exact(float("nan"))


def test_scaled_size_multiplies_in_single_precision():
    assert scaled_size(10, float(np.float32(0.7))) == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either scales or sizes"),
        ({"scales": [1, 1, 2, 2], "sizes": [1, 1, 4, 4]}, "either scales or sizes"),
        ({"scales": [1, 2]}, "scales for"),
        ({"scales": [1, 1, -1, 1]}, "positive"),
        ({"scales": [1, 1, 2, 2], "mode": "lanczos"}, "interpolation"),
        ({"scales": [1, 1, 2, 2], "coordinate_transformation_mode": "middle"}, "coordinate transformation"),
        ({"sizes": [1, 1, 2, 2], "keep_aspect_ratio_policy": "squash"}, "policy"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(EdgerunError, match=message):
        resize(normal(1, 1, 3, 3), **arguments).edgerun()
