"""NumPy kernel of image decoding, by Pillow."""

from __future__ import annotations

import io
import warnings

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.errors import BackendUnavailable

MAX_PIXELS = 1 << 28
"""Largest image that is decoded: a small file can claim any size."""

_FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")


@kernel("image_decoder")
def image_decoder(data: np.ndarray, *, pixel_format: str = "RGB") -> np.ndarray:
    """See edgerun.ops.image.image_decoder. Raises BackendUnavailable without Pillow."""
    try:
        from PIL import Image
    except ModuleNotFoundError as e:
        raise BackendUnavailable("decoding images needs Pillow", hint="pip install pillow") from e
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data.tobytes()), formats=_FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    return np.zeros((0, 0, 0), np.uint8)
                pixels = np.asarray(image.convert("L" if pixel_format == "Grayscale" else "RGB"))
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):
        return np.zeros((0, 0, 0), np.uint8)
    if pixel_format == "Grayscale":
        return np.array(pixels[:, :, None])
    return np.array(pixels[:, :, ::-1] if pixel_format == "BGR" else pixels)
