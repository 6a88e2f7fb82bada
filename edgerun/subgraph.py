"""Cut a piece out of a graph, for verification and for reduced bug reports."""

from __future__ import annotations

from collections.abc import Iterable

from edgerun.graph import Graph, Node, Tensor, captured


def extract(graph: Graph, nodes: Iterable[Node], outputs: Iterable[str] = ()) -> Graph:
    """The graph of just these nodes (execution order kept).

    Tensors they read but do not compute become inputs, weights stay weights. Outputs: the given ones, or everything
    that a node outside reads or the graph returns, or else nobody reads.
    """
    chosen = {id(n) for n in nodes}
    inside = [n for n in graph.nodes if id(n) in chosen]
    made = {o for n in inside for o in n.outputs if o}
    read = [i for n in inside for i in [*n.inputs, *sorted(captured(n))] if i]
    piece = Graph(f"{graph.name}.part", symbols=dict(graph.symbols), meta=dict(graph.meta))
    piece.inputs = [i for i in dict.fromkeys(read) if i not in made and graph.tensors[i].data is None]
    for name in dict.fromkeys([*read, *made]):
        tensor = graph.tensors[name]
        piece.tensors[name] = Tensor(name, tensor.dtype, tensor.shape, tensor.data, tensor.kind)
    piece.nodes = [Node(n.op, list(n.inputs), list(n.outputs), dict(n.attrs), n.name) for n in inside]
    piece.outputs = list(outputs) or _boundary(graph, inside, made)
    return piece


def _boundary(graph: Graph, inside: list[Node], made: set[str]) -> list[str]:
    chosen = {id(n) for n in inside}
    wanted = set(graph.outputs)
    for node in graph.nodes:
        if id(node) not in chosen:
            wanted.update(i for i in [*node.inputs, *captured(node)] if i)
    used_inside = {i for n in inside for i in [*n.inputs, *captured(n)]}
    order = [o for n in inside for o in n.outputs if o]
    return [o for o in order if o in wanted or o not in used_inside]


def downstream(graph: Graph, names: set[str]) -> list[Node]:
    """Nodes that depend on any of these tensors, in execution order."""
    reached = set(names)
    found = []
    for node in graph.nodes:
        if any(i in reached for i in node.inputs) or reached & captured(node):
            found.append(node)
            reached.update(o for o in node.outputs if o)
    return found
