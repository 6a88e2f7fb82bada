"""Read PyTorch state dicts (`.pt`, `.pth`) without PyTorch and without running what the pickle asks for.

A file that `torch.save` wrote is a zip: `NAME/data.pkl`, and `NAME/data/KEY` with the bytes of each storage. The pickle
is read by an unpickler that knows only tensors and plain containers; any other global is refused by name, so a hostile
file cannot import or call anything. Files of the old, non-zip format are refused with the remedy.
"""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.dtypes import DType
from edgerun.errors import ImportFailure, InputOutputError

MAX_PICKLE = 1 << 28
"""Largest data.pkl that is read; the tensors themselves lie outside it."""

_STORAGES = {
    "DoubleStorage": DType.F64, "FloatStorage": DType.F32, "HalfStorage": DType.F16, "BFloat16Storage": DType.BF16,
    "LongStorage": DType.I64, "IntStorage": DType.I32, "ShortStorage": DType.I16, "CharStorage": DType.I8,
    "ByteStorage": DType.U8, "BoolStorage": DType.BOOL,
}  # fmt: skip


class _Sealed:
    """What a pickle may hold of ours: it has no attributes that the BUILD instruction could set."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise ImportFailure("the pickle changes the state of an object that has none")


class _StorageType(_Sealed):
    """Stands for `torch.FloatStorage` and its like."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype


class _Function(_Sealed):
    """Stands for a function of torch that pickles call."""

    __slots__ = ("body",)

    def __init__(self, body: Callable[..., Any]) -> None:
        self.body = body

    def __call__(self, *arguments: Any) -> Any:
        return self.body(*arguments)


def read_file(path: Path) -> dict[str, np.ndarray]:
    """Tensors of a state dict by name. Nested containers (an optimiser's, a trainer's) are flattened with dots.

    Raises ImportFailure when the file holds anything but tensors and plain containers, or is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _read_archive(path, archive)
    except zipfile.BadZipFile as e:
        raise ImportFailure(
            f"{path} is not a zip file", hint="save it again with torch.save of PyTorch 1.6 or newer"
        ) from e
    except OSError as e:
        raise InputOutputError(f"cannot read {path}: {e.strerror or e}") from e
    except (NotImplementedError, RuntimeError, EOFError) as e:
        raise ImportFailure(f"{path} is damaged: {e}") from e


def _read_archive(path: Path, archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    pickles = [n for n in archive.namelist() if n == "data.pkl" or n.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise ImportFailure(f"{path} holds no PyTorch checkpoint (no data.pkl)", hint="TorchScript is not read")
    prefix = pickles[0].removesuffix("data.pkl")
    if archive.getinfo(pickles[0]).file_size > MAX_PICKLE:
        raise ImportFailure(f"{path}: data.pkl is larger than {MAX_PICKLE} bytes")
    order = f"{prefix}byteorder"
    if order in archive.namelist() and archive.read(order) != b"little":
        raise ImportFailure(f"{path} was saved on a big-endian machine")
    reader = _Unpickler(archive.read(pickles[0]), path, archive, prefix)
    try:
        content = reader.load()
    except ImportFailure:
        raise
    except Exception as e:  # a damaged pickle can fail in any way; none of them ran foreign code
        raise ImportFailure(f"{path}: data.pkl is damaged: {type(e).__name__}: {str(e)[:100]}") from e
    tensors: dict[str, np.ndarray] = {}
    _flatten(content, "", tensors, 0, set())
    if not tensors:
        raise ImportFailure(f"{path} holds no tensors", hint="save model.state_dict()")
    return tensors


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, path: Path, archive: zipfile.ZipFile, prefix: str) -> None:
        super().__init__(io.BytesIO(data))
        self.path = path
        self.archive = archive
        self.prefix = prefix
        self.storages: dict[str, np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Function(self._tensor)
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return _Function(lambda tensor, requires_grad, hooks: tensor)
        if (module, name) == ("torch", "Size"):
            return tuple
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _StorageType(_STORAGES[name])
        raise ImportFailure(
            f"{self.path} asks for {module}.{name}; only tensors and plain containers are read",
            hint="save model.state_dict() instead of the model",
        )

    def persistent_load(self, pid: Any) -> np.ndarray:
        """("storage", type, key, device, count) -> the storage as a flat array."""
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage" and isinstance(pid[1], _StorageType)):
            raise ImportFailure(f"{self.path}: a storage is malformed")
        _, kind, key, _device, count = pid
        if not isinstance(key, str) or not isinstance(count, int):
            raise ImportFailure(f"{self.path}: a storage is malformed")
        if key not in self.storages:
            try:
                info = self.archive.getinfo(f"{self.prefix}data/{key}")
            except KeyError as e:
                raise ImportFailure(f"{self.path}: storage {key!r} is missing") from e
            if info.file_size != count * kind.dtype.itemsize or info.compress_type != zipfile.ZIP_STORED:
                raise ImportFailure(f"{self.path}: storage {key!r} has {info.file_size} bytes for {count} elements")
            self.storages[key] = np.frombuffer(self.archive.read(info), kind.dtype.numpy)
        storage = self.storages[key]
        if storage.dtype != kind.dtype.numpy:
            raise ImportFailure(f"{self.path}: storage {key!r} is used as two types")
        return storage

    def _tensor(self, storage: Any, offset: Any, size: Any, stride: Any, *_ignored: Any) -> np.ndarray:
        """The strided view, after checking that it stays inside its storage."""
        numbers = [offset, *size, *stride]
        if not isinstance(storage, np.ndarray) or len(size) != len(stride) or len(size) > 32:
            raise ImportFailure(f"{self.path}: a tensor is malformed")
        if not all(isinstance(n, int) and 0 <= n < 1 << 48 for n in numbers):
            raise ImportFailure(f"{self.path}: a tensor is malformed")
        last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True) if n)
        if all(size) and last >= storage.size:
            raise ImportFailure(f"{self.path}: a tensor reaches beyond its storage")
        strides = [s * storage.itemsize for s in stride]
        if not all(size):
            return np.zeros(size, storage.dtype)
        return np.lib.stride_tricks.as_strided(storage[offset:], size, strides, writeable=False)


def _flatten(value: Any, prefix: str, tensors: dict[str, np.ndarray], depth: int, seen: set[int]) -> None:
    """Tensors of nested containers; a container that occurs again (or holds itself) counts once."""
    if isinstance(value, np.ndarray):
        tensors[prefix or "tensor"] = value
        return
    items: Any = ()
    if isinstance(value, dict):
        items = dict.items(value)
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    if depth > 8 or id(value) in seen:
        return
    seen.add(id(value))
    for key, inner in items:
        _flatten(inner, f"{prefix}.{key}" if prefix else str(key), tensors, depth + 1, seen)
