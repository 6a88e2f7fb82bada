"""`edgerun convert`: model to bundle."""

from __future__ import annotations

from pathlib import Path

import click

from edgerun.cli.options import common, model_argument, parse_dims, parse_shapes, shape_options
from edgerun.report import Report, size_text


@click.command("convert")
@model_argument
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Default: MODEL with the ending .edge.")
@shape_options
@click.option("--context", type=click.IntRange(1), help="Tokens that the cache of a language model holds.")
@click.option("--no-optimize", is_flag=True, help="Keep the graph as imported.")
@click.option("--force", is_flag=True, help="Replace the output when it exists.")
@common
def command(
    model: str,
    output: str | None,
    shapes: tuple[str, ...],
    dims: tuple[str, ...],
    context: int | None,
    no_optimize: bool,
    force: bool,
) -> Report:
    """Import a model, optimise it and write a bundle (.edge).

    \b
    $ edgerun convert model.onnx
    $ edgerun convert model.onnx --dim batch=1 --dim seq=1..512 -o model.edge
    $ edgerun convert minilm/                 config.json and *.safetensors
    $ edgerun convert resnet18.pth --shape image=1,3,224,224
    $ edgerun convert smollm2.gguf --context 1024

    A bundle is a valid safetensors file: the graph and its weights, for every target.
    """
    from edgerun import bundle
    from edgerun.cli.progress import stage
    from edgerun.errors import InputOutputError
    from edgerun.session import load_graph

    source = Path(model) if Path(model).name not in ("", "..") else Path(model).resolve()
    path = Path(output) if output else source.with_suffix(".edge")
    if path.exists() and not force:
        raise InputOutputError(f"{path} exists already", hint="use --force to replace it, or -o for another name")
    with stage("importing and optimising"):
        graph = load_graph(
            model, shapes=parse_shapes(shapes), dims=parse_dims(dims), optimize=not no_optimize, context=context
        )
    with stage(f"writing {path}"):
        bundle.save(graph, path, force=force)
    ports = [f"input  {graph.tensors[i]}" for i in graph.feeds] + [f"output {graph.tensors[o]}" for o in graph.results]
    document = {
        "output": str(path),
        "bytes": path.stat().st_size,
        "nodes": len(graph.nodes),
        "weight_bytes": graph.weight_bytes(),
        "inputs": [str(graph.tensors[i]) for i in graph.feeds],
        "outputs": [str(graph.tensors[o]) for o in graph.results],
    }
    notes = [f"{path}: {size_text(path.stat().st_size)}, {len(graph.nodes)} nodes", *ports]
    return Report(document, [], notes)
