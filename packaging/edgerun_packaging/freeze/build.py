"""From a model to a one-file executable of engine python."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgerun import __version__, bundle
from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.board.model import META
from edgerun.board.numpy_model import weights_digest
from edgerun.errors import BudgetExceeded, EdgerunError, InputOutputError, UnsupportedError, UsageError
from edgerun.files import atomic_write
from edgerun.graph import Graph
from edgerun.packed import FOOTER_BYTES, assemble, padding
from edgerun.plan import PlanReader
from edgerun_packaging import budgets as limits
from edgerun_packaging import golden as golden_vectors
from edgerun_packaging.budgets import Budgets, Footprint
from edgerun_packaging.elf import audit
from edgerun_packaging.extras import with_extras
from edgerun_packaging.freeze import archive, footprint, target_python
from edgerun_packaging.freeze import front as stub
from edgerun_packaging.freeze.contents import Contents, collect
from edgerun_packaging.pack import Options, Packed, compile_plan, provenance_of, require_bounds
from edgerun_targets import Target

BACKENDS = ("auto", "native", "numpy", "wgpu")


@dataclass(frozen=True, slots=True)
class PythonOptions:
    """What engine python takes besides. `backend` "auto": native where it covers the model, else NumPy."""

    backend: str = "auto"
    script: Path | None = None
    python_root: Path | None = None


def freeze(
    graph: Graph,
    target: Target,
    path: Path,
    *,
    source: Path | None = None,
    budgets: Budgets | None = None,
    options: Options | None = None,
    python: PythonOptions | None = None,
    force: bool = False,
) -> Packed:
    """Write a one-file executable with CPython and NumPy inside; arguments and errors as for `pack.pack`.

    Also raises UnsupportedError for an architecture other than x86_64 and aarch64, and BackendUnavailable when parts
    must be downloaded and cannot be.
    """
    budgets, options, python = budgets or Budgets(), options or Options(), python or PythonOptions()
    if path.exists() and not force:
        raise InputOutputError(f"{path} exists already", hint="use --force to replace it, or -o for another name")
    if python.backend not in BACKENDS:
        raise UsageError(
            f"there is no backend {python.backend!r} for this engine", hint="one of " + ", ".join(BACKENDS)
        )
    interpreter = target_python.find(target.arch, python.python_root)
    plan = _plan(graph, target, options, python.backend)
    backend = "wgpu" if python.backend == "wgpu" else "numpy" if plan is None else "native"
    with tempfile.TemporaryDirectory(prefix="edgerun-freeze-") as folder:
        work = Path(folder)
        contents = collect(interpreter, backend=backend, script=python.script, work=work)
        entry = work / "model.py"
        shutil.copyfile(Path(bundle.__file__).parent / "board" / "__main__.py", entry)
        package = work / "package"
        module_bytes = archive.write(
            package, contents.modules, contents.files, contents.data, entry, contents.python_library
        )
        front = stub.build(
            target.arch, contents.bootloader.read_bytes(), contents.unpacked_bytes, contents.needs.glibc, work
        )
        about = _about(graph, source, target, budgets, options, python, contents) | {"backend": backend}
        make = _plan_payload if plan is not None else _bundle_payload
        payload, manifest, predicted = make(graph, plan, options, about, contents, len(front), package, module_bytes)
        excess = limits.check(predicted, budgets)
        if excess:
            raise BudgetExceeded(limits.describe(excess, footprint.remedies(predicted)))
        pieces = assemble(front, payload, target.arch, package.read_bytes())
        with atomic_write(path, force=force, mode=0o755) as file:
            for piece in pieces:
                file.write(piece)
        elf = audit(front, "the front")
        elf.versions["GLIBC"] = f"GLIBC_{contents.needs.glibc_text}"
        elf.needed = sorted({*elf.needed, *contents.needs.libraries})
    return Packed(path, target, sum(map(len, pieces)), predicted, manifest, elf)


def _plan(graph: Graph, target: Target, options: Options, backend: str) -> PlanReader | None:
    """The native plan, or None when the model runs on NumPy: asked for, or because an op has no native kernel.

    Raises UnsupportedError when only the largest sizes of free dimensions are missing for a plan.
    """
    if backend in ("numpy", "wgpu"):
        return None
    try:
        return PlanReader(compile_plan(graph, target, options))
    except UnsupportedError:
        if backend == "native":
            raise
    bounded = graph.copy()
    bounded.symbols = {
        s: (low, high if high is not None else max(low or 0, 1)) for s, (low, high) in graph.symbols.items()
    }
    for name in graph.free_symbols() - graph.symbols.keys():
        bounded.symbols[name] = (0, 1)
    try:
        compile_plan(bounded, target, options)
    except EdgerunError:
        return None
    require_bounds(graph)
    return None


def _about(
    graph: Graph,
    source: Path | None,
    target: Target,
    budgets: Budgets,
    options: Options,
    python: PythonOptions,
    contents: Contents,
) -> dict[str, Any]:
    """The manifest without what depends on the payload."""
    script = python.script
    return {
        "packed_by": f"edgerun {__version__}",
        "engine": "python",
        "model": provenance_of(graph, source),
        "target": target.as_dict(),
        "budgets": budgets.as_dict(),
        "threads": options.threads or max(target.cores, 1),
        "script": script.name if script else None,
        "script_sha256": hashlib.sha256(script.read_bytes()).hexdigest() if script else None,
        "glibc": contents.needs.glibc_text,
        "libraries": list(contents.needs.libraries),
        "unpacked_bytes": contents.unpacked_bytes,
        "contents": contents.origin,
    }


def _plan_payload(
    graph: Graph,
    reader: PlanReader | None,
    options: Options,
    about: dict[str, Any],
    contents: Contents,
    front: int,
    package: Path,
    module_bytes: int,
) -> tuple[bytes, dict[str, Any], Footprint]:
    """The plan with manifest and golden vectors, as engine native stores them."""
    assert reader is not None
    made = golden_vectors.make(graph, reader, seed=options.seed, file=options.golden_file) if options.golden else None
    ports = (*reader.inputs, *reader.outputs)
    predicted = footprint.predict(
        contents,
        front,
        padding(front, reader.arch) + FOOTER_BYTES,
        package.stat().st_size,
        module_bytes,
        payload=len(reader.data),
        weights=len(reader.weights),
        work=reader.arena_bytes,
        io=sum(reader.tensors[number].bytes for number, _ in ports),
        threads=about["threads"],
        scratch=reader.thread_scratch_bytes,
    )
    manifest = about | _ram(predicted) | {"golden": [made.manifest] if made else []}
    text = json.dumps(manifest, separators=(",", ":")).encode() + b"\0"
    return with_extras(reader.data, text, made.vectors if made else []), manifest, predicted


def _bundle_payload(
    graph: Graph,
    _: PlanReader | None,
    options: Options,
    about: dict[str, Any],
    contents: Contents,
    front: int,
    package: Path,
    module_bytes: int,
) -> tuple[bytes, dict[str, Any], Footprint]:
    """The bundle; manifest and golden vectors are part of the graph's meta data."""
    golden, activations = _numpy_golden(graph, options) if options.golden else (None, 0)
    plain = bundle.to_bytes(graph)
    start = 8 + int.from_bytes(plain[:8], "little")
    predicted = footprint.predict(
        contents, front, padding(front, about["target"]["arch"]) + FOOTER_BYTES, package.stat().st_size, module_bytes,
        payload=len(plain), weights=len(plain) - start, work=activations, io=0, threads=1, scratch=0,
    )  # fmt: skip
    manifest = about | _ram(predicted) | {"golden": [golden] if golden else []}
    manifest["weights_sha256"] = weights_digest(plain)
    copy = graph.copy()
    copy.meta[META] = manifest
    return bundle.to_bytes(copy), manifest, predicted


