"""`edgerun pack`: one executable for a board."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from edgerun.cli.options import DurationType, SizeType, common, model_argument, parse_dims, parse_shapes, shape_options
from edgerun.report import Column, Report, Table, size_text


@click.command("pack")
@model_argument
@click.option("--target", default="host", help="Board or architecture (see `edgerun targets`), or a .toml profile.")
@click.option("-o", "--output", type=click.Path(), help="Default: the model's name and the target's.")
@click.option("--max-size", type=SizeType(), help="Budget of the file, such as 24MB.")
@click.option("--max-ram", type=SizeType(), help="Budget of the peak resident memory, such as 80MB.")
@click.option("--max-latency", type=DurationType(), help="Budget of the median run, such as 40ms.")
@click.option("--threads", type=click.IntRange(0), default=0, help="Threads that the RAM prediction assumes.")
@click.option("--engine", type=click.Choice(["native", "python"]), default="native", help="What is in the file.")
@click.option(
    "--backend", type=click.Choice(["auto", "native", "numpy", "wgpu"]), default="auto", help="Engine python only."
)
@click.option("--with", "script", type=click.Path(exists=True, dir_okay=False), help="Engine python: a script around.")
@click.option(
    "--python-root", type=click.Path(exists=True, file_okay=False), help="Engine python: the target's CPython."
)
@click.option("--golden", type=click.Path(exists=True, dir_okay=False), help="Inputs (and outputs) for selftest, .npz.")
@click.option("--no-golden", is_flag=True, help="Store no golden vectors: selftest then checks the weights only.")
@click.option("--seed", type=click.IntRange(0), default=0, help="For golden inputs that are drawn.")
@click.option("--sign", "key", type=click.Path(exists=True, dir_okay=False), help="Ed25519 private key (PEM).")
@click.option("--require-signature", is_flag=True, help="The executable verifies its signature at every start.")
@click.option("--no-winograd", is_flag=True, help="Direct convolutions: less memory for weights, more time.")
@shape_options
@click.option("--force", is_flag=True, help="Replace the output when it exists.")
@partial(common, products=("lib",))
def command(
    model: str,
    target: str,
    output: str | None,
    max_size: int | None,
    max_ram: int | None,
    max_latency: float | None,
    threads: int,
    engine: str,
    backend: str,
    script: str | None,
    python_root: str | None,
    golden: str | None,
    no_golden: bool,
    seed: int,
    key: str | None,
    require_signature: bool,
    no_winograd: bool,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
    force: bool,
    product: str | None,
) -> tuple[Report, int]:
    """Make one executable for a board from a model. The board needs nothing but a Linux kernel.

    \b
    $ edgerun pack model.onnx --target aarch64
    $ edgerun pack model.onnx --target rpi4 --max-size 24MB --max-ram 80MB -o model
    $ edgerun pack model.onnx --target rpi4 --format lib -o libmodel

    Engine python puts CPython and NumPy beside the native kernels, for models with ops that have none (strings), and
    for Python code before and after the model (--with): docs/python-engine.md.

    On the board: ./model info, run, bench, selftest, serve. Exit status 1 when a budget is not kept; then nothing is
    written. For this machine the latency is measured; for a board with a known clock it is estimated from its profile,
    and `./model bench` checks it there. --format lib makes a folder with a shared and a static C
    library of the model and their header, --target wasm32 one with a WebAssembly module and a page that runs it.
    """
    from edgerun.cli.launch import run_packed
    from edgerun.cli.progress import stage
    from edgerun.errors import InputOutputError, UsageError
    from edgerun.machine import host_arch
    from edgerun.session import load_graph
    from edgerun_packaging.budgets import Budgets
    from edgerun_packaging.library_pack import pack_library
    from edgerun_packaging.pack import Options, pack
    from edgerun_packaging.wasm_pack import pack_wasm
    from edgerun_targets import load

    board = load(target)
    web = board.arch == "wasm32"
    if engine == "native" and (script or python_root or backend in ("numpy", "wgpu")):
        raise UsageError("--with, --python-root, --backend numpy and --backend wgpu need --engine python")
    if engine == "python" and (product or web):
        raise UsageError("engine python makes executables only", hint="leave --format lib or --engine python out")
    if (product or web) and max_latency is not None:
        raise UsageError("--max-latency measures an executable", hint="leave it out, or choose another product")
    suffix = "-lib" if product and not web else ""
    path = Path(output) if output else Path(f"{Path(model).stem}-{board.name}{suffix}")
    if path.exists() and not force:
        raise InputOutputError(f"{path} exists already", hint="use --force to replace it, or -o for another name")
    with stage("importing and optimising"):
        graph = load_graph(model, shapes=parse_shapes(shapes), dims=parse_dims(dims))
    budgets = Budgets(max_size, max_ram, max_latency)
    if (key and (product or web)) or (require_signature and not key):
        raise UsageError("--sign is for executables, --require-signature for what is signed")
    choices = {"winograd": False} if no_winograd else None
    options = Options(threads, not (no_golden or product or web), Path(golden) if golden else None, seed, choices)
    options = replace(options, key=Path(key) if key else None, require_signature=require_signature)
    with stage(f"packing for {board.name}"):
        make: Any = pack_wasm if web else pack_library if product else pack
        if engine == "python":
            from edgerun_packaging.freeze.build import PythonOptions, freeze

            python = PythonOptions(
                backend, Path(script) if script else None, Path(python_root) if python_root else None
            )
            make = partial(freeze, python=python)
        packed = make(graph, board, path, source=Path(model), budgets=budgets, options=options, force=force)
    document = packed.as_dict()
    size = [Column("part", left=True), Column("bytes", size_text)]
    tables = [Table(document["size"], size, "file"), Table(document["ram"], size, "RAM at its peak, predicted")]
    notes = [f"{path}: {size_text(packed.bytes)} for {board.name}, RAM {size_text(packed.footprint.ram_bytes)}"]
    code = 0
    if max_latency is not None and board.arch == host_arch():
        bench = run_packed(str(path), "bench", ["--seconds", "1"])
        median = min(row["p50_ms"] for row in bench["rows"])
        code = 1 if median > max_latency * 1e3 else 0
        document["p50_ms"] = median
        notes.append(f"median {median:.3f} ms on this machine, budget {max_latency * 1e3:.3f} ms")
        if code:
            path.unlink()
            notes.append(f"over the latency budget: {path} was removed")
    elif packed.latency is not None:
        expected = packed.latency
        notes.append(
            f"about {expected.seconds * 1e3:.1f} ms a run, an estimate ({expected.basis}); ./{path.name} bench measures"
        )
    elif max_latency is not None:
        notes.append(f"the latency budget is checked on the board: ./{path.name} bench")
    return Report(document, tables, notes), code
