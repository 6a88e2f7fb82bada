"""Resampling, regions, boxes, Fourier transforms, pictures."""

from __future__ import annotations

import struct

import numpy as np

from tests.properties.case import Case
from tests.properties.draw import Drawer, covers, one

f32, f64 = np.float32, np.float64


@covers("resize")
def resize_by_scales(d: Drawer) -> Case:
    mode = d.pick("nearest", "linear", "cubic")
    x = d.normal(1, d.int(1, 3), d.int(1, 6), d.int(1, 6))
    scales = np.array([1, 1, d.pick(0.5, 1, 1.5, 2, 3, 0.6), d.pick(0.5, 1, 1.5, 2, 3, 0.6)], f32)
    if int(x.shape[2] * scales[2]) < 1 or int(x.shape[3] * scales[3]) < 1:
        scales[:] = 1, 1, 2, 2
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": d.pick("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = d.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": d.pick(-0.75, -0.5), "exclude_outside": d.int(0, 1)}
    feeds = {"x": x, "roi": np.zeros(0, f32), "s": scales}
    corners = attributes["coordinate_transformation_mode"] == "align_corners"
    whole = all(float(s * n).is_integer() for s, n in zip(scales, x.shape, strict=True))
    reason = "" if whole or not corners else "onnxruntime rounds the size before it divides by it, against the suite"
    constant = d.pick(("roi", "s"), ("roi",))
    return one("Resize", feeds, attributes, opset=13, constant=constant, atol=1e-4, no_oracle=reason)


@covers("resize")
def resize_to_sizes(d: Drawer) -> Case:
    x = d.normal(1, 2, d.int(1, 6), d.int(1, 6))
    sizes = np.array([1, 2, d.int(1, 9), x.shape[3] + d.int(1, 3)])
    attributes = {"mode": d.pick("nearest", "linear"), "antialias": 0}
    if attributes["mode"] == "linear" and d.bool():
        attributes["antialias"] = 1
    feeds = {"x": x, "roi": None, "s": None, "sizes": sizes}
    return one("Resize", feeds, attributes, opset=19, constant=d.pick(("sizes",), ()), atol=1e-4)


@covers("grid_sample")
def grid_sample(d: Drawer) -> Case:
    n, c = d.int(1, 2), d.int(1, 3)
    three = d.bool()
    sizes, out = ([d.int(1, 4) for _ in range(3 if three else 2)] for _ in range(2))
    mode = d.pick("linear", "nearest", *(() if three else ("cubic",)))
    feeds = {"x": d.normal(n, c, *sizes), "g": d.uniform(n, *out, len(sizes), low=-1.4, high=1.4)}
    attributes = {"mode": mode, "padding_mode": d.pick("zeros", "border", "reflection"), "align_corners": d.int(0, 1)}
    return one("GridSample", feeds, attributes, opset=20, rtol=1e-3, atol=1e-3)


@covers("affine_grid")
def affine_grid(d: Drawer) -> Case:
    n, spatial = d.int(1, 2), d.int(2, 3)
    size = np.array([n, d.int(1, 3), *(d.int(2, 4) for _ in range(spatial))])
    feeds = {"t": d.normal(n, spatial, spatial + 1), "s": size}
    return one("AffineGrid", feeds, {"align_corners": d.int(0, 1)}, opset=20)