def _ram(predicted: Footprint) -> dict[str, Any]:
    return {"ram": [p.as_dict() for p in predicted.ram], "ram_bytes": predicted.ram_bytes}


def _numpy_golden(graph: Graph, options: Options) -> tuple[dict[str, Any], int]:
    """One golden set as JSON, and the largest sum of live activations in bytes (a bound by what one node touches)."""
    inputs = golden_vectors.inputs_of(graph, options.seed, options.golden_file)
    peak = 0

    def observe(_: Any, results: Sequence[Any]) -> None:
        nonlocal peak
        peak = max(peak, sum(int(r.nbytes) for r in results if isinstance(r, np.ndarray)))

    outputs = NumpyExecutor(graph).run(inputs, observer=observe)
    drawn = options.golden_file is None
    rows = [_golden_row(name, np.asarray(value)) for name, value in outputs.items()]
    document = {
        "source": "random" if drawn else "file",
        "seed": options.seed if drawn else None,
        "reference": "numpy",
        "shapes": [list(np.shape(v)) for v in inputs.values()],
        "inputs": None if drawn else [np.asarray(v).ravel().tolist() for v in inputs.values()],
        "outputs": rows,
    }
    return document, 2 * peak


def _golden_row(name: str, array: np.ndarray) -> dict[str, Any]:
    count = min(array.size, golden_vectors.OUTPUT_SAMPLES)
    picks = np.arange(count) * array.size // max(count, 1)
    values = array.ravel()[picks]
    text = array.dtype.kind in "OUS"
    atol, rtol = (0.0, 0.0) if text else golden_vectors.tolerance(array)
    return {
        "output": name, "size": array.size, "dtype": "string" if text else "number", "atol": atol, "rtol": rtol,
        "values": [str(v) for v in values] if text else values.astype(np.float64).tolist(),
    }  # fmt: skip
