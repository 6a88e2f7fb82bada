"""NumPy kernels of region pooling and non-maximum suppression."""

from __future__ import annotations

import math

import numpy as np

from edgerun.backends.numpy.activation import accumulator
from edgerun.backends.numpy.registry import kernel
from edgerun.errors import ShapeError

Array = np.ndarray


@kernel("roi_align")
def roi_align(
    x: Array,
    rois: Array,
    batch: Array,
    *,
    kind: str = "average",
    height: int = 1,
    width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    half_pixel: bool = True,
) -> Array:
    """See edgerun.ops.detection.roi_align. Raises ShapeError for a batch index outside x."""
    working = accumulator(x.dtype)
    _check_batches(batch, x.shape[0])
    y = np.zeros((rois.shape[0], x.shape[1], height, width), working)
    boxes = rois.astype(working) * working.type(spatial_scale) - working.type(0.5 if half_pixel else 0)
    for r in range(rois.shape[0]):
        x1, y1, x2, y2 = boxes[r]
        extents = (y2 - y1, x2 - x1)
        if not half_pixel:
            extents = (max(extents[0], working.type(1)), max(extents[1], working.type(1)))
        image = x[int(batch[r])].astype(working, copy=False)
        rows = _samples(float(y1), float(extents[0]), height, sampling_ratio, x.shape[2])
        columns = _samples(float(x1), float(extents[1]), width, sampling_ratio, x.shape[3])
        y[r] = _average(image, rows, columns) if kind == "average" else _maximum(image, rows, columns)
    return y.astype(x.dtype, copy=False)


def _samples(start: float, extent: float, bins: int, ratio: int, length: int) -> tuple[Array, Array]:
    """(cells, weights), each [bins, samples, 2]: the two cells around every sample; weight 0 for samples outside."""
    count = ratio if ratio > 0 else max(math.ceil(extent / bins), 0)
    size = extent / bins
    place = start + np.arange(bins)[:, None] * size + (np.arange(count) + 0.5) * (size / max(count, 1))
    valid = (place >= -1) & (place <= length)
    place = np.clip(place, 0, length - 1)
    low = np.minimum(np.floor(place).astype(np.int64), length - 1)
    fraction = place - low
    cells = np.stack([low, np.minimum(low + 1, length - 1)], axis=-1)
    return cells, np.stack([1 - fraction, fraction], axis=-1) * valid[..., None]


def _average(image: Array, rows: tuple[Array, Array], columns: tuple[Array, Array]) -> Array:
    """Mean of the samples of each bin [C, bins, bins]: weights are products, so rows and columns go apart."""
    return _mixing(rows, image.shape[1], image.dtype) @ image @ _mixing(columns, image.shape[2], image.dtype).T


def _mixing(samples: tuple[Array, Array], length: int, dtype: np.dtype) -> Array:
    """The matrix [bins, length] that takes the mean of each bin's samples."""
    cells, weights = samples
    matrix = np.zeros((cells.shape[0], length))
    np.add.at(matrix, (np.arange(cells.shape[0])[:, None, None], cells), weights / max(cells.shape[1], 1))
    return matrix.astype(dtype)


def _maximum(image: Array, rows: tuple[Array, Array], columns: tuple[Array, Array]) -> Array:
    """Largest weighted corner of the samples of each bin [C, bins, bins]; 0 for a bin without samples."""
    (r, rw), (c, cw) = ((cells.reshape(len(cells), -1), w.reshape(len(w), -1)) for cells, w in (rows, columns))
    if not r.shape[1] or not c.shape[1]:
        return np.zeros((image.shape[0], len(r), len(c)), image.dtype)
    values = image[:, r[:, None, :, None], c[None, :, None, :]]
    weights = rw[:, None, :, None] * cw[None, :, None, :]
    return (values * weights.astype(image.dtype)).max(axis=(-2, -1))


