"""`edgerun inspect`: what is in a model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from edgerun.cli.options import common, model_argument, parse_dims, parse_shapes, shape_options
from edgerun.report import Column, Report, Table, size_text


@click.command("inspect")
@model_argument
@click.option("--nodes", is_flag=True, help="Every node instead of the counts by op.")
@click.option("--weights", is_flag=True, help="Every weight tensor.")
@click.option("--no-optimize", is_flag=True, help="The graph as imported.")
@shape_options
@common
def command(
    model: str, nodes: bool, weights: bool, no_optimize: bool, shapes: tuple[str, ...], dims: tuple[str, ...]
) -> Report:
    """Show inputs, outputs, ops and weights of a model, or the manifest of a packed file.

    \b
    $ edgerun inspect model.onnx
    $ edgerun inspect model.onnx --nodes --format csv
    $ edgerun inspect ./packed-model --format json
    """
    with Path(model).open("rb") as file:
        magic = file.read(8)
    if magic == b"EDGEPLAN" or magic[:4] == b"\x7fELF":
        return _plan_report(model)
    from edgerun.session import load_graph

    graph = load_graph(model, shapes=parse_shapes(shapes), dims=parse_dims(dims), optimize=not no_optimize)
    from edgerun.ops.registry import count_macs

    rows: list[dict[str, Any]] = []
    for index, node in enumerate(graph.nodes):
        out = graph.tensors[node.outputs[0]] if node.outputs and node.outputs[0] else None
        macs = count_macs(graph, node)
        rows.append(
            {
                "index": index,
                "op": node.op,
                "node": node.name,
                "output": str(out) if out else "",
                "macs": macs if isinstance(macs, int) else str(macs),
            }
        )
    tensors = [
        {"name": t.name, "dtype": t.dtype.short, "shape": str(list(t.shape or ())), "bytes": t.data.nbytes}
        for t in graph.tensors.values()
        if t.data is not None
    ]
    counts = Counter(n.op for n in graph.nodes)
    ops = [{"op": op, "count": n} for op, n in counts.most_common()]
    ports = [_port("input", graph.tensors[i]) for i in graph.feeds]
    ports += [_port("output", graph.tensors[o]) for o in graph.results]
    document = {
        "model": model,
        "meta": graph.meta,
        "ports": ports,
        "nodes": rows,
        "ops": ops,
        "weights": tensors,
        "weight_bytes": graph.weight_bytes(),
    }
    ports_table = Table(ports, [Column(c, left=True) for c in ("kind", "name", "dtype", "shape")])
    tables = [ports_table]
    if nodes:
        node_columns = [Column("index"), *(Column(c, left=True) for c in ("op", "node", "output")), Column("macs")]
        tables.insert(0, Table(rows, node_columns))
    if weights:
        weight_columns = [*(Column(c, left=True) for c in ("name", "dtype", "shape")), Column("bytes")]
        tables.insert(0, Table(tensors, weight_columns))
    if not nodes and not weights:
        tables.append(Table(ops, [Column("op", left=True), Column("count")]))
    total: Any = sum(count_macs(graph, node) for node in graph.nodes)
    work = f"{total / 1e6:.2f} million" if isinstance(total, int) else str(total)
    notes = [f"{len(rows)} nodes, weights {size_text(graph.weight_bytes())}, {work} MACs"]
    return Report(document, tables, notes)


def _port(kind: str, tensor: Any) -> dict[str, Any]:
    shape = None if tensor.shape is None else [d if isinstance(d, int) else str(d) for d in tensor.shape]
    return {"kind": kind, "name": tensor.name, "dtype": tensor.dtype.short, "shape": shape}


def _plan_report(model: str) -> Report:
    """The manifest of a plan or packed file, and the ELF needs of the latter."""
    from edgerun.packed import map_plan, read_footer
    from edgerun.plan import read_manifest

    plan = map_plan(model)
    document: dict[str, Any] = {"file": model, "plan_bytes": len(plan), "manifest": read_manifest(plan)}
    notes = [f"plan {size_text(len(plan))}"]
    with Path(model).open("rb") as file:
        head = file.read(4)
    if head == b"\x7fELF":
        from edgerun_packaging.elf import audit

        footer = read_footer(model)
        with Path(model).open("rb") as file:
            stub = audit(file.read(footer.stub_bytes), model)
        document["elf"] = stub.as_dict()
        needs = "static, needs only a Linux kernel" if stub.static else "needs " + ", ".join(stub.needed)
        notes.append(f"stub {size_text(footer.stub_bytes)} for {stub.machine}: {needs}")
    rows = _flatten(document["manifest"] or {})
    columns = [Column("field", left=True), Column("value", left=True)]
    return Report(document, [Table(rows, columns)] if rows else [], notes)


def _flatten(value: Any, prefix: str = "") -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [row for k, v in value.items() for row in _flatten(v, f"{prefix}.{k}" if prefix else str(k))]
    if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        return [row for i, v in enumerate(value) for row in _flatten(v, f"{prefix}.{i}")]
    return [{"field": prefix, "value": str(value)}]
