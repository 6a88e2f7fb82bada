"""`info`: what the file holds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from edgerun import __version__
from edgerun.board.common import open_file, show
from edgerun.board.hooks import Hooks
from edgerun.board.model import BoardModel
from edgerun.board.options import Options
from edgerun.dims import shape_text
from edgerun.report import Report


def document_of(file: Path, model: BoardModel, hooks: Hooks) -> dict[str, Any]:
    """What `info --json` prints."""
    ports = {"inputs": hooks.inputs(model.inputs), "outputs": model.outputs}
    return {
        "version": __version__, "engine": "python", "backend": model.backend, "isa": model.isa, "nodes": model.nodes,
        "file_bytes": file.stat().st_size, "plan_bytes": model.payload_bytes, "weight_bytes": model.weight_bytes,
        "arena_bytes": model.arena_bytes, **{k: [_port(p) for p in v] for k, v in ports.items()},
        "manifest": model.manifest,
    }  # fmt: skip


def command(file: Path, options: Options, started: float) -> int:
    """What is inside."""
    model, hooks = open_file(file, options, 1)
    m = model.manifest
    if options.json:
        show(Report(document_of(file, model, hooks)), options)
        return 0
    source = m.get("model") or {}
    rows = [
        ("model", source.get("name")), ("source", source.get("file")), ("sha256", source.get("sha256")),
        ("opset", source.get("opset")), ("target", (m.get("target") or {}).get("name")),
        ("packed by", m.get("packed_by")), ("engine", f"python {sys.version.split()[0]}, numpy {np.__version__}"),
        ("needs", f"glibc {m.get('glibc')}"), ("runtime", __version__), ("backend", model.backend),
        ("isa", model.isa), ("nodes", model.nodes), ("script", m.get("script")),
    ]  # fmt: skip
    for label, value in rows:
        if value not in (None, ""):
            print(f"{label:<12} {value}")
    for label, found in (("input", hooks.inputs(model.inputs)), ("output", model.outputs)):
        for p in found:
            print(f"{label:<12} {p.name}: {p.dtype.short}{shape_text(p.shape)}")
    print(f"{'file':<12} {file.stat().st_size / 1e6:.2f} MB (weights {model.weight_bytes / 1e6:.2f} MB)")
    if m.get("ram_bytes"):
        print(f"{'ram':<12} {m['ram_bytes'] / 1e6:.2f} MB predicted at its peak")
        for part in m["ram"]:
            print(f"  {part['part']:<36} {part['bytes'] / 1e6:10.3f} MB")
    if m.get("unpacked_bytes"):
        print(f"{'unpacks':<12} {m['unpacked_bytes'] / 1e6:.2f} MB into $TMPDIR (default /tmp) while it runs")
    return 0


def _port(port: Any) -> dict[str, Any]:
    shape = None if port.shape is None else [d if isinstance(d, int) else None for d in port.shape]
    return {"name": port.name, "dtype": port.dtype.short, "shape": shape}
