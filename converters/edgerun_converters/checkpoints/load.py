"""Checkpoints of any kind to a graph: model folders, safetensors files, PyTorch state dicts, GGUF files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgerun import __version__
from edgerun.errors import ImportFailure, ShapeError
from edgerun.graph import Graph
from edgerun.session import CHECKPOINTS
from edgerun_converters.checkpoints import pytorch, safetensors
from edgerun_converters.checkpoints.checkpoint import Checkpoint, choose, misfit, read_json
from edgerun_converters.checkpoints.gguf_models import read_gguf
from edgerun_converters.checkpoints.packed import Packed
from edgerun_converters.onnx.builder import Builder
from edgerun_converters.passes.bind import bind

PYTORCH = (".pt", ".pth", ".bin")
WRAPPERS = ("module.", "state_dict.", "model_state_dict.", "model.", "net.")
"""What trainers put before the names of a state dict."""


def import_checkpoint(
    path: Path,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Graph:
    """The graph of a trained checkpoint: a folder with config.json and weights, or a file (session.CHECKPOINTS).

    A configuration is read from config.json in the folder or beside the file; without one the architecture is
    recognised by the names of the tensors. Raises ImportFailure for a damaged file or a checkpoint that does not fit
    its configuration (all misfits at once), UnsupportedError for an unknown architecture.
    """
    checkpoint = _read(path)
    checkpoint.options = dict(options or {})
    row = choose(path, checkpoint.config, checkpoint.tensors)
    graph = Graph(path.stem if path.is_file() else path.resolve().name)
    try:
        row.build(checkpoint, Builder(graph))
    except ShapeError as e:  # a consequence of the misfits found so far
        if not checkpoint.problems:
            raise
        raise misfit(row.name, checkpoint.problems) from e
    graph.meta |= {
        "source": path.name,
        "architecture": row.name,
        "sha256": _digest(checkpoint.tensors),
        "converter": f"edgerun {__version__}",
    }
    graph.prune()
    graph.check()
    return bind(graph, shapes or {}, dims or {}) if shapes or dims else graph


def _read(path: Path) -> Checkpoint:
    if path.is_dir():
        config = read_json(path / "config.json")
        if any(path.glob("*.safetensors")):
            return Checkpoint(path, config, safetensors.read_folder(path))
        for name in ("pytorch_model.bin", "model.pt", "model.pth"):
            if (path / name).exists():
                return Checkpoint(path, config, unwrapped(pytorch.read_file(path / name)))
        raise ImportFailure(f"{path} holds neither *.safetensors nor pytorch_model.bin")
    if path.suffix == ".safetensors":
        tensors = safetensors.read_file(path)
    elif path.suffix in PYTORCH:
        tensors = unwrapped(pytorch.read_file(path))
    elif path.suffix == ".gguf":
        return read_gguf(path)
    else:
        raise ImportFailure(f"{path} is no checkpoint", hint="known endings: " + ", ".join(CHECKPOINTS))
    beside = path.with_name("config.json")
    return Checkpoint(path, read_json(beside) if beside.exists() else {}, tensors)


def unwrapped(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The state dict inside what a trainer saved: without the optimiser, and without a common start of the names."""
    for wrapper in ("state_dict.", "model_state_dict.", "model."):
        inner = {k[len(wrapper) :]: v for k, v in tensors.items() if k.startswith(wrapper)}
        others = {k.split(".")[0] for k in tensors if not k.startswith(wrapper)}
        if inner and others & {"optimizer", "optimizer_state_dict", "epoch", "optimizers", "ema", "state_dict_ema"}:
            tensors = inner
    while True:
        for wrapper in WRAPPERS:
            if tensors and all(k.startswith(wrapper) for k in tensors):
                tensors = {k[len(wrapper) :]: v for k, v in tensors.items()}
                break
        else:
            return tensors


def _digest(tensors: Mapping[str, Any]) -> str:
    """SHA-256 over names, shapes and bytes of all tensors."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        found = tensors[name]
        digest.update(f"{name}{found.dtype}{found.shape}".encode())
        for array in (found.codes, found.scales, found.zeros) if isinstance(found, Packed) else (found,):
            if array is not None:
                digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
