"""From a model to one executable: plan for the target, add golden vectors and manifest, append to the stub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgerun import __version__
from edgerun.errors import BudgetExceeded, FileFormatError, InputOutputError, UnsupportedError
from edgerun.files import atomic_write
from edgerun.graph import Graph
from edgerun.packed import FOOTER_BYTES, SIGNATURE_BYTES, assemble, padding
from edgerun.plan import PlanReader
from edgerun_packaging import budgets as limits
from edgerun_packaging import remedies, stubs
from edgerun_packaging.budgets import Budgets, Footprint
from edgerun_packaging.elf import Audit, audit
from edgerun_packaging.extras import with_extras
from edgerun_packaging.footprint import predict
from edgerun_packaging.golden import Golden, make
from edgerun_packaging.latency import Estimate, estimate
from edgerun_packaging.signing import sign
from edgerun_targets import Target


@dataclass(frozen=True, slots=True)
class Options:
    """Choices that shape the packed file. `threads`: what the RAM prediction assumes; 0 = the target's big cores."""

    threads: int = 0
    golden: bool = True
    golden_file: Path | None = None
    seed: int = 0
    plan: Mapping[str, object] | None = None
    """Options of the native lowering."""
    key: Path | None = None
    """Private key (PEM) to sign the plan with."""
    require_signature: bool = False
    """Whether the executable verifies its signature whenever it starts."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What was made."""

    path: Path
    target: Target
    bytes: int
    footprint: Footprint
    manifest: dict[str, Any]
    stub: Audit | None
    """None where the file is no ELF file."""
    latency: Estimate | None = None

    def as_dict(self) -> dict[str, Any]:
        """For reports. Sizes in bytes."""
        return {
            "path": str(self.path),
            "target": self.target.name,
            "arch": self.target.arch,
            "bytes": self.bytes,
            "ram_bytes": self.footprint.ram_bytes,
            "size": [p.as_dict() for p in self.footprint.size],
            "ram": [p.as_dict() for p in self.footprint.ram],
            "latency": self.latency.as_dict() if self.latency else None,
            "elf": self.stub.as_dict() if self.stub else None,
            "manifest": self.manifest,
        }


def pack(
    graph: Graph,
    target: Target,
    path: Path,
    *,
    source: Path | None = None,
    budgets: Budgets | None = None,
    options: Options | None = None,
    force: bool = False,
    kind: str = "executable",
) -> Packed:
    """Write an executable for `target` to `path` and return its description. The file appears whole or not at all.

    `kind` "shared" makes a shared library in its place (`edgerun_packaging.library_pack` adds what belongs to it).

    `source` is the model file that the manifest names. Raises InputOutputError when `path` exists and `force` is false,
    UnsupportedError listing all nodes that the native backend cannot run, BudgetExceeded with the table of parts,
    BackendUnavailable when the stub is missing and cannot be built.
    """
    budgets, options = budgets or Budgets(), options or Options()
    if path.exists() and not force:
        raise InputOutputError(f"{path} exists already", hint="use --force to replace it, or -o for another name")
    require_bounds(graph)
    stub = stubs.find(target.arch, kind).read_bytes()
    elf = audit(stub, f"the stub for {target.arch}")
    if elf.static != (kind == "executable") or elf.machine != target.arch:
        raise FileFormatError(f"the stub for {target.arch} is no {kind} {target.arch} file", hint="make stubs")
    reader = PlanReader(compile_plan(graph, target, options))
    golden = None
    if options.golden:
        golden = make(graph, reader, seed=options.seed, file=options.golden_file)
    threads = options.threads or max(target.cores, 1)
    provenance = provenance_of(graph, source)
    text = {"text": graph.meta["text"]} if "text" in graph.meta else {}
    trailer = FOOTER_BYTES + (SIGNATURE_BYTES if options.key is not None else 0)
    plan, footprint, manifest = _finish(
        reader, golden, elf, len(stub), threads, provenance, target, budgets, text, trailer
    )
    expected = estimate(graph, target, threads)
    excess = limits.check(footprint, budgets, *((expected.seconds, expected.basis) if expected else ()))
    if excess:

        def predict_trial(trial: remedies.Trial) -> Footprint:
            other = PlanReader(compile_plan(trial.graph, target, replace(options, plan=trial.plan)))
            vectors = golden if trial.golden else None
            return _finish(other, vectors, elf, len(stub), trial.threads, provenance, target, budgets, text, trailer)[1]

        now = remedies.Trial(graph, threads, dict(options.plan or {}), golden is not None)
        found = remedies.find(now, footprint, target, source, predict_trial)
        raise BudgetExceeded(limits.describe(excess, found))
    signature = b""
    if options.key is not None:
        signature = sign(plan, options.key, required=options.require_signature).encode()
    pieces = assemble(stub, plan, target.arch, signature)
    with atomic_write(path, force=force, mode=0o755) as file:
        for piece in pieces:
            file.write(piece)
    return Packed(path, target, sum(map(len, pieces)), footprint, manifest, elf, expected)


