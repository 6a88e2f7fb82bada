"""Writes GGUF files for tests, by the letter of the specification."""

import struct

import numpy as np

CODES = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(v) -> bytes:
    """Type and content of a metadata value."""
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    if isinstance(v, list):
        items = [value(item) for item in v]
        return struct.pack("<I", 9) + items[0][:4] + struct.pack("<Q", len(v)) + b"".join(i[4:] for i in items)
    code, form = CODES[type(v)]
    return struct.pack("<I", code) + struct.pack(form, v)


def gguf(metadata: dict, tensors: dict[str, tuple[int, tuple[int, ...], bytes]]) -> bytes:
    """`tensors`: name -> (GGML type, shape in NumPy's order, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, v in metadata.items():
        head += text(key) + value(v)
    data = b""
    for name, (kind, shape, raw) in tensors.items():
        data += bytes(-len(data) % 32)
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1])
        head += struct.pack("<IQ", kind, len(data))
        data += raw
    return head + bytes(-len(head) % 32) + data


def f32(array) -> tuple[int, tuple[int, ...], bytes]:
    array = np.ascontiguousarray(array, np.float32)
    return 0, array.shape, array.tobytes()
