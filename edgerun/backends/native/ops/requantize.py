"""Elementwise programs around integer layers that have kernels of their own.

Whatever gives a number or code for one 8-bit code is a table of 256 entries, filled by the NumPy kernel while planning.
Residual additions and quantisation of inputs are sums that become 8-bit codes, the program

    x = (cast(a) - zero) * scale      or a itself, where it is f32
    x + the same of b                 when there is a second input
    max, min                          perhaps
    cast(round(x / scale) + zero)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edgerun.backends.native.lowering import Lowering
from edgerun.backends.numpy.registry import find
from edgerun.dtypes import DType
from edgerun.graph import Node

RANGES = {DType.U8: (0, 255), DType.I8: (-128, 127)}


@dataclass(frozen=True, slots=True)
class _Term:
    """An input as real numbers: (x - zero) * scale; None where the program has not come to it yet."""

    name: str
    zero: float | None = None
    scale: float | None = None
    real: bool = False


@dataclass(frozen=True, slots=True)
class _Sum:
    """What is known of a value of the program. stage: 0 a sum, 1 divided, 2 rounded, 3 with the zero point, 4 codes."""

    terms: tuple[_Term, ...]
    low: float = -math.inf
    high: float = math.inf
    scale: float = 1.0
    zero: float = 0.0
    stage: int = 0


@dataclass(slots=True)
class _Values:
    """The values of a program by number: constants and sums; None for everything else."""

    items: list[float | _Sum | None] = field(default_factory=list)

    def step(self, function: str, dtype: DType, args: tuple[Any, ...]) -> float | _Sum | None:
        if function == "const":
            return float(args[0]) if dtype is DType.F32 else None
        values = [self.items[a] for a in args]
        sums = [v for v in values if isinstance(v, _Sum)]
        if len(sums) == 2 and function == "add" and len(values) == 2:
            return _added(*sums)
        if len(sums) != 1 or any(v is None for v in values):
            return None
        constants = [v for v in values if isinstance(v, float)]
        if function in ("cast", "round") and not constants:
            return _alone(sums[0], function, dtype)
        if len(constants) == 1 and (isinstance(values[0], _Sum) or function in ("add", "mul", "max", "min")):
            return _with_number(sums[0], function, constants[0])
        return None


def _real(value: _Sum) -> bool:
    return value.stage == 0 and all(t.real for t in value.terms)


def _added(a: _Sum, b: _Sum) -> _Sum | None:
    plain = all(_real(v) and len(v.terms) == 1 and (v.low, v.high) == (-math.inf, math.inf) for v in (a, b))
    return _Sum(a.terms + b.terms) if plain else None


def _alone(value: _Sum, function: str, dtype: DType) -> _Sum | None:
    if function == "round":
        return replace(value, stage=2) if value.stage == 1 else None
    if value.stage in (2, 3) and dtype in RANGES:
        return replace(value, stage=4)
    if value.stage == 0 and dtype is DType.F32 and not value.terms[0].real and value.terms[0].zero is None:
        return replace(value, terms=(replace(value.terms[0], zero=0.0),))
    return None


def _with_number(value: _Sum, function: str, number: float) -> _Sum | None:
    term = value.terms[0]
    if value.stage == 0 and not _real(value):
        if term.zero is None:
            return None
        if function == "sub":
            return replace(value, terms=(replace(term, zero=number),)) if term.zero == 0 else None
        return replace(value, terms=(replace(term, scale=number, real=True),)) if function == "mul" else None
    if function == "max" and _real(value) and value.low == -math.inf and number <= value.high:
        return replace(value, low=number)
    if function == "min" and _real(value) and value.high == math.inf and number >= value.low:
        return replace(value, high=number)
    if function == "div" and _real(value):
        return replace(value, scale=number, stage=1)
    if function == "add" and value.stage == 2:
        return replace(value, zero=number, stage=3)
    return None


def code_table(node: Node, cx: Lowering) -> bool:
    """Lower the node to a table and return True when its only input that is no single constant holds 8-bit codes."""
    constants = {name: data for name in node.inputs if (data := cx.constant(name)) is not None}
    codes = [name for name in dict.fromkeys(node.inputs) if name not in constants]
    out = node.outputs[0]
    dtype = cx.dtype(out)
    if len(codes) != 1 or cx.dtype(codes[0]) not in RANGES or (dtype not in RANGES and dtype is not DType.F32):
        return False
    if cx.shape(codes[0]) != cx.shape(out) or any(d.size != 1 for d in constants.values()):
        return False
    if len(node.attrs["program"]) < 3:
        return False
    every = np.arange(256, dtype=np.uint8).view(cx.dtype(codes[0]).numpy)
    with np.errstate(all="ignore"):
        arrays = [constants[name].reshape(()) if name in constants else every for name in node.inputs]
        table = np.asarray(find("elementwise")(*arrays, program=node.attrs["program"]))
    cx.emit(
        "code_table", [codes[0], cx.weight(table, f"{out}.table")], [out], [],
        in_place=[(0, 0)] if dtype.itemsize == 1 else [], why="a table of what each of 256 codes becomes",
    )  # fmt: skip
    return True


def quantised_sum(node: Node, cx: Lowering) -> bool:
    """Lower the node to one kernel and return True when its program is of the form above."""
    out = node.outputs[0]
    dtype, shape = cx.dtype(out), cx.shape(out)
    if dtype not in RANGES or not 1 <= len(node.inputs) <= 2 or len(set(node.inputs)) != len(node.inputs):
        return False
    values = _Values()
    for name in node.inputs:
        kind = cx.dtype(name)
        if (kind not in RANGES and kind is not DType.F32) or cx.shape(name) != shape or cx.constant(name) is not None:
            return False
        values.items.append(_Sum((_Term(name, 0.0, 1.0, True) if kind is DType.F32 else _Term(name),)))
    for function, kind, *args in node.attrs["program"]:
        values.items.append(values.step(function, kind, tuple(args)))
    found = values.items[-1]
    low, high = RANGES[dtype]
    if not isinstance(found, _Sum) or found.stage != 4 or len(found.terms) != len(node.inputs):
        return False
    if not found.zero.is_integer() or not low <= found.zero <= high:
        return False
    numbers = [p for t in found.terms for p in (t.zero, t.scale)] + ([0.0, 1.0] if len(found.terms) == 1 else [])
    cx.emit(
        "quantised_sum", [t.name for t in found.terms] + [""] * (2 - len(found.terms)), [out],
        [*(float(p) for p in numbers if p is not None), found.scale, found.low, found.high, int(found.zero)],
        in_place=[(0, k) for k, t in enumerate(found.terms) if cx.dtype(t.name).itemsize == 1],
        why="read as real numbers, added and quantised in one pass",
    )  # fmt: skip
    return True