def require_bounds(graph: Graph) -> None:
    """Raise UnsupportedError naming every free dimension of the inputs that has no largest size."""
    free = [s for s in sorted(graph.free_symbols()) if graph.symbols.get(s, (0, None))[1] is None]
    if free:
        problems = [f"dimension {s!r} has no largest size: give --dim {s}=LOW..HIGH, or --dim {s}=1" for s in free]
        raise UnsupportedError("; ".join(problems), problems=problems)


def _finish(
    reader: PlanReader,
    golden: Golden | None,
    elf: Audit,
    stub_bytes: int,
    threads: int,
    provenance: dict[str, Any],
    target: Target,
    budgets: Budgets,
    text: Mapping[str, Any],
    trailer: int,
) -> tuple[bytes, Footprint, dict[str, Any]]:
    """The plan with manifest and golden vectors. The manifest tells its own size: a first pass finds it.

    `text`: what the manifest of a language model says besides; `trailer`: bytes behind the plan.
    """
    vectors = golden.vectors if golden else []
    manifest: dict[str, Any] = {}
    extras = 4096
    for _ in range(3):
        footprint = predict(
            reader,
            elf,
            stub_bytes,
            padding=padding(stub_bytes, target.arch) + trailer,
            extras=extras,
            threads=threads,
        )
        manifest = {
            "packed_by": f"edgerun {__version__}",
            "model": provenance,
            "target": target.as_dict(),
            "budgets": budgets.as_dict(),
            "threads": threads,
            "ram": [p.as_dict() for p in footprint.ram],
            "ram_bytes": footprint.ram_bytes,
            "golden": [golden.manifest] if golden else [],
            **text,
        }
        plan = with_extras(reader.data, json.dumps(manifest, separators=(",", ":")).encode() + b"\0", vectors)
        if len(plan) - len(reader.data) == extras:
            break
        extras = len(plan) - len(reader.data)
    return plan, footprint, manifest


def compile_plan(graph: Graph, target: Target, options: Options) -> bytes:
    """The plan of a graph for a target. Raises UnsupportedError listing all nodes that no native kernel can run."""
    from edgerun.backends.native.backend import build_plan

    return build_plan(graph, target.arch, options=dict(options.plan or {}))


def provenance_of(graph: Graph, source: Path | None) -> dict[str, Any]:
    """Where the model came from: what the importer noted in the graph, else the file given."""
    meta = graph.meta
    record: dict[str, Any] = {
        "name": graph.name,
        "file": meta.get("source") or (source.name if source else None),
        "sha256": meta.get("sha256"),
        "opset": meta.get("opset_imports"),
        "producer": meta.get("producer") or None,
        "converter": meta.get("converter"),
    }
    if record["sha256"] is None and source is not None:
        record["sha256"] = hashlib.sha256(source.read_bytes()).hexdigest()
    return record
