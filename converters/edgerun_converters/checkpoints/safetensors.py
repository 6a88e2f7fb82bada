"""Read safetensors files, single or sharded, as memory-mapped arrays."""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.dtypes import DType
from edgerun.errors import ImportFailure, InputOutputError

MAX_HEADER = 100_000_000
INDEX = "model.safetensors.index.json"
_TYPES = {
    "F64": DType.F64, "F32": DType.F32, "F16": DType.F16, "BF16": DType.BF16, "I64": DType.I64, "I32": DType.I32,
    "I16": DType.I16, "I8": DType.I8, "U64": DType.U64, "U32": DType.U32, "U16": DType.U16, "U8": DType.U8,
    "BOOL": DType.BOOL, "F8_E4M3": DType.F8E4M3FN, "F8_E5M2": DType.F8E5M2,
}  # fmt: skip


def read_file(path: Path) -> dict[str, np.ndarray]:
    """Tensors of one file by name, views of the mapped file. Raises ImportFailure when it breaks the format."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size < 8:
                raise ImportFailure(f"{path} is no safetensors file: it has {size} bytes")
            data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    except OSError as e:
        raise InputOutputError(f"cannot read {path}: {e.strerror}") from e
    length = int.from_bytes(data[:8].tobytes(), "little")
    if length > MAX_HEADER or length > size - 8:
        raise ImportFailure(f"{path} is no safetensors file, or truncated: its header is longer than the file")
    try:
        header = json.loads(data[8 : 8 + length].tobytes())
    except (ValueError, RecursionError) as e:
        raise ImportFailure(f"{path}: the header is not valid JSON") from e
    if not isinstance(header, dict):
        raise ImportFailure(f"{path}: the header is not a JSON object")
    header.pop("__metadata__", None)
    return {name: _tensor(path, name, row, data[8 + length :]) for name, row in header.items()}


def _tensor(path: Path, name: str, row: Any, data: np.ndarray) -> np.ndarray:
    try:
        dtype, shape, (start, end) = _TYPES[row["dtype"]], row["shape"], row["data_offsets"]
    except (TypeError, KeyError, ValueError) as e:
        raise ImportFailure(f"{path}: the entry of tensor {name!r} is malformed or of an unknown type") from e
    numbers = [*shape, start, end] if isinstance(shape, list) else [None]
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 62 for n in numbers):
        raise ImportFailure(f"{path}: the entry of tensor {name!r} is malformed")
    if not start <= end <= data.size or math.prod(shape) * dtype.itemsize != end - start:
        raise ImportFailure(f"{path}: tensor {name!r} does not fit its bytes, or the file is truncated")
    raw = data[start:end]
    if start % dtype.itemsize:
        raw = raw.copy()
    return raw.view(dtype.numpy).reshape(shape)


def read_folder(folder: Path) -> dict[str, np.ndarray]:
    """All tensors of a model folder: the sharded set of its index, or every `*.safetensors` file.

    Raises ImportFailure when shards are missing, lie outside the folder, or name a tensor twice.
    """
    index = folder / INDEX
    if index.exists():
        try:
            table = json.loads(index.read_text())["weight_map"]
            files = sorted(set(table.values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise ImportFailure(f"{index} is malformed") from e
        if not all(isinstance(f, str) and Path(f).name == f for f in files):
            raise ImportFailure(f"{index} names a file outside its folder")
        paths = [folder / f for f in files]
        missing = [p.name for p in paths if not p.exists()]
        if missing:
            raise ImportFailure(f"{folder} lacks the shards " + ", ".join(missing))
    else:
        paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ImportFailure(f"there is no safetensors file in {folder}")
    tensors: dict[str, np.ndarray] = {}
    for path in paths:
        for name, array in read_file(path).items():
            if name in tensors:
                raise ImportFailure(f"{folder}: tensor {name!r} is stored twice")
            tensors[name] = array
    return tensors
