"""Boxes: pooling of regions, suppression of overlapping ones. Feature maps are channels FIRST, as in ONNX."""

from __future__ import annotations

from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, compatible, fresh_symbol, may_equal, op, require


@op("detection")
def roi_align(
    x: TensorType,
    rois: TensorType,
    batch: TensorType,
    *,
    kind: str = "average",
    height: int = 1,
    width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    half_pixel: bool = True,
) -> TensorType:
    """Pool regions of x [N, C, H, W] by bilinear samples: rois [R, 4], batch i64 [R] -> [R, C, height, width].

    A region is (x1, y1, x2, y2), times `spatial_scale`, minus 1/2 with `half_pixel` (else at least one cell large).
    Each bin takes sampling_ratio^2 samples (0: as many as its size in cells, rounded up). `kind` average | max, the
    latter over the four weighted corners of every sample, as the standard defines it. Samples more than a cell outside
    give 0.
    """
    require(kind in ("average", "max"), f"there is no region pooling {kind!r}")
    require(x.dtype.is_float and rois.dtype is x.dtype, f"regions {rois} of {x.dtype.short}")
    require(batch.dtype is DType.I64, f"batch indices are i64, not {batch.dtype.short}")
    require(height > 0 and width > 0 and sampling_ratio >= 0, f"bins of {height} x {width}, {sampling_ratio} samples")
    if rois.shape is not None and batch.shape is not None:
        require(compatible(batch.shape, rois.shape[:1]), f"batch indices {batch} for regions {rois}")
    return _region_shape(x, rois, 4, height, width)


@op("detection")
def max_roi_pool(x: TensorType, rois: TensorType, *, height: int, width: int, spatial_scale: float = 1.0) -> TensorType:
    """Maximum over bins of whole cells: x [N, C, H, W], rois [R, 5] (batch, x1, y1, x2, y2) -> [R, C, height, width].

    Corners times `spatial_scale` are rounded (halves away from zero) and inclusive; an empty bin gives 0.
    """
    require(x.dtype.is_float and rois.dtype is x.dtype, f"regions {rois} of {x.dtype.short}")
    require(height > 0 and width > 0, f"bins of {height} x {width}")
    return _region_shape(x, rois, 5, height, width)


@op("detection")
def non_max_suppression(
    boxes: TensorType,
    scores: TensorType,
    max_output: TensorType | None = None,
    iou_threshold: TensorType | None = None,
    score_threshold: TensorType | None = None,
    *,
    center_point_box: bool = False,
) -> TensorType:
    """Greedy selection of boxes [B, N, 4] by scores [B, C, N] -> i64 [selected, 3] of (batch, class, box).

    In every batch and class boxes are taken by falling score, equal ones by index, unless they overlap a taken one by
    more than `iou_threshold` (default 0) or their score does not exceed `score_threshold`; at most `max_output` (i64,
    default 0). A box is two opposite corners (y1, x1, y2, x2), or with `center_point_box` (x, y, width, height).
    """
    require(boxes.dtype.is_float and scores.dtype.is_float, f"boxes {boxes} and scores {scores} are not floats")
    if boxes.shape is not None:
        require(compatible(boxes.shape, (*boxes.shape[:2], 4)), f"boxes are [B, N, 4], not {boxes}")
    require(scores.shape is None or len(scores.shape) == 3, f"scores are [B, C, N], not {scores}")
    if boxes.shape is not None and scores.shape is not None:
        same = may_equal(boxes.shape[0], scores.shape[0]) and may_equal(boxes.shape[1], scores.shape[2])
        require(same, f"boxes {boxes} and scores {scores} differ in batch or count")
    return TensorType(DType.I64, (fresh_symbol("selected"), 3))


def _region_shape(x: TensorType, rois: TensorType, columns: int, height: int, width: int) -> TensorType:
    require(x.shape is None or len(x.shape) == 4, f"a feature map is [N, C, H, W], not {x}")
    if rois.shape is not None:
        require(compatible(rois.shape, (*rois.shape[:1], columns)), f"regions are [R, {columns}], not {rois}")
    count = rois.shape[0] if rois.shape is not None else fresh_symbol("regions")
    channels = x.shape[1] if x.shape is not None else fresh_symbol("channels")
    return x.like((count, channels, height, width))