@kernel("max_roi_pool")
def max_roi_pool(x: Array, rois: Array, *, height: int, width: int, spatial_scale: float = 1.0) -> Array:
    """See edgerun.ops.detection.max_roi_pool. Raises ShapeError for a batch index outside x."""
    y = np.zeros((rois.shape[0], x.shape[1], height, width), x.dtype)
    _check_batches(rois[:, 0], x.shape[0])
    scaled = rois[:, 1:].astype(np.float32) * np.float32(spatial_scale)
    corners = (np.sign(scaled) * np.floor(np.abs(scaled) + np.float32(0.5))).astype(np.int64)
    for r, (x1, y1, x2, y2) in enumerate(corners.tolist()):
        image = x[int(rois[r, 0])]
        for h, (top, bottom) in enumerate(_bins(y1, y2, height, x.shape[2])):
            for w, (left, right) in enumerate(_bins(x1, x2, width, x.shape[3])):
                if top < bottom and left < right:
                    y[r, :, h, w] = image[:, top:bottom, left:right].max(axis=(1, 2))
    return y


def _bins(first: int, last: int, count: int, length: int) -> list[tuple[int, int]]:
    """Start and end cells of `count` bins over first..last (inclusive), cut to the map."""
    size = np.float32(max(last - first + 1, 1)) / np.float32(count)
    edges = [(math.floor(np.float32(k) * size), math.ceil(np.float32(k + 1) * size)) for k in range(count)]
    return [(min(max(a + first, 0), length), min(max(b + first, 0), length)) for a, b in edges]


@kernel("non_max_suppression")
def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_output: Array | None = None,
    iou_threshold: Array | None = None,
    score_threshold: Array | None = None,
    *,
    center_point_box: bool = False,
) -> Array:
    """See edgerun.ops.detection.non_max_suppression. Raises ShapeError when boxes and scores do not match."""
    if boxes.shape[:2] != (scores.shape[0], scores.shape[2]):
        raise ShapeError(f"boxes of shape {boxes.shape} with scores of shape {scores.shape}")
    limit = 0 if max_output is None else int(max_output.reshape(-1)[0])
    overlap = 0.0 if iou_threshold is None else iou_threshold.reshape(-1)[0]
    picked: list[tuple[int, int, int]] = []
    for image in range(scores.shape[0]):
        corners = _corners(boxes[image], center_point_box)
        for kind in range(scores.shape[1]):
            row = scores[image, kind]
            order = np.argsort(-row, kind="stable")
            if score_threshold is not None:
                order = order[row[order] > score_threshold.reshape(-1)[0]]
            picked += [(image, kind, k) for k in _greedy(corners, order, limit, overlap)]
    return np.array(picked, np.int64).reshape(-1, 3)


def _greedy(corners: Array, order: Array, limit: int, overlap: float) -> list[int]:
    """Boxes taken one by one in `order`; each removes those that overlap it too much."""
    chosen: list[int] = []
    while order.size and len(chosen) < limit:
        best, order = int(order[0]), order[1:]
        chosen.append(best)
        order = order[~_overlaps(corners[best], corners[order], overlap)]
    return chosen


def _corners(boxes: Array, center_point_box: bool) -> Array:
    """Boxes [N, 4] as (low, low, high, high)."""
    if center_point_box:
        half = boxes[:, 2:] / 2
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    first, second = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=1)


def _overlaps(box: Array, others: Array, threshold: float) -> Array:
    """Whether intersection over union exceeds the threshold; never for boxes without area."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    intersection = np.prod(np.maximum(sides, 0), axis=1)
    area, areas = np.prod(box[2:] - box[:2]), np.prod(others[:, 2:] - others[:, :2], axis=1)
    union = area + areas - intersection
    return (intersection > 0) & (area > 0) & (areas > 0) & (union > 0) & (intersection > threshold * union)


def _check_batches(batch: Array, count: int) -> None:
    if batch.size and (int(batch.min()) < 0 or int(batch.max()) >= count):
        raise ShapeError(f"a region names a batch outside 0 to {count - 1}")
