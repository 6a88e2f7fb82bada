"""Read an ONNX file: bytes to ModelProto, and the opsets it asks for. Every failure is one clear ImportFailure."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from edgerun.errors import ImportFailure, InputOutputError, UnsupportedError
from edgerun_converters.onnx.tensors import ExternalData

MAX_FILE = (1 << 31) - 1
"""Protobuf's own limit on one message."""


@dataclass(frozen=True)
class Source:
    """A parsed model file."""

    model: onnx.ModelProto
    external: ExternalData
    origin: str
    """The file's name, for messages."""
    sha256: str
    opsets: dict[str, int]
    """Imported version by domain; "" is ai.onnx."""


def read(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> Source:
    """Parse a model given by path, bytes or proto. External data is only found for paths.

    Raises InputOutputError when the file cannot be read, ImportFailure when it is no ONNX model, UnsupportedError when
    it asks for a newer opset than the installed onnx knows.
    """
    folder: Path | None = None
    if isinstance(model, onnx.ModelProto):
        proto, origin = model, model.graph.name or "model"
        digest = hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()
    else:
        if isinstance(model, bytes):
            data, origin = model, "model"
        else:
            path = Path(model)
            data, origin, folder = _read_file(path), path.name, path.parent
        proto = _parse(data, origin)
        digest = hashlib.sha256(data).hexdigest()
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ImportFailure(f"{origin} holds no graph", hint="is it an ONNX model?")
    return Source(proto, ExternalData(folder), origin, digest, _opsets(proto, origin))


def _read_file(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > MAX_FILE:
            raise ImportFailure(
                f"{path} has {size} bytes; a protobuf message ends at 2 GiB",
                hint="save the model with external data: onnx.save(model, path, save_as_external_data=True)",
            )
        return path.read_bytes()
    except OSError as e:
        raise InputOutputError(f"cannot read {path}: {e.strerror or e}") from e


def _parse(data: bytes, origin: str) -> onnx.ModelProto:
    if not data:
        raise ImportFailure(f"{origin} is empty")
    if data.startswith(b"version https://git-lfs"):
        raise ImportFailure(f"{origin} is a Git LFS pointer, not the model", hint="run `git lfs pull`")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError, ValueError) as e:
        raise ImportFailure(f"{origin} is not an ONNX model, or is damaged: the protobuf cannot be parsed") from e
    _check_text(model, origin)
    return model


def _check_text(message: Message, origin: str) -> None:
    """Every string field must be text: protobuf hands out bytes for what is not UTF-8."""
    for descriptor, value in message.ListFields():
        if descriptor.type == FieldDescriptor.TYPE_STRING:
            for item in [value] if isinstance(value, str | bytes) else value:
                if not isinstance(item, str):
                    raise ImportFailure(f"{origin} is damaged: the {descriptor.name} {item[:40]!r} is not valid text")
        elif descriptor.type == FieldDescriptor.TYPE_MESSAGE:
            for item in [value] if isinstance(value, Message) else value:
                _check_text(item, origin)


def _opsets(model: onnx.ModelProto, origin: str) -> dict[str, int]:
    opsets = {clean_domain(o.domain): int(o.version) for o in model.opset_import}
    if not opsets and model.ir_version < 3:
        opsets[""] = 1  # before IR 3 there was only one opset
    check_opset(opsets.get(""), origin)
    return opsets


def check_opset(version: int | None, origin: str) -> None:
    """Raise UnsupportedError when this version of ai.onnx is newer than the installed onnx package knows, ImportFailure
    when there never was one; None passes. What old opsets lack is judged by node (`legacy`)."""
    newest = onnx.defs.onnx_opset_version()
    if version is None:
        return
    if version < 1:
        raise ImportFailure(f"{origin} uses opset {version}, which does not exist")
    if version > newest:
        raise UnsupportedError(
            f"{origin} uses opset {version}; the installed onnx {onnx.__version__} knows up to {newest}",
            hint="upgrade the onnx package, or export with an older opset",
        )


def clean_domain(domain: str) -> str:
    """The domain with its alias resolved: ai.onnx is "" everywhere."""
    return "" if domain == "ai.onnx" else domain
