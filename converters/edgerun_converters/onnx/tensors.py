"""ONNX tensors as NumPy arrays, with every size checked before anything is allocated.

Dense data comes from `raw_data`, the typed fields, or a separate file; the result is a view of the source bytes where
the layout allows it. Types below a byte are unpacked to one element a byte. The rules are those of onnx.proto.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import onnx

from edgerun.dtypes import DType, from_onnx
from edgerun.errors import ImportFailure

MAX_RANK = 32
MAX_DENSE_BYTES = 1 << 30
"""Largest tensor that a sparse one may expand to: its file size does not bound it."""

_PACKED = {DType.U4, DType.I4, DType.F4E2M1, DType.U2, DType.I2}
_INT32_FIELD = {
    DType.I32, DType.I16, DType.I8, DType.U16, DType.U8, DType.BOOL, DType.F16, DType.BF16, DType.F8E4M3FN,
    DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ, DType.F8E8M0, *_PACKED,
}  # fmt: skip
_BIT_PATTERNS = {
    DType.F16, DType.BF16, DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ, DType.F8E8M0,
}  # fmt: skip
"""Types whose bits, not values, are stored in int32_data."""


class ExternalData:
    """Files beside the model that hold tensor data, mapped into memory on first use.

    Only regular files inside `folder` are opened: a location that is absolute, climbs with `..`, or leaves the folder
    through a symbolic link is refused.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._files: dict[str, np.ndarray] = {}

    def read(self, location: str, offset: int, length: int | None, what: str) -> np.ndarray:
        """`length` bytes (None: up to the end) at `offset`, as a read-only uint8 view. Raises ImportFailure."""
        data = self._map(location, what)
        end = data.size if length is None else offset + length
        if not 0 <= offset <= end <= data.size:
            raise ImportFailure(
                f"{what}: bytes {offset} to {end} lie outside {location!r}, which has {data.size}",
                hint="the data file is truncated or belongs to another model",
            )
        return data[offset:end]

    def _map(self, location: str, what: str) -> np.ndarray:
        if location in self._files:
            return self._files[location]
        path = self._resolve(location, what)
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except OSError as e:
            raise ImportFailure(
                f"{what}: cannot read its data file {location!r}: {e.strerror or e}",
                hint="keep the data files in the model's folder",
            ) from e
        self._files[location] = np.frombuffer(data, np.uint8)
        return self._files[location]

    def _resolve(self, location: str, what: str) -> Path:
        if self.folder is None:
            raise ImportFailure(f"{what}: its data is in the file {location!r}", hint="import the model by its path")
        posix, windows = PurePosixPath(location), PureWindowsPath(location)
        if not location or "\0" in location or posix.is_absolute() or windows.drive or windows.root:
            raise ImportFailure(f"{what}: the data file {location!r} is not a relative path")
        if ".." in posix.parts or ".." in windows.parts:
            raise ImportFailure(f"{what}: the data file {location!r} is outside the model's folder")
        try:
            path = (self.folder / location).resolve()
            inside = path.is_relative_to(self.folder.resolve())
            regular = path.is_file()
        except (OSError, RuntimeError) as e:
            raise ImportFailure(f"{what}: cannot resolve the data file {location!r}") from e
        if not inside:
            raise ImportFailure(f"{what}: the data file {location!r} is outside the model's folder")
        if not regular:
            raise ImportFailure(
                f"{what}: its data file {location!r} is missing", hint="keep the data files in the model's folder"
            )
        return path


def check_dims(dims: Sequence[int], what: str) -> tuple[int, ...]:
    """The dims of a stored tensor as numbers. Raises ImportFailure for negative or too many dims."""
    if len(dims) > MAX_RANK or any(d < 0 for d in dims):
        shown = ", ".join(str(d) for d in dims[:8]) + (", ..." if len(dims) > 8 else "")
        raise ImportFailure(f"{what} has the impossible shape [{shown}]")
    return tuple(int(d) for d in dims)


def tensor_dtype(number: int, what: str) -> DType:
    """The dtype of a TensorProto.DataType number. Raises ImportFailure when there is none."""
    try:
        return from_onnx(number)
    except KeyError:
        raise ImportFailure(f"{what} has the unknown element type {number}") from None


def decode(tensor: onnx.TensorProto, external: ExternalData, what: str) -> np.ndarray:
    """The elements of a tensor; strings as an object array of str (bytes where the text is not UTF-8).

    Raises ImportFailure naming `what` when type, shape and data do not agree.
    """
    dims = check_dims(tensor.dims, what)
    dtype = tensor_dtype(tensor.data_type, what)
    if tensor.HasField("segment"):
        raise ImportFailure(f"{what} is stored in segments, which no known exporter writes")
    if dtype is DType.STRING:
        return _strings(tensor, dims, what)
    count = math.prod(dims)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _from_bytes(_external_bytes(tensor, external, what), dtype, count, what).reshape(dims)
    if tensor.HasField("raw_data"):
        return _from_bytes(np.frombuffer(tensor.raw_data, np.uint8), dtype, count, what).reshape(dims)
    return _from_fields(tensor, dtype, count, what).reshape(dims)


