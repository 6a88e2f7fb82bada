"""A model as a WebAssembly module: a folder that a web server, node or a WASI host can use as it is.

model.wasm     runtime and model in one module: a WASI reactor that exports the functions of edgerun_model.h
edgerun.mjs    a class around it, for browsers, workers, node and deno
run.mjs        runs the model with node
index.html     runs the model in a page
"""

from __future__ import annotations

import shutil
from pathlib import Path

from edgerun import __version__
from edgerun.errors import BudgetExceeded
from edgerun.files import atomic_write
from edgerun.graph import Graph
from edgerun.plan import PlanReader
from edgerun_packaging import budgets as limits
from edgerun_packaging import remedies, stubs
from edgerun_packaging.budgets import Budgets, Footprint, Part
from edgerun_packaging.library_pack import SOURCES, make_folder
from edgerun_packaging.pack import Options, Packed, compile_plan, provenance_of, require_bounds
from edgerun_packaging.wasm_module import memory_bytes, with_plan
from edgerun_targets import Target

WEB = ("edgerun.mjs", "run.mjs", "index.html")
_PAGE = 65536
_TABLES = 6 * _PAGE
"""What malloc takes for the tables of some hundred nodes and small inputs: it grows in steps."""


def pack_wasm(
    graph: Graph,
    target: Target,
    folder: Path,
    *,
    source: Path | None = None,
    budgets: Budgets | None = None,
    options: Options | None = None,
    force: bool = False,
) -> Packed:
    """Write the module and its companions. The description is that of the module.

    Raises UnsupportedError, BudgetExceeded, BackendUnavailable as `edgerun_packaging.pack.pack` does, FileFormatError
    when the model does not fit into 4 GiB, and InputOutputError when the folder holds other files.
    """
    budgets = budgets or Budgets()
    require_bounds(graph)
    library = stubs.find(target.arch, "wasm").read_bytes()
    plan = compile_plan(graph, target, options or Options())
    module = with_plan(library, plan)
    footprint = _footprint(library, module, PlanReader(plan))
    excess = limits.check(footprint, budgets)
    if excess:

        def predict(trial: remedies.Trial) -> Footprint:
            other = compile_plan(trial.graph, target, Options(plan=trial.plan))
            return _footprint(library, with_plan(library, other), PlanReader(other))

        now = remedies.Trial(graph, 1, dict(options.plan or {}) if options else {}, False)
        raise BudgetExceeded(limits.describe(excess, remedies.find(now, footprint, target, source, predict)))
    make_folder(folder, {"model.wasm", *WEB}, force)
    with atomic_write(folder / "model.wasm", force=True) as file:
        file.write(module)
    for name in WEB:
        shutil.copyfile(SOURCES / "web" / name, folder / name)
    manifest = {
        "packed_by": f"edgerun {__version__}",
        "model": provenance_of(graph, source),
        "target": target.as_dict(),
        "budgets": budgets.as_dict(),
    }
    return Packed(folder / "model.wasm", target, len(module), footprint, manifest, None)


def _footprint(library: bytes, module: bytes, plan: PlanReader) -> Footprint:
    """Size of the module and its linear memory, in bytes; without the copies of inputs, and the host's own memory."""
    weights = len(plan.weights)
    size = [
        Part("runtime and kernels", len(library)),
        Part("plan tables", len(module) - len(library) - weights),
        Part("weights", weights),
    ]
    memory = memory_bytes(module)
    ram = [
        Part("weights and tables", memory - memory_bytes(library)),
        Part("stack and data", memory_bytes(library)),
        Part("arena", -(-plan.arena_bytes // _PAGE) * _PAGE),
        Part("scratch", -(-plan.thread_scratch_bytes // _PAGE) * _PAGE),
        Part("tables", _TABLES),
    ]
    return Footprint(size, ram)
