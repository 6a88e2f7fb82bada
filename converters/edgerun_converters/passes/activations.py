"""Recognise activations written out in elementary operations (x * clip(x + 3, 0, 6) / 6 and its relatives).

The recognised node becomes one elementwise program in the canonical form of `activation_program`, which the epilogue
pass fuses into a convolution or matmul, and which every backend runs in one sweep otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgerun.dtypes import DType
from edgerun.graph import Graph, Node, Tensor
from edgerun.ops.elementwise import Program
from edgerun_converters.passes.editor import Editor
from edgerun_converters.passes.elementwise import inline_producers
from edgerun_converters.passes.expressions import Expr, from_program

TOLERANCE = 1e-5
"""Relative: exporters write constants such as 0.70710677 or 0.1666667."""
X: Expr = ("in", 0)


@dataclass(frozen=True, slots=True)
class Activation:
    """An activation of `edgerun.ops.activation` with its two parameters. prelu takes its slopes from input 1."""

    name: str
    p0: float = 0.0
    p1: float = 0.0


def recognise_activations(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """Replace each cluster of elementwise nodes over one tensor that amounts to an activation."""
    editor = Editor(graph, outer)
    for node in editor:
        if node.op != "elementwise" or len(node.attrs["program"]) > 24:
            editor.keep(node)
            continue
        cluster = inline_producers(editor, node)
        found = match(editor, cluster)
        if found is None:
            editor.keep(node)
            continue
        x, activation, slope = found
        program = activation_program(activation)
        inputs = [x, slope] if slope else [x]
        if (inputs, program) == (node.inputs, node.attrs["program"]):
            editor.keep(node)
            continue
        editor.replace(node.outputs[0], editor.emit("elementwise", inputs, program=program))
    return editor.finish()


def match(editor: Editor, node: Node) -> tuple[str, Activation, str] | None:
    """(tensor, activation, slope tensor or "") when the float32 program of `node` is an activation of one tensor."""
    program: Program = node.attrs["program"]
    if program[-1][1] is not DType.F32 or any(editor.tensor(i).dtype is not DType.F32 for i in node.inputs):
        return None
    constants: dict[int, float] = {}
    others: list[int] = []
    for k, name in enumerate(node.inputs):
        data = editor.constant(name)
        if data is not None and data.size == 1 and data.ndim <= len(editor.tensor(node.outputs[0]).shape or ()):
            constants[k] = float(data.reshape(()))
        else:
            others.append(k)
    shape = editor.tensor(node.outputs[0]).shape
    slopes = [k for k in others if editor.constant(node.inputs[k]) is not None]
    tensors = [k for k in others if k not in slopes]
    if len(tensors) != 1 or len(slopes) > 1 or editor.tensor(node.inputs[tensors[0]]).shape != shape:
        return None
    expression = from_program(program, constants, len(node.inputs))
    order = {("in", tensors[0]): X, **({("in", slopes[0]): ("in", 1)} if slopes else {})}
    activation = classify(_rename(expression, order))
    if activation is None or (activation.name == "prelu") != bool(slopes):
        return None
    return node.inputs[tensors[0]], activation, node.inputs[slopes[0]] if slopes else ""


def _rename(e: object, order: dict[Expr, Expr]) -> Expr:
    if isinstance(e, tuple):
        if e in order:
            return order[e]
        return tuple(_rename(part, order) for part in e)
    return e  # type: ignore[return-value]


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE * 1e-2)


def _affine(e: Expr) -> tuple[float, float] | None:
    """(a, b) when e = a*x + b."""
    if e == X:
        return 1.0, 0.0
    if e[0] == "sum" and len(e[1]) == 1 and e[1][0][1] == X:
        return e[1][0][0], e[2]
    return None


def _scaled(e: Expr) -> tuple[float, Expr]:
    """(c, core) with e = c * core."""
    if e[0] == "sum" and len(e[1]) == 1 and e[2] == 0.0:
        return e[1][0][0], e[1][0][1]
    return 1.0, e


def classify(e: Expr) -> Activation | None:
    """The activation that an expression of ("in", 0) equals, if any."""
    for rule in (_clamp, _call, _product, _where, _leaky_max):
        found = rule(e)
        if found is not None:
            return found
    return None


def _clamp(e: Expr) -> Activation | None:
    if e[0] != "clamp":
        return None
    if e[1] == X:
        return Activation("clamp", e[2], e[3])
    inner = _affine(e[1])
    if inner is not None and _close(e[2], 0.0) and _close(e[3], 1.0) and inner[0] > 0:
        return Activation("hardsigmoid", *inner)
    return None


def _call(e: Expr) -> Activation | None:
    if e[0] == "call" and len(e) == 3 and e[2] == X and e[1] in ("sigmoid", "tanh", "gelu", "gelu_tanh"):
        return Activation(e[1])
    return None


def _product(e: Expr) -> Activation | None:
    scale, core = _scaled(e)
    if core[0] != "prod" or len(core[1]) != 2 or X not in core[1]:
        return None
    other = core[1][1] if core[1][0] == X else core[1][0]
    if other == ("call", "sigmoid", X) and _close(scale, 1.0):
        return Activation("silu")
    if other[0] == "clamp":
        inner = _affine(other[1])
        if inner is not None and all(
            _close(scale * v, w) for v, w in ((inner[0], 1 / 6), (inner[1], 0.5), (other[2], 0.0), (other[3], 1.0))
        ):
            return Activation("hardswish")
    if other[0] == "sum" and _close(scale, 0.5) and _close(other[2], 1.0) and len(other[1]) == 1:
        weight, call = other[1][0]
        if _close(weight, 1.0) and call[:2] == ("call", "erf"):
            inner = _affine(call[2])
            if inner is not None and _close(inner[0], math.sqrt(0.5)) and inner[1] == 0.0:
                return Activation("gelu")
        if _close(weight, 1.0) and call[:2] == ("call", "tanh") and _is_gelu_cubic(call[2]):
            return Activation("gelu_tanh")
    return None


def _is_gelu_cubic(e: Expr) -> bool:
    if e[0] != "sum" or len(e[1]) != 2 or e[2] != 0.0:
        return False
    weights = {inner: c for c, inner in e[1]}
    k = math.sqrt(2 / math.pi)
    cube = ("prod", (X, X, X))
    return _close(weights.get(X, 0.0), k) and _close(weights.get(cube, 0.0), k * 0.044715)


def _where(e: Expr) -> Activation | None:
    """leaky, prelu and elu: one branch is x, the other a function of negative x."""
    if e[0] != "where" or e[1] not in (("call", "lt", X, ("const", 0.0)), ("call", "lt", ("const", 0.0), X)):
        return None
    negative, positive = (e[2], e[3]) if e[1][2] == X else (e[3], e[2])
    if positive != X:
        return None
    slope = _affine(negative)
    if slope is not None and slope[1] == 0.0:
        return Activation("leaky", slope[0])
    if negative == ("prod", tuple(sorted((X, ("in", 1)), key=repr))):
        return Activation("prelu")
    if negative[0] == "sum" and len(negative[1]) == 1 and negative[1][0][1] == ("call", "exp", X):
        alpha = negative[1][0][0]
        if _close(negative[2], -alpha):
            return Activation("elu", alpha)
    return None


def _leaky_max(e: Expr) -> Activation | None:
    """max(x, a*x) with 0 < a < 1."""
    if e[:2] != ("call", "max") or X not in e[2:]:
        return None
    slope = _affine(e[3] if e[2] == X else e[2])
    if slope is not None and 0.0 < slope[0] < 1.0 and slope[1] == 0.0:
        return Activation("leaky", slope[0])
    return None


def activation_program(activation: Activation) -> Program:
    """The canonical float32 program of an activation; input 0 is the tensor, input 1 the slopes of prelu."""
    f, b = DType.F32, DType.BOOL
    p0, p1 = activation.p0, activation.p1
    if activation.name == "clamp":
        low = (("const", f, p0), ("max", f, 0, 1)) if p0 != -math.inf else ()
        if p1 == math.inf:
            return low or (("max", f, 0, 0),)
        last = 2 if low else 0
        return (*low, ("const", f, p1), ("min", f, last, last + 1))
    if activation.name in ("sigmoid", "tanh", "gelu", "gelu_tanh"):
        return ((activation.name, f, 0),)
    if activation.name == "silu":
        return (("sigmoid", f, 0), ("mul", f, 0, 1))
    if activation.name in ("hardsigmoid", "hardswish"):
        a, c = (p0, p1) if activation.name == "hardsigmoid" else (float(np.float32(1 / 6)), 0.5)
        gate = (
            ("const", f, a), ("mul", f, 0, 1), ("const", f, c), ("add", f, 2, 3),
            ("const", f, 0.0), ("max", f, 4, 5), ("const", f, 1.0), ("min", f, 6, 7),
        )  # fmt: skip
        return gate if activation.name == "hardsigmoid" else (*gate, ("mul", f, 0, 8))
    if activation.name == "leaky":
        return (("const", f, 0.0), ("lt", b, 0, 1), ("const", f, p0), ("mul", f, 0, 3), ("where", f, 2, 4, 0))
    if activation.name == "prelu":
        return (("const", f, 0.0), ("lt", b, 0, 2), ("mul", f, 0, 1), ("where", f, 3, 4, 0))
    if activation.name == "elu":
        return (
            ("const", f, 0.0), ("lt", b, 0, 1), ("exp", f, 0), ("const", f, -1.0), ("add", f, 3, 4),
            ("const", f, p0), ("mul", f, 5, 6), ("where", f, 2, 7, 0),
        )  # fmt: skip
    raise ValueError(activation.name)
