"""RoiAlign, MaxRoiPool and NonMaxSuppression against onnxruntime and against loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.errors import EdgerunError
from tests.ops.single_node import NodeCase


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def regions(count, size, seed=1):
    r = np.random.default_rng(seed)
    corner = r.uniform(-0.2, 0.7, (count, 2)) * size
    return np.concatenate([corner, corner + r.uniform(0.05, 0.6, (count, 2)) * size], axis=1).astype(np.float32)


@given(
    mode=st.sampled_from(["avg", "max"]),
    coordinate=st.sampled_from(["half_pixel", "output_half_pixel"]),
    ratio=st.integers(0, 3),
    bins=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    scale=st.sampled_from([1.0, 0.5, 0.25]),
    seed=st.integers(0, 9),
)
@settings(max_examples=80, deadline=None)
def test_roi_align_matches_onnxruntime(mode, coordinate, ratio, bins, scale, seed):
    inputs = {
        "X": normal(2, 3, 9, 8),
        "rois": regions(5, 9 / scale, seed),
        "batch": np.array([0, 1, 1, 0, 1], np.int64),
    }
    attributes = {"mode": mode, "sampling_ratio": ratio, "spatial_scale": scale, "output_height": bins[0]}
    attributes |= {"output_width": bins[1], "coordinate_transformation_mode": coordinate}
    NodeCase("RoiAlign", inputs, attributes, opset=16).check(1e-3, 1e-4)


def test_roi_align_10_has_no_half_pixel():
    inputs = {"X": normal(1, 1, 6, 6), "rois": regions(3, 6), "batch": np.zeros(3, np.int64)}
    NodeCase("RoiAlign", inputs, {"output_height": 2, "output_width": 2}, opset=10).check(1e-3, 1e-4)


def test_roi_align_refuses_a_batch_outside():
    inputs = {"X": normal(1, 1, 6, 6), "rois": regions(1, 6), "batch": np.ones(1, np.int64)}
    with pytest.raises(EdgerunError, match="batch"):
        NodeCase("RoiAlign", inputs, opset=16).edgerun()


@given(st.tuples(st.integers(1, 4), st.integers(1, 4)), st.sampled_from([1.0, 0.5]), st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_max_roi_pool_matches_onnxruntime(bins, scale, seed):
    boxes = np.abs(regions(4, 8 / scale, seed))
    rois = np.concatenate(
        [np.array([[0], [1], [1], [0]], np.float32), np.sort(boxes.reshape(4, 2, 2), 1).reshape(4, 4)], 1
    )
    attributes = {"pooled_shape": bins, "spatial_scale": scale}
    NodeCase("MaxRoiPool", {"X": normal(2, 3, 8, 9), "rois": rois}, attributes, opset=16).check()


def boxes_and_scores(batch, classes, count, seed, centre=False):
    r = np.random.default_rng(seed)
    corner = r.uniform(0, 1, (batch, count, 2))
    size = r.uniform(0.1, 0.5, (batch, count, 2))
    boxes = np.concatenate([corner, size if centre else corner + size], axis=2).astype(np.float32)
    # Few distinct scores: ties are common.
    return boxes, (r.integers(0, 12, (batch, classes, count)) / 10).astype(np.float32)


@given(
    centre=st.integers(0, 1),
    limit=st.integers(0, 6),
    overlap=st.sampled_from([0.0, 0.1, 0.4, 0.8]),
    threshold=st.sampled_from([None, 0.0, 0.35, 2.0]),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_non_max_suppression_matches_onnxruntime(centre, limit, overlap, threshold, seed):
    boxes, scores = boxes_and_scores(2, 2, 12, seed, bool(centre))
    inputs = {"boxes": boxes, "scores": scores, "limit": np.array([limit], np.int64)}
    inputs["overlap"] = np.array([overlap], np.float32)
    if threshold is not None:
        inputs["threshold"] = np.array([threshold], np.float32)
    NodeCase("NonMaxSuppression", inputs, {"center_point_box": centre}, opset=11).check()


def test_equal_scores_take_the_first_box():
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3]]], np.float32)
    inputs = {"boxes": boxes, "scores": np.full((1, 1, 3), 0.5, np.float32), "limit": np.array(3, np.int64)}
    inputs["overlap"] = np.array(0.5, np.float32)
    (y,) = NodeCase("NonMaxSuppression", inputs).edgerun()
    assert y.tolist() == [[0, 0, 0], [0, 0, 2]]


def test_corners_in_any_order():
    boxes = np.array([[[1, 1, 0, 0], [0, 0.1, 1, 1.1], [0, 10, 1, 11]]], np.float32)
    inputs = {"boxes": boxes, "scores": np.array([[[0.9, 0.8, 0.7]]], np.float32), "limit": np.array(3, np.int64)}
    inputs["overlap"] = np.array(0.5, np.float32)
    (y,) = NodeCase("NonMaxSuppression", inputs).edgerun()
    assert y.tolist() == [[0, 0, 0], [0, 0, 2]]


def test_without_a_limit_nothing_is_selected():
    boxes, scores = boxes_and_scores(1, 1, 4, 0)
    (y,) = NodeCase("NonMaxSuppression", {"boxes": boxes, "scores": scores}).edgerun()
    assert y.shape == (0, 3)
    assert y.dtype == np.int64


@pytest.mark.parametrize("symbolic", [False, True])
def test_boxes_and_scores_must_match(symbolic):
    inputs = {"boxes": np.zeros((1, 5, 4), np.float32), "scores": np.zeros((1, 2, 4), np.float32)}
    with pytest.raises(EdgerunError, match="boxes"):
        NodeCase("NonMaxSuppression", inputs, symbolic=symbolic).edgerun()
