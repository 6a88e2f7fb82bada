"""Join elementwise nodes: fewer passes over memory, intermediate tensors disappear."""

from __future__ import annotations

from edgerun.graph import Graph, Node, Tensor
from edgerun.ops.elementwise import Instruction, Program
from edgerun_converters.passes.editor import Editor

MAX_INPUTS = 8
MAX_INSTRUCTIONS = 32
"""Limits of the native tile interpreter's register file."""


def fuse_elementwise(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """Inline every elementwise producer that nobody else reads and that has its consumer's shape."""
    editor = Editor(graph, outer)
    for node in editor:
        if node.op != "elementwise":
            editor.keep(node)
            continue
        joined = inline_producers(editor, node, MAX_INPUTS, MAX_INSTRUCTIONS)
        if joined is node:
            editor.keep(node)
        else:
            editor.replace(node.outputs[0], editor.emit("elementwise", joined.inputs, program=joined.attrs["program"]))
    return editor.finish()


def inline_producers(editor: Editor, node: Node, max_inputs: int = 16, max_instructions: int = 64) -> Node:
    """`node` with its elementwise producers substituted as far as the limits allow; `node` itself if there are none.

    The graph is not changed: the caller replaces the node, and the producers die for want of readers.
    """
    current = node
    internal: dict[str, int] = {}
    blocked: set[str] = set()
    while True:
        target = None
        for name in dict.fromkeys(current.inputs):
            if name in blocked:
                continue
            source = editor.producer(name)
            if source is None or source.op != "elementwise" or name in editor.graph.outputs:
                continue
            # All readers must lie inside the cluster: slots of the current node plus slots already inlined.
            if editor.uses[name] != _slots(editor, node, internal, name):
                continue
            if editor.tensor(name).shape is None or editor.tensor(name).shape != editor.tensor(node.outputs[0]).shape:
                continue
            target = name
            break
        if target is None:
            return current
        source = editor.producer(target)
        assert source is not None
        joined = _substitute(current, target, source)
        if len(joined.inputs) > max_inputs or len(joined.attrs["program"]) > max_instructions:
            blocked.add(target)
            continue
        internal[target] = 1
        current = joined


def _slots(editor: Editor, root: Node, internal: dict[str, int], name: str) -> int:
    """How many input slots of the root and of the inlined nodes read `name`."""
    count = root.inputs.count(name)
    for inner in internal:
        source = editor.producer(inner)
        assert source is not None
        count += source.inputs.count(name)
    return count


def _substitute(node: Node, name: str, source: Node) -> Node:
    """The elementwise node that computes `node` with input `name` replaced by the program of `source`."""
    inputs = list(dict.fromkeys([*source.inputs, *(i for i in node.inputs if i != name)]))
    program: list[Instruction] = []

    def append(part: Program, names: list[str], known: dict[str, int]) -> int:
        place = [known[n] if n in known else inputs.index(n) for n in names]
        for function, dtype, *operands in part:
            if function == "const":
                program.append((function, dtype, *operands))
            else:
                program.append((function, dtype, *(place[k] for k in operands)))
            place.append(len(inputs) + len(program) - 1)
        return place[-1]

    value = append(source.attrs["program"], source.inputs, {})
    append(node.attrs["program"], node.inputs, {name: value})
    return Node("elementwise", inputs, node.outputs, {"program": tuple(program)}, node.name)
