"""Scalar programs as expressions in a normal form, so that differently written activations can be told to be the same.

An expression is a nested tuple:

    ("in", k)                     input k
    ("sum", ((c, e), ...), b)     c*e + ... + b, at least one term, not the bare e
    ("prod", (e, ...))            product of at least two factors, sorted; constant factors live in the sum around it
    ("clamp", e, low, high)
    ("where", condition, a, b)
    ("call", function, e, ...)    any other scalar function
    ("const", value)

Polynomials of one input are expanded. Only float programs are converted: the rules reassociate, which keeps values up
to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgerun.ops.elementwise import Program

Expr = tuple[Any, ...]
MAX_DEGREE = 4


def from_program(program: Program, constants: Mapping[int, float], inputs: int) -> Expr:
    """The expression of a program; `constants` holds the values of inputs that are known scalars."""
    values: list[Expr] = [("const", constants[k]) if k in constants else ("in", k) for k in range(inputs)]
    for function, _dtype, *operands in program:
        if function == "const":
            values.append(("const", float(operands[0])))
        else:
            values.append(apply(function, *(values[k] for k in operands)))
    return values[-1]


def apply(function: str, *args: Expr) -> Expr:
    """The normal form of function(*args)."""
    if function == "add":
        return total([(1.0, args[0]), (1.0, args[1])])
    if function == "sub":
        return total([(1.0, args[0]), (-1.0, args[1])])
    if function == "neg":
        return total([(-1.0, args[0])])
    if function == "mul":
        return product([args[0], args[1]])
    if function == "div":
        return _divide(args[0], args[1])
    if function == "reciprocal":
        return _divide(("const", 1.0), args[0])
    if function == "pow" and args[1][0] == "const" and args[1][1] in (2.0, 3.0):
        return product([args[0]] * int(args[1][1]))
    if function in ("min", "max"):
        return _extreme(function, args[0], args[1])
    if function == "where":
        return _where(*args)
    if function == "ge":
        return ("not", ("call", "lt", *args))
    if function == "le":
        return ("not", ("call", "lt", args[1], args[0]))
    if function == "gt":
        return ("call", "lt", args[1], args[0])
    return ("call", function, *args)


def total(terms: list[tuple[float, Expr]], constant: float = 0.0) -> Expr:
    """The normal form of a weighted sum."""
    merged: dict[Expr, float] = {}
    for weight, e in terms:
        if e[0] == "const":
            constant += weight * e[1]
        elif e[0] == "sum":
            constant += weight * e[2]
            for inner_weight, inner in e[1]:
                merged[inner] = merged.get(inner, 0.0) + weight * inner_weight
        else:
            merged[e] = merged.get(e, 0.0) + weight
    left = sorted(((w, e) for e, w in merged.items() if w != 0.0), key=lambda t: repr(t[1]))
    if not left:
        return ("const", constant)
    if len(left) == 1:
        weight, e = left[0]
        if weight == 1.0 and constant == 0.0:
            return e
        if e[0] == "clamp":  # scale and shift move inside, so that every clamp is outermost
            ends = [weight * e[2] + constant, weight * e[3] + constant]
            return clamp(total([(weight, e[1])], constant), min(ends), max(ends))
    return ("sum", tuple(left), constant)


def product(factors: list[Expr]) -> Expr:
    """The normal form of a product."""
    scale = 1.0
    rest: list[Expr] = []
    for f in factors:
        weight, core = _unit(f)
        scale *= weight
        if core is not None:
            rest.extend(core[1] if core[0] == "prod" else [core])
    if not rest:
        return ("const", scale)
    if len(rest) == 1:
        return total([(scale, rest[0])])
    expanded = _expand(rest)
    if expanded is not None:
        return total([(scale * c, e) for c, e in expanded[0]], scale * expanded[1])
    return total([(scale, ("prod", tuple(sorted(rest, key=repr))))])


def _unit(e: Expr) -> tuple[float, Expr | None]:
    """(weight, core): e = weight * core, the core's leading weight being 1; core None for a constant."""
    if e[0] == "const":
        return e[1], None
    if e[0] == "sum":
        weight = e[1][0][0]
        return weight, total([(c / weight, inner) for c, inner in e[1]], e[2] / weight)
    return 1.0, e


def _polynomial(e: Expr) -> tuple[Expr, dict[int, float]] | None:
    """(input, power -> coefficient) of a polynomial of one input."""
    if e[0] == "in":
        return e, {1: 1.0}
    if e[0] == "prod" and all(f == e[1][0] for f in e[1]) and e[1][0][0] == "in":
        return e[1][0], {len(e[1]): 1.0}
    if e[0] == "sum":
        result: dict[int, float] = {0: e[2]}
        variable: Expr | None = None
        for c, inner in e[1]:
            found = _polynomial(inner)
            if found is None or (variable is not None and found[0] != variable):
                return None
            variable = found[0]
            for power, k in found[1].items():
                result[power] = result.get(power, 0.0) + c * k
        assert variable is not None
        return variable, result
    return None


def _expand(factors: list[Expr]) -> tuple[list[tuple[float, Expr]], float] | None:
    """A product of polynomials of one input as (terms, constant); None when it is something else."""
    found = [_polynomial(f) for f in factors]
    if any(f is None for f in found):
        return None
    polynomials = [f for f in found if f is not None]
    variable = polynomials[0][0]
    if any(v != variable for v, _ in polynomials) or sum(max(p) for _, p in polynomials) > MAX_DEGREE:
        return None
    if all(f == variable for f in factors):
        return [(1.0, ("prod", tuple(factors)))], 0.0
    coefficients = {0: 1.0}
    for _, p in polynomials:
        coefficients = {
            i + j: sum(a * b for i2, a in coefficients.items() for j2, b in p.items() if i2 + j2 == i + j)
            for i in coefficients
            for j in p
        }
    terms = [
        (c, variable if power == 1 else ("prod", (variable,) * power))
        for power, c in coefficients.items()
        if power and c
    ]
    return terms, coefficients.get(0, 0.0)


def _divide(a: Expr, b: Expr) -> Expr:
    if b[0] == "const":
        return total([(1.0 / b[1], a)]) if b[1] else ("call", "div", a, b)
    # 1 / (1 + exp(-x)) is the sigmoid.
    if b[0] == "sum" and b[2] == 1.0 and len(b[1]) == 1 and b[1][0][0] == 1.0 and b[1][0][1][:2] == ("call", "exp"):
        sigmoid = ("call", "sigmoid", total([(-1.0, b[1][0][1][2])]))
        return product([a, sigmoid])
    return ("call", "div", a, b)


def _extreme(function: str, a: Expr, b: Expr) -> Expr:
    if a[0] == "const":
        a, b = b, a
    if b[0] == "const" and a[0] != "const":
        return clamp(a, b[1], math.inf) if function == "max" else clamp(a, -math.inf, b[1])
    first, second = sorted((a, b), key=repr)
    return ("call", function, first, second)


def clamp(e: Expr, low: float, high: float) -> Expr:
    """min(max(e, low), high), joined with a clamp inside it."""
    if e[0] == "clamp" and low <= e[3] and e[2] <= high:
        return ("clamp", e[1], max(low, e[2]), min(high, e[3]))
    return ("clamp", e, low, high)


def _where(condition: Expr, a: Expr, b: Expr) -> Expr:
    if condition[0] == "not":
        return ("where", condition[1], b, a)
    return ("where", condition, a, b)