@covers("col2im")
def col2im(d: Drawer) -> Case:
    block, image = [d.int(1, 3), d.int(1, 3)], [d.int(3, 5), d.int(3, 5)]
    strides, pads = [d.int(1, 2), d.int(1, 2)], [d.int(0, 1) for _ in range(4)]
    counts = [(image[i] + pads[i] + pads[i + 2] - block[i]) // strides[i] + 1 for i in range(2)]
    n, c = d.int(1, 2), d.int(1, 2)
    x = d.normal(n, c * block[0] * block[1], counts[0] * counts[1])
    feeds = {"x": x, "i": np.array(image), "b": np.array(block)}
    constant = d.pick((), ("i", "b"))
    return one("Col2Im", feeds, {"strides": strides, "pads": pads}, opset=18, constant=constant, sized=("i", "b"))


def regions(d: Drawer, count: int) -> np.ndarray:
    corners = d.uniform(count, 2, low=0, high=5)
    return np.concatenate([corners, corners + d.uniform(count, 2, low=0.5, high=4)], 1)


@covers("roi_align")
def roi_align(d: Drawer) -> Case:
    n, count = d.int(1, 2), d.int(0, 3)
    feeds = {"x": d.normal(n, d.int(1, 3), 7, 8), "r": regions(d, count), "b": d.integers(count, low=0, high=n - 1)}
    mode = d.pick("avg", "max")
    attributes = {
        "mode": mode, "output_height": d.int(1, 3), "output_width": d.int(1, 3), "sampling_ratio": d.int(0, 2),
        "spatial_scale": d.pick(1.0, 0.5), "coordinate_transformation_mode": d.pick("half_pixel", "output_half_pixel"),
    }  # fmt: skip
    reason = "onnxruntime takes the largest weighted corner instead of the largest sample" if mode == "max" else ""
    return one("RoiAlign", feeds, attributes, opset=16, no_oracle=reason, rtol=1e-3, atol=1e-4)


@covers("max_roi_pool")
def max_roi_pool(d: Drawer) -> Case:
    n, count = d.int(1, 2), d.int(1, 3)
    boxes = np.round(regions(d, count))
    batch = d.integers(count, 1, low=0, high=n - 1).astype(f32)
    feeds = {"x": d.normal(n, d.int(1, 3), 7, 8), "r": np.concatenate([batch, boxes], 1)}
    attributes = {"pooled_shape": [d.int(1, 3), d.int(1, 3)], "spatial_scale": d.pick(1.0, 0.5)}
    return one("MaxRoiPool", feeds, attributes, opset=1)


@covers("non_max_suppression")
def non_max_suppression(d: Drawer) -> Case:
    batch, count, classes = d.int(1, 2), d.int(1, 6), d.int(1, 3)
    boxes = np.stack([regions(d, count) for _ in range(batch)])
    feeds = {
        "boxes": boxes, "scores": d.uniform(batch, classes, count, low=0, high=1), "m": np.array([d.int(0, 4)]),
        "iou": np.array([d.pick(0.0, 0.3, 0.7)], f32), "s": np.array([d.pick(0.0, 0.4)], f32) if d.bool() else None,
    }  # fmt: skip
    return one("NonMaxSuppression", feeds, {"center_point_box": d.int(0, 1)}, opset=11)


@covers("dft")
def dft(d: Drawer) -> Case:
    shape = d.shape(low=2, high=3, smallest=1, largest=7)
    onesided, inverse = d.bool(), d.bool()
    if onesided and inverse:
        inverse = False
    x = d.normal(*shape, 1 if onesided else d.pick(1, 2), dtype=d.pick(f32, f64))
    length = np.array(d.int(1, 9)) if d.bool() else None
    feeds = {"x": x, "l": length, "a": np.array(d.int(0, len(shape) - 1))}
    attributes = {"inverse": int(inverse), "onesided": int(onesided)}
    return one("DFT", feeds, attributes, opset=20, constant=d.pick(("l", "a"), ("a",)), rtol=1e-3, atol=1e-4)


@covers("stft")
def stft(d: Drawer) -> Case:
    frame, hop = d.int(1, 6), d.int(1, 3)
    x = d.normal(d.int(1, 2), d.int(frame, 12), 1)
    window = d.uniform(frame) if d.bool() else None
    feeds = {"x": x, "hop": np.array(hop), "w": window, "l": np.array(frame)}
    constant = ("hop", "w", "l")
    return one("STFT", feeds, {"onesided": d.int(0, 1)}, opset=17, constant=constant, rtol=1e-3, atol=1e-4)


@covers("window")
def window(d: Drawer) -> Case:
    kind = d.pick("HannWindow", "HammingWindow", "BlackmanWindow")
    attributes = {"periodic": d.int(0, 1), "output_datatype": d.pick(1, 11)}
    return one(kind, {"n": np.array(d.int(2, 9), d.pick(np.int32, np.int64))}, attributes, opset=17)


@covers("mel_weights")
def mel_weights(d: Drawer) -> Case:
    length = d.pick(8, 16, 32)
    feeds = {
        "b": np.array(d.int(1, 6)), "l": np.array(length), "r": np.array(8192), "lo": np.array(d.pick(0.0, 80.0), f32),
        "hi": np.array(d.pick(2000.0, 4096.0), f32),
    }  # fmt: skip
    return one("MelWeightMatrix", feeds, opset=17)


def bitmap(pixels: np.ndarray) -> np.ndarray:
    """An uncompressed 24-bit BMP of [H, W, RGB]: rows from the bottom, BGR, padded to four bytes."""
    height, width, _ = pixels.shape
    rows = b"".join(r[:, ::-1].tobytes() + bytes(-width * 3 % 4) for r in pixels[::-1])
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(rows), 0, 0, 0, 0)
    return np.frombuffer(b"BM" + struct.pack("<IHHI", 54 + len(rows), 0, 0, 54) + info + rows, np.uint8)


@covers("image_decoder", no_oracle="onnxruntime has no ImageDecoder")
def image_decoder(d: Drawer) -> Case:
    pixels = d.integers(d.int(1, 4), d.int(1, 4), 3, low=0, high=255, dtype=np.uint8)
    return one("ImageDecoder", {"x": bitmap(pixels)}, {"pixel_format": d.pick("RGB", "BGR", "Grayscale")}, opset=20)
