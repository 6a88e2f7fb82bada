"""Image decoding: files written by hand, and what is no image."""

import struct

import numpy as np
import pytest

from edgerun.backends.numpy.registry import find

pytest.importorskip("PIL")
PIXELS = np.array([[[255, 0, 0], [0, 255, 0]], [[0, 0, 255], [10, 20, 30]]], np.uint8)


def bmp(pixels: np.ndarray) -> np.ndarray:
    """An uncompressed 24-bit BMP: rows from the bottom, BGR, padded to four bytes."""
    height, width, _ = pixels.shape
    rows = b"".join(r[:, ::-1].tobytes() + bytes(-width * 3 % 4) for r in pixels[::-1])
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(rows), 0, 0, 0, 0)
    return np.frombuffer(b"BM" + struct.pack("<IHHI", 54 + len(rows), 0, 0, 54) + info + rows, np.uint8)


def pnm(pixels: np.ndarray) -> np.ndarray:
    header = f"P6 {pixels.shape[1]} {pixels.shape[0]} 255\n".encode()
    return np.frombuffer(header + pixels.tobytes(), np.uint8)


@pytest.mark.parametrize("encode", [bmp, pnm])
def test_decodes_to_height_width_channels(encode):
    np.testing.assert_array_equal(find("image_decoder")(encode(PIXELS)), PIXELS)
    np.testing.assert_array_equal(find("image_decoder")(encode(PIXELS), pixel_format="BGR"), PIXELS[:, :, ::-1])


def test_grayscale_has_one_channel():
    gray = find("image_decoder")(bmp(PIXELS), pixel_format="Grayscale")
    luma = PIXELS.astype(float) @ [0.299, 0.587, 0.114]
    assert gray.shape == (2, 2, 1)
    np.testing.assert_allclose(gray[:, :, 0], luma, atol=1)


@pytest.mark.parametrize("data", [b"", b"no image", bmp(PIXELS).tobytes()[:60], pnm(PIXELS).tobytes()[:14]])
def test_damaged_files_give_an_empty_image(data: bytes):
    assert find("image_decoder")(np.frombuffer(data, np.uint8)).shape == (0, 0, 0)


def test_absurd_sizes_are_not_allocated():
    data = np.frombuffer(b"P6 100000 100000 255\n" + bytes(10), np.uint8)
    assert find("image_decoder")(data).shape == (0, 0, 0)
