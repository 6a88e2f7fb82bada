"""RoiAlign, MaxRoiPool and NonMaxSuppression of ai.onnx."""

from __future__ import annotations

from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering

_KINDS = {"avg": "average", "max": "max"}


@lowering("RoiAlign")
def roi_align(b: Builder, n: OnnxNode) -> None:
    mode = n.attr("mode", "avg")
    if mode not in _KINDS:
        raise UnsupportedError(f"RoiAlign has no mode {mode!r}")
    coordinate = n.attr("coordinate_transformation_mode", "half_pixel" if n.opset >= 16 else "output_half_pixel")
    if coordinate not in ("half_pixel", "output_half_pixel"):
        raise UnsupportedError(f"RoiAlign has no coordinate transformation {coordinate!r}")
    n.bind(
        b.one(
            "roi_align",
            [n.input(0), n.input(1), n.input(2)],
            kind=_KINDS[mode],
            height=int(n.attr("output_height", 1)),
            width=int(n.attr("output_width", 1)),
            sampling_ratio=int(n.attr("sampling_ratio", 0)),
            spatial_scale=float(n.attr("spatial_scale", 1.0)),
            half_pixel=coordinate == "half_pixel",
        )
    )


@lowering("MaxRoiPool")
def max_roi_pool(b: Builder, n: OnnxNode) -> None:
    height, width = (int(s) for s in n.attr("pooled_shape"))
    n.bind(
        b.one(
            "max_roi_pool",
            [n.input(0), n.input(1)],
            height=height,
            width=width,
            spatial_scale=float(n.attr("spatial_scale", 1.0)),
        )
    )


@lowering("NonMaxSuppression")
def non_max_suppression(b: Builder, n: OnnxNode) -> None:
    inputs = [n.input(k) for k in range(5)]
    n.bind(b.one("non_max_suppression", inputs, center_point_box=bool(n.attr("center_point_box", 0))))
