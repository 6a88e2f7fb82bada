"""`edgerun inspect`: what is in a model."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from edgerun.cli.options import common, model_argument, parse_dims, parse_shapes, shape_options
from edgerun.errors import UsageError
from edgerun.report import Column, Report, Table, size_text


@click.command("inspect")
@model_argument
@click.option("--nodes", is_flag=True, help="Every node instead of the counts by op.")
@click.option("--weights", is_flag=True, help="Every weight tensor.")
@click.option("--no-optimize", is_flag=True, help="The graph as imported.")
@click.option(
    "--diff", type=click.Path(exists=True, dir_okay=False), help="An older packed file: what grew, and where."
)
@click.option("--chart", type=click.Path(dir_okay=False), help="Draw the memory of a packed file: .svg or .png.")
@click.option("--force", is_flag=True, help="Replace the drawing when it exists.")
@click.option("--text", type=click.Path(dir_okay=False), help="How many tokens a language model needs for this file.")
@shape_options
@common
def command(
    model: str,
    nodes: bool,
    weights: bool,
    no_optimize: bool,
    diff: str | None,
    chart: str | None,
    force: bool,
    text: str | None,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
) -> Report:
    """Show what is in a model, or what a packed file is made of.

    \b
    $ edgerun inspect model.onnx
    $ edgerun inspect model.onnx --nodes --format csv
    $ edgerun inspect ./packed-model --format json
    $ edgerun inspect ./packed-model --diff ./yesterdays-model
    $ edgerun inspect ./packed-model --chart memory.svg
    $ edgerun inspect smollm2.edge --text sample.txt

    Of a model inputs, outputs, ops and weights; of a packed file its manifest, what it needs of the machine, what its
    bytes are, and the memory that it takes over time.
    """
    magic = b"" if Path(model).is_dir() else _head(model)
    if text is not None:
        return _text_report(model, text)
    if magic == b"EDGEPLAN" or magic[:4] == b"\x7fELF":
        from edgerun.cli.inspect_packed import packed_report

        return packed_report(Path(model), Path(diff) if diff else None, Path(chart) if chart else None, force)
    if diff or chart:
        raise UsageError(f"{model} is not packed", hint="--diff and --chart are for packed files and plans")
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


def _head(model: str) -> bytes:
    with Path(model).open("rb") as file:
        return file.read(8)


def _text_report(model: str, path: str) -> Report:
    """Tokens by script."""
    from edgerun.errors import UsageError
    from edgerun.session import load
    from edgerun.text.fertility import measure
    from edgerun.text.tokenizer import Tokenizer
    from edgerun.text.vocabulary import from_bytes

    session = load(model, "numpy")
    if "tokenizer" not in session.assets:
        raise UsageError(f"{model} is no language model with a tokenizer")
    tokenizer = Tokenizer(from_bytes(session.assets["tokenizer"]))
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    found = measure(tokenizer, text)
    least = min((row.tokens / row.characters for row in found if row.script != "Other"), default=1.0)
    rows = [
        {
            "script": row.script,
            "words": row.words,
            "characters": row.characters,
            "tokens": row.tokens,
            "tokens_per_word": row.tokens / row.words,
            "tokens_per_character": row.tokens / row.characters,
            "fragments_percent": 100 * row.fragments / row.tokens if row.tokens else 0.0,
            "cost": row.tokens / row.characters / least,
        }
        for row in found
    ]
    total, context = len(tokenizer.encode(text, specials=False)), session.meta.get("text", {}).get("context")
    columns = [Column("script", left=True), Column("words"), Column("characters"), Column("tokens"),
               *(Column(name, lambda v: f"{v:.2f}")
                 for name in ("tokens_per_word", "tokens_per_character", "fragments_percent", "cost"))]  # fmt: skip
    notes = [
        f"{total} tokens in all; the context of the model is {context}",
        "fragments: tokens that are no whole characters; cost: tokens for a character, the cheapest script 1",
    ]
    return Report({"model": model, "text": path, "tokens": total, "context": context, "scripts": rows},
                  [Table(rows, columns)] if rows else [], notes)  # fmt: skip
