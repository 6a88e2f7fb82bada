"""From --input to arrays: .npy, .npz, .raw, images, random, zeros, standard input."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.dims import Dim, shape_text
from edgerun.dtypes import DType
from edgerun.errors import FileFormatError, InputOutputError, UnsupportedError, UsageError
from edgerun.samples import random_values
from edgerun.session import PortInfo

_IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}


def read_inputs(
    ports: Sequence[PortInfo],
    sources: Sequence[str],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    default: str | None = None,
) -> dict[str, Any]:
    """One array per input. `default` ("random", "zeros") serves inputs that no source names.

    Raises UsageError for unknown names, missing inputs and wrong types, InputOutputError for unreadable files.
    """
    by_name = {p.name: p for p in ports}
    wanted: dict[str, str] = {}
    for text in sources:
        name, equals, source = text.partition("=")
        if not equals or (name not in by_name and Path(text).exists()):
            name, source = "", text
        if name:
            if name not in by_name:
                raise UsageError(f"there is no input {name!r}", hint=_nearest(name, by_name))
            wanted[name] = source
        elif source.endswith(".npz") or source in ("random", "zeros"):
            wanted.update(dict.fromkeys(by_name, source))
        elif len(ports) == 1:
            wanted[ports[0].name] = source
        else:
            raise UsageError(f"the model has {len(ports)} inputs", hint="write --input NAME=... for each")
    arrays = {}
    for index, port in enumerate(ports):
        source = wanted.get(port.name, default or "")
        if not source:
            raise UsageError(f"input {port} is missing", hint=f"give --input {port.name}=FILE.npy (or random, zeros)")
        shape = (shapes or {}).get(port.name)
        arrays[port.name] = _read(port, source, shape, seed + index)
    return arrays


class _Pipe:
    """Standard input with nothing but `read`: numpy asks a real file for its position, which a pipe does not have."""

    def read(self, count: int = -1, /) -> bytes:
        return sys.stdin.buffer.read(count)


def more_on_standard_input() -> bool:
    """Whether another record follows."""
    return bool(sys.stdin.buffer.peek(1))  # type: ignore[union-attr]


def _nearest(name: str, known: Mapping[str, PortInfo]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else "the model's inputs are: " + ", ".join(known)


def _read(port: PortInfo, source: str, shape: Sequence[int] | None, seed: int) -> Any:
    if source in ("random", "zeros"):
        fixed = _fixed_shape(port, shape)
        if port.dtype is DType.STRING or port.kind != "tensor":
            raise UnsupportedError(f"no {source} data for input {port}", hint="give it with --input")
        if source == "zeros":
            return np.zeros(fixed, port.dtype.numpy)
        return random_values(port.dtype, fixed, seed)
    suffix = Path(source).suffix.lower()
    try:
        if source == "-":
            return _check(port, np.lib.format.read_array(_Pipe(), allow_pickle=False))
        if source == "raw:-":
            shape = _fixed_shape(port, shape)
            return _raw(port, sys.stdin.buffer.read(int(np.prod(shape, dtype=np.int64)) * port.dtype.itemsize), shape)
        if suffix == ".npy":
            return _check(port, np.load(source, allow_pickle=False))
        if suffix == ".npz":
            return _check(port, _member(np.load(source, allow_pickle=False), port.name, source))
        if suffix == ".txt" and port.dtype is DType.STRING:
            lines = np.array(Path(source).read_text(encoding="utf-8").splitlines(), object)
            return lines.reshape(shape or _text_shape(port, len(lines)))
        if suffix in (".raw", ".bin"):
            return _raw(port, Path(source).read_bytes(), _fixed_shape(port, shape))
    except OSError as e:
        raise InputOutputError(f"cannot read {source}: {e.strerror or e}") from e
    except (ValueError, EOFError) as e:
        where = "standard input" if source == "-" else source
        raise FileFormatError(f"cannot read {where}: {e}") from e
    if suffix in _IMAGES:
        return _image(port, source, _fixed_shape(port, shape))
    raise UsageError(
        f"cannot tell what {source!r} is", hint="an input is .npy, .npz, .raw, an image, random, zeros, - or raw:-"
    )


def _member(archive: Any, name: str, source: str) -> np.ndarray:
    if name in archive:
        return archive[name]
    if len(archive.files) == 1:
        return archive[archive.files[0]]
    raise UsageError(f"{source} has no member {name!r}", hint="it has: " + ", ".join(archive.files))


def _check(port: PortInfo, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "V" and array.dtype.itemsize == port.dtype.itemsize:
        array = array.view(port.dtype.numpy)  # numpy stores ml_dtypes types as plain bytes
    if port.dtype is not DType.STRING and array.dtype != port.dtype.numpy:
        raise UsageError(f"input {port} got {array.dtype}", hint=f"convert it with .astype('{port.dtype.numpy}')")
    return array


def _raw(port: PortInfo, data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    want = int(np.prod(shape, dtype=np.int64)) * port.dtype.itemsize
    if len(data) != want:
        raise UsageError(f"input {port} takes {want} bytes, the file holds {len(data)}")
    return np.frombuffer(data, port.dtype.numpy).reshape(shape)


def _text_shape(port: PortInfo, count: int) -> tuple[int, ...]:
    """The shape of an input read from `count` lines: its own, with one free dimension taking what is left."""
    dims = [d if isinstance(d, int) else -1 for d in port.shape or (-1,)]
    return tuple(dims) if dims.count(-1) <= 1 else (*(1 for _ in dims[1:]), count)


def _fixed_shape(port: PortInfo, shape: Sequence[int] | None) -> tuple[int, ...]:
    if shape is not None:
        return tuple(shape)
    if port.shape is None or any(isinstance(d, Dim) for d in port.shape):
        text = shape_text(port.shape)
        raise UsageError(f"input {port.name!r} has free dimensions {text}", hint=f"give --shape {port.name}=...")
    return tuple(int(d) for d in port.shape)


def _image(port: PortInfo, source: str, shape: tuple[int, ...]) -> np.ndarray:
    """An image resized to the input: [1, C, H, W] or [1, H, W, C], floats in 0..1, bytes as they are."""
    try:
        from PIL import Image
    except ModuleNotFoundError as e:
        raise UnsupportedError("reading images needs Pillow", hint="pip install pillow, or give an .npy file") from e
    if len(shape) != 4 or shape[0] != 1 or not {shape[1], shape[3]} & {1, 3}:
        raise UsageError(f"input {port} is no single image", hint="prepare the data and give an .npy file")
    first = shape[1] in (1, 3)
    channels, height, width = (shape[1], shape[2], shape[3]) if first else (shape[3], shape[1], shape[2])
    try:
        with Image.open(source) as opened:
            image = opened.convert("RGB" if channels == 3 else "L").resize((width, height))
            pixels = np.asarray(image, np.uint8).reshape(height, width, channels)
    except OSError as e:
        raise InputOutputError(f"cannot read the image {source}: {e}") from e
    pixels = pixels.transpose(2, 0, 1) if first else pixels
    values = pixels / np.float32(255) if port.dtype.is_float else pixels
    return np.ascontiguousarray(values[None]).astype(port.dtype.numpy)