def _strings(tensor: onnx.TensorProto, dims: tuple[int, ...], what: str) -> np.ndarray:
    count = math.prod(dims)
    if len(tensor.string_data) != count:
        raise ImportFailure(f"{what} of shape {list(dims)} has {len(tensor.string_data)} strings")
    array = np.empty(count, object)
    for i, value in enumerate(tensor.string_data):
        array[i] = text(value)
    return array.reshape(dims)


def text(value: bytes) -> str | bytes:
    """Bytes as text; as they are when they are not UTF-8."""
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _external_bytes(tensor: onnx.TensorProto, external: ExternalData, what: str) -> np.ndarray:
    entries = {e.key: e.value for e in tensor.external_data}
    numbers: dict[str, int | None] = {"offset": 0, "length": None}
    for key in numbers:
        if entries.get(key):
            value = entries[key]
            if not value.isascii() or not value.isdigit() or len(value) > 18:
                raise ImportFailure(f"{what}: the {key} {value[:40]!r} of its external data is not a number")
            numbers[key] = int(value)
    return external.read(entries.get("location", ""), numbers["offset"] or 0, numbers["length"], what)


def _from_bytes(raw: np.ndarray, dtype: DType, count: int, what: str) -> np.ndarray:
    """`count` elements in little-endian bytes."""
    expected = -(-count * dtype.bits // 8)
    if raw.size != expected:
        raise ImportFailure(f"{what} needs {expected} bytes of data but has {raw.size}")
    if dtype in _PACKED:
        return _unpack(raw, dtype, count)
    if dtype is DType.BOOL:
        return raw != 0
    return raw.view(dtype.numpy)


def _unpack(raw: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """Elements of 2 or 4 bits, the first in the low bits, as one element a byte."""
    per_byte = 8 // dtype.bits
    shifts = np.arange(per_byte, dtype=np.uint8) * dtype.bits
    codes = ((raw[:, None] >> shifts) & ((1 << dtype.bits) - 1)).reshape(-1)[:count]
    if dtype is DType.F4E2M1:
        return np.ascontiguousarray(codes.astype(np.uint8)).view(dtype.numpy)
    if dtype.is_signed:
        half = 1 << (dtype.bits - 1)
        return ((codes.astype(np.int8) ^ half) - half).astype(dtype.numpy)
    return codes.astype(dtype.numpy)


def _from_fields(tensor: onnx.TensorProto, dtype: DType, count: int, what: str) -> np.ndarray:
    if dtype in _INT32_FIELD:
        values = np.array(tensor.int32_data, np.int64)
        if dtype in _PACKED:
            return _from_bytes(values.astype(np.uint8), dtype, count, what)
        if dtype in _BIT_PATTERNS:
            array = values.astype(np.uint16 if dtype.bits == 16 else np.uint8).view(dtype.numpy)
        else:
            array = values.astype(dtype.numpy)
    else:
        array = _wide_field(tensor, dtype)
    if array.size != count:
        raise ImportFailure(f"{what} of shape {list(tensor.dims)} has {array.size} elements of data")
    return array


def _wide_field(tensor: onnx.TensorProto, dtype: DType) -> np.ndarray:
    fields: dict[DType, Any] = {
        DType.F32: tensor.float_data, DType.C64: tensor.float_data, DType.F64: tensor.double_data,
        DType.C128: tensor.double_data, DType.I64: tensor.int64_data, DType.U32: tensor.uint64_data,
        DType.U64: tensor.uint64_data,
    }  # fmt: skip
    field = fields[dtype]
    if dtype is DType.C64:
        values = np.array(field, np.float32)
        return values[: values.size // 2 * 2].view(np.complex64)
    if dtype is DType.C128:
        values = np.array(field, np.float64)
        return values[: values.size // 2 * 2].view(np.complex128)
    if dtype is DType.U32:
        return np.array(field, np.uint64).astype(np.uint32)
    return np.array(field, dtype.numpy)


def decode_sparse(sparse: onnx.SparseTensorProto, external: ExternalData, what: str) -> np.ndarray:
    """A sparse tensor (values, and their indices either linear or by axis) as a dense one. Raises ImportFailure."""
    dims = check_dims(sparse.dims, what)
    values = decode(sparse.values, external, f"values of {what}")
    indices = decode(sparse.indices, external, f"indices of {what}")
    count = math.prod(dims)
    if count * values.itemsize > MAX_DENSE_BYTES:
        raise ImportFailure(f"{what} of shape {list(dims)} is too large to be stored densely")
    if values.ndim != 1 or indices.dtype != np.int64 or indices.shape[:1] != values.shape or indices.ndim > 2:
        raise ImportFailure(f"{what}: values {values.shape} and indices {indices.shape} do not agree")
    if indices.ndim == 2:
        if indices.shape[1] != len(dims) or ((indices < 0) | (indices >= np.array(dims, np.int64))).any():
            raise ImportFailure(f"{what}: an index is outside the shape {list(dims)}")
        indices = np.ravel_multi_index(tuple(indices.T), dims) if len(dims) else indices[:, 0]
    if values.size and (indices.min() < 0 or indices.max() >= count):
        raise ImportFailure(f"{what}: an index is outside the shape {list(dims)}")
    dense = np.zeros(count, values.dtype)
    dense[indices] = values
    return dense.reshape(dims)
