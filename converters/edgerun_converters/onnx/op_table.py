"""The table of operators in docs/ops.md, from the tables in the code.

    python -m edgerun_converters.onnx.op_table docs/ops.md

Which core ops an ONNX operator becomes is read off the source of its lowering: the ops that it, and the functions it
calls, may append. Branches on the operator's name are followed; all other branches are taken.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import onnx.defs

from edgerun.backends.native import lowering as native
from edgerun.backends.numpy import registry as numpy_kernels
from edgerun.ops import registry
from edgerun_converters.onnx import builder

PACKAGE = "edgerun_converters"
METHODS = {
    "scalar": "elementwise", "cast": "elementwise", "elementwise": "elementwise", "reshape": "reshape",
    "transpose": "transpose", "to_channels_last": "transpose", "to_channels_first": "transpose",
}  # fmt: skip
"""Methods of the Builder that append one certain op."""
FIRST_OPSET = 6
"""The oldest ai.onnx opset that the importer reads."""
DOMAINS = {"": "ai.onnx", "ai.onnx.ml": "ai.onnx.ml", "com.microsoft": "com.microsoft"}
TRAINING = ("ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview")


def core_ops(domain: str, op_type: str) -> list[str]:
    """Names of the core ops that the lowering of an operator may append, sorted."""
    builder.load_all()
    registry.load_all()
    reader = _Reader(op_type)
    reader.read(builder.LOWERINGS[domain, op_type], {})
    return sorted(reader.found)


class _Reader:
    """Reads the source of a lowering and of all that it calls, for one operator."""

    def __init__(self, op_type: str) -> None:
        self.op_type = op_type
        self.found: set[str] = set()
        self._seen: set[Any] = set()

    def read(self, function: Any, known: dict[str, str]) -> None:
        """`known` holds the parameters of the function whose texts the caller gives."""
        key = (function, tuple(sorted(known.items())))
        if key in self._seen:
            return
        self._seen.add(key)
        nodes = list(_walk(_tree(function), self.op_type))
        scope = _Scope(function, known, self.op_type, nodes)
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            if isinstance(node, ast.Call):
                self._call(node, scope)
            elif isinstance(node, ast.Name) and id(node) not in called:
                self._follow(scope.get(node), {})  # a function that is handed on counts as called

    def _call(self, call: ast.Call, scope: _Scope) -> None:
        target = call.func
        if isinstance(target, ast.Name) and target.id == "delegate":
            other = scope.text(call.args[2])
            if other is not None and ("", other) in builder.LOWERINGS:
                self._delegate(other)
        elif isinstance(target, ast.Name):
            function = scope.get(target)
            self._follow(function, scope.arguments(function, call))
        elif isinstance(target, ast.Attribute):
            owner = scope.get(target.value)
            if isinstance(owner, ModuleType):
                function = getattr(owner, target.attr, None)
                self._follow(function, scope.arguments(function, call))
            elif isinstance(target.value, ast.Name) and target.value.id == "b" and target.attr in METHODS:
                self.found.add(METHODS[target.attr])
            elif target.attr in ("one", "emit") and not _passes_builder(call):
                self.found.update(scope.op_names(call.args[0]))
            else:
                for method in scope.methods(target.attr):
                    self._follow(method, {})

    def _delegate(self, op_type: str) -> None:
        other = _Reader(op_type)
        other._seen = self._seen
        other.read(builder.LOWERINGS["", op_type], {})
        self.found |= other.found

    def _follow(self, function: Any, known: dict[str, str]) -> None:
        if isinstance(function, FunctionType) and function.__module__.startswith(f"{PACKAGE}.onnx"):
            if function.__module__ not in (builder.__name__, __name__):
                self.read(function, known)


class _Scope:
    """What the names in a function mean."""

    def __init__(self, function: FunctionType, known: dict[str, str], op_type: str, nodes: list[ast.AST]) -> None:
        code = function.__code__
        self._locals = {*code.co_varnames, *code.co_cellvars}
        self._locals |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self._locals |= {n.arg for n in nodes if isinstance(n, ast.arg)}
        self._globals = function.__globals__
        self._known = dict(known)
        self._op_type = op_type
        self._nodes = nodes
        for node in nodes:  # name, ... = TABLE[n.op_type]
            match node:
                case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=name), *_])], value=ast.Subscript() as entry):
                    values = self._entry(entry)
                    if isinstance(values, tuple) and isinstance(values[0], str):
                        self._known[name] = values[0]

    def get(self, node: ast.expr) -> Any:
        """The object that a global name stands for, else None."""
        if isinstance(node, ast.Name) and node.id not in self._locals:
            return self._globals.get(node.id)
        return None

    def methods(self, name: str) -> Iterator[Any]:
        """Functions of that name in the classes of the module."""
        for value in self._globals.values():
            if inspect.isclass(value) and value.__module__ == self._globals["__name__"]:
                yield vars(value).get(name)

    def text(self, node: ast.expr) -> str | None:
        """The text that an expression stands for, where it is plain to see."""
        match node:
            case ast.Constant(value=str(value)):
                return value
            case ast.Name(id=name):
                return self._known.get(name)
            case ast.Attribute(value=ast.Name(id="n"), attr="op_type"):
                return self._op_type
            case ast.Call(func=ast.Attribute(value=inner, attr="removeprefix"), args=[ast.Constant(value=prefix)]):
                whole = self.text(inner)
                return None if whole is None else whole.removeprefix(str(prefix))
            case ast.Subscript():
                found = self._entry(node)
                return found if isinstance(found, str) else None
        return None

    def _entry(self, node: ast.Subscript) -> Any:
        """The entry of a table of the module, when the key is plain to see."""
        values, key = self.get(node.value), self.text(node.slice)
        return values.get(key) if isinstance(values, dict) else None

    def arguments(self, function: Any, call: ast.Call) -> dict[str, str]:
        """Parameters of `function` that the call gives a text."""
        if not isinstance(function, FunctionType):
            return {}
        names = list(inspect.signature(function).parameters)
        given = [*zip(names, call.args, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg)]
        texts = {name: self.text(value) for name, value in given}
        return {name: value for name, value in texts.items() if value is not None}

    def op_names(self, argument: ast.expr) -> Iterator[str]:
        """Core ops that the first argument of `one` or `emit` may name."""
        exact = self.text(argument)
        if exact is not None:
            yield exact
            return
        # Computed in this function: any core op that it names.
        texts = (n.value for n in self._nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
        yield from (t for t in texts if t in registry.OPS)


def _passes_builder(call: ast.Call) -> bool:
    """Whether this `emit` is a method that takes the Builder, rather than one of the Builder."""
    return not call.args or (isinstance(call.args[0], ast.Name) and call.args[0].id == "b")


@cache
def _tree(function: Any) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def _walk(node: ast.AST, op_type: str) -> Iterator[ast.AST]:
    """All nodes below, without comparisons with constants and without branches that other operators take."""
    if isinstance(node, ast.Compare) and all(isinstance(c, ast.Constant) for c in node.comparators):
        return
    yield node
    if isinstance(node, ast.IfExp | ast.If) and _decide(node.test, op_type) is not None:
        for child in _branch(node, op_type):
            yield from _walk(child, op_type)
        return
    # Neither decorators nor annotations of functions are run by them.
    children = [node.args, *node.body] if isinstance(node, ast.FunctionDef) else ast.iter_child_nodes(node)
    for child in children:
        yield from _walk(child, op_type)
        if isinstance(child, ast.If) and _decide(child.test, op_type) is not None:
            chosen = _branch(child, op_type)
            if chosen and isinstance(chosen[-1], ast.Return | ast.Raise):
                return  # what follows is for other operators


def _branch(node: ast.If | ast.IfExp, op_type: str) -> list[ast.AST]:
    chosen = node.body if _decide(node.test, op_type) else node.orelse
    return list(chosen) if isinstance(chosen, list) else [chosen]


def _decide(test: ast.expr, op_type: str) -> bool | None:
    """The value of a comparison of `n.op_type` with constants, else None."""
    match test:
        case ast.Compare(ast.Constant(str(part)), [ast.In()], [ast.Attribute(attr="op_type")]):
            return part in op_type
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Attribute) or test.left.attr != "op_type":
        return None
    try:
        value = ast.literal_eval(test.comparators[0])
    except ValueError:
        return None
    match test.ops[0]:
        case ast.Eq():
            return op_type == value
        case ast.NotEq():
            return op_type != value
        case ast.In():
            return op_type in value
        case ast.NotIn():
            return op_type not in value
    return None


def _versions() -> dict[tuple[str, str], list[int]]:
    """Opsets in which each operator of the standard was defined or changed."""
    table: dict[tuple[str, str], set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        table.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    return {k: sorted(v) for k, v in table.items()}


def _opsets(versions: list[int], domain: str) -> str:
    if not versions:
        return "1"
    if domain == "":
        old = [v for v in versions if v <= FIRST_OPSET]
        versions = ([FIRST_OPSET] if old else []) + [v for v in versions if v > FIRST_OPSET]
    return " ".join(map(str, versions))


def _support(ops: list[str], table: Iterable[str]) -> str:
    missing = [o for o in ops if o not in table]
    return "yes" if not missing else "no: " + ", ".join(missing) if len(missing) == len(ops) else _partly(missing)


def _partly(missing: list[str]) -> str:
    return "without " + ", ".join(missing)


def table() -> str:
    """The text of docs/ops.md."""
    builder.load_all()
    registry.load_all()
    numpy_kernels.load_all()
    native.load_all()
    versions = _versions()
    newest = onnx.defs.onnx_opset_version()
    lines = [
        "# Operators",
        "",
        "Written by `python -m edgerun_converters.onnx.op_table docs/ops.md` from the tables in the code; do not edit.",
        "",
        f"The newest opset of ai.onnx here is {newest}. Older models are read from opset {FIRST_OPSET} on: the column",
        "*opsets* lists the versions in which an operator was defined or changed, all of which are handled.",
        "*Core ops* are those that the operator may become; the passes then fuse and replace them.",
        "*Native* is `yes` when all of them have native kernels; `without` names those that have none when only some",
        "forms of the operator need them. A plan names the nodes that it cannot run, with the reason. An operator for",
        "which the standard gives a body is expanded to it where the importer has no other way.",
    ]
    for domain, title in DOMAINS.items():
        rows = sorted(name for d, name in builder.LOWERINGS if d == domain)
        lines += ["", f"## {title}", "", "| operator | opsets | core ops | NumPy | native |", "|---|---|---|---|---|"]
        for name in rows:
            ops = core_ops(domain, name)
            cells = [name, _opsets(versions.get((domain, name), []), domain), ", ".join(ops) or "(none)"]
            cells += [_support(ops, numpy_kernels.KERNELS), _support(ops, native.LOWERINGS)]
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## Operators of the standard without a row", ""]
    bodies: list[str] = []
    refused: list[str] = []
    schema: Any
    for schema in sorted(onnx.defs.get_all_schemas(), key=lambda s: (s.domain, s.name)):
        if (schema.domain, schema.name) in builder.LOWERINGS or schema.domain in TRAINING or schema.deprecated:
            continue
        if schema.name == "Constant":  # a tensor, not an operator, to the importer
            continue
        label = f"{schema.domain}::{schema.name}" if schema.domain else schema.name
        (bodies if schema.has_function or schema.has_context_dependent_function else refused).append(label)
    lines += [f"Expanded to the body that the standard gives: {', '.join(bodies) or 'none'}.", ""]
    lines += [f"Refused: {', '.join(refused) or 'none'}. Operators of training are out of scope."]
    lines += ["", "## Core ops", "", "| op | family | meaning | native |", "|---|---|---|---|"]
    for name, row in sorted(registry.OPS.items(), key=lambda item: (item[1].family, item[0])):
        summary = row.summary.replace("|", "\\|")
        lines.append(f"| {name} | {row.family} | {summary} | {'yes' if name in native.LOWERINGS else 'no'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(table())
