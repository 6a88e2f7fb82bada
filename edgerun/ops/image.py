"""Decoding of compressed images. NumPy backend only."""

from __future__ import annotations

from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, fresh_symbol, op, require

PIXEL_FORMATS = ("RGB", "BGR", "Grayscale")


@op("image")
def image_decoder(data: TensorType, *, pixel_format: str = "RGB") -> TensorType:
    """Decode a file (1-D u8) to [height, width, channels] u8; [0, 0, 0] when it is no image that can be read.

    BMP, JPEG, JPEG 2000, TIFF, PNG, WebP and PNM. Needs the Pillow package when it runs.
    """
    require(data.dtype is DType.U8, f"an encoded image is u8, not {data.dtype.short}")
    require(data.shape is None or len(data.shape) == 1, "an encoded image is a list of bytes")
    require(pixel_format in PIXEL_FORMATS, f"the pixel format {pixel_format!r} is not one of {PIXEL_FORMATS}")
    return TensorType(DType.U8, (fresh_symbol("height"), fresh_symbol("width"), fresh_symbol("channels")))
