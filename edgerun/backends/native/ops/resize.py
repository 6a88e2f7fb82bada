"""Resizing: one axis after the other, by tables made while planning, or at run time where sizes are symbolic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from edgerun.backends.native.lowering import Lowering, Param, lowers
from edgerun.backends.native.ops.elementwise import apply, cast
from edgerun.backends.native.ops.movement import static_input, view
from edgerun.backends.native.ops.reduce import HALF, number_of
from edgerun.backends.native.sizes import define, integers
from edgerun.dims import DimLike, floordiv
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node
from edgerun.ops.elementwise import Program
from edgerun.ops.resample import Axis, Filter, apply_policy, exact, scaled_size, taps

Factor: TypeAlias = "Fraction | tuple[DimLike, DimLike] | None"
"""Of an axis: a number, a quotient of dims, or None for new size / old size."""
STEPS = 720720
"""Factors that are computed at run time are rounded to multiples of 1 / STEPS: quotients of numbers up to 16 become
exact again, so that cells on the boundary fall as they do for constant factors."""
MODES = {"nearest": (0, 1), "linear": (1, 2), "cubic": (2, 4)}
"""Mode -> (number in resize.c, cells read)."""
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@lowers("resize")
def resize(node: Node, cx: Lowering) -> None:
    """Nearest gathers rows; linear and cubic sum weighted rows, in f32 (f64 for f64 and integers)."""
    attrs: dict[str, Any] = node.attrs
    x, y, axes = node.inputs[0], node.outputs[0], attrs["axes"]
    final, mode = cx.dtype(y), attrs.get("mode", "nearest")
    number_of(cx, final, "resizing")
    shape = cx.shape(x)
    if _has_computed_sizes(node, cx):
        sizes = dict(zip(axes, integers(cx, node.inputs[2], 0), strict=True))
        define(cx, y, [sizes.get(k, d) for k, d in enumerate(shape)])
        counts, factors = [cx.shape(y)[a] for a in axes], list[Factor]([None] * len(axes))
    elif len(node.inputs) > 1 and node.inputs[1] and cx.constant(node.inputs[1]) is None:
        counts, factors = _computed_factors(node, cx)
    else:
        counts, factors = _sizes(node, cx, [shape[a] for a in axes])
    kind = Filter(
        mode, attrs.get("coordinate", "half_pixel"), attrs.get("nearest", "round_prefer_floor"),
        attrs.get("cubic_coeff", -0.75), attrs.get("exclude_outside", False) and mode != "nearest",
        attrs.get("antialias", False),
    )  # fmt: skip
    regions = _regions(node, cx, kind, len(axes))
    plans = []
    for axis, count, factor, region in zip(axes, counts, factors, regions, strict=True):
        if shape[axis] != count or (factor is not None and factor != 1) or kind.coordinate == "tf_crop_and_resize":
            plans.append((axis, shape[axis], count, factor, region))
    plans.sort(key=lambda p: p[2] / max(p[1], 1) if isinstance(p[1], int) and isinstance(p[2], int) else 1)
    if not plans:
        view(cx, x, y)
        return
    working = final
    if mode != "nearest":
        working = DType.F32 if final in HALF else DType.F64 if final.is_integer else final
    outside: list[str] = []
    current = cast(cx, x, working)
    post = final.is_integer and mode != "nearest"
    crop = kind.coordinate == "tf_crop_and_resize"
    for k, (axis, length, count, factor, region) in enumerate(plans):
        last = k == len(plans) - 1 and working is final and not post and not crop
        result = (
            y
            if last
            else cx.temp(working, tuple(count if d == axis else n for d, n in enumerate(cx.shape(current))), "resized")
        )
        if isinstance(length, int) and isinstance(count, int) and not isinstance(factor, tuple):
            ratio = factor if factor is not None else Fraction(count, max(length, 1))
            found = taps(Axis(length, count, ratio, region), kind)
            index = cx.weight(
                found.index.astype(np.int32) if mode != "nearest" else found.index[:, 0].astype(np.int32),
                "resize.index",
            )
            weight = cx.weight(found.weight.astype(working.numpy), "resize.weight") if mode != "nearest" else ""
            if crop and found.outside.any():
                flags = found.outside.reshape([-1 if d == axis else 1 for d in range(len(shape))])
                outside.append(cx.weight(flags, "resize.outside"))
        else:
            index, weight = _table(cx, kind, working, length, count, factor)
        if mode == "nearest":
            cx.emit("gather", [current, index], [result], [axis], why=f"nearest cells of axis {axis}")
        else:
            cx.emit(
                "resize_axis", [current, index, weight], [result], [axis], why=f"{mode} interpolation along axis {axis}"
            )
        current = result
    if current != y:
        _finish(cx, current, y, outside, float(attrs.get("extrapolation", 0.0)), post, kind.antialias)


def _computed_factors(node: Node, cx: Lowering) -> tuple[list[DimLike], list[Factor]]:
    """New sizes and factors where the factors are computed at run time: as multiples of 1 / STEPS."""
    x, y, axes = node.inputs[0], node.outputs[0], node.attrs["axes"]
    shape = cx.shape(x)
    steps = cx.temp(DType.I64, cx.shape(node.inputs[1]), f"{node.inputs[1]}.steps")
    program: Program = (
        ("cast", DType.F64, 0), ("const", DType.F64, float(STEPS)), ("mul", DType.F64, 1, 2), ("round", DType.F64, 3),
        ("cast", DType.I64, 4),
    )  # fmt: skip
    apply(cx, program, [node.inputs[1]], steps)
    factors: dict[int, DimLike] = dict(zip(axes, integers(cx, steps, 1, 512 * STEPS), strict=True))
    define(cx, y, [floordiv(d * factors[k], STEPS) if k in factors else d for k, d in enumerate(shape)])
    return [cx.shape(y)[a] for a in axes], [(factors[a], STEPS) for a in axes]


def _has_computed_sizes(node: Node, cx: Lowering) -> bool:
    """Whether the new sizes are computed at run time, as they are."""
    name = node.inputs[2] if len(node.inputs) > 2 else ""
    computed = node.attrs.get("to") is None and bool(name) and cx.constant(name) is None
    if computed and node.attrs.get("policy", "stretch") != "stretch":
        raise UnsupportedError("sizes computed at run time with the policy " + node.attrs["policy"])
    return computed


def _finish(
    cx: Lowering, x: str, y: str, outside: list[str], extrapolation: float, post: bool, antialias: bool
) -> None:
    """Extrapolation value, rounding of integers and conversion to the output's type, in one elementwise pass."""
    working, final = cx.dtype(x), cx.dtype(y)
    inputs, program = [x, *outside], list[Any]()
    value = 0

    def add(*instruction: Any) -> int:
        program.append(instruction)
        return len(inputs) + len(program) - 1

    if outside:
        other = add("const", working, extrapolation)
        for k in range(len(outside)):
            value = add("where", working, 1 + k, other, value)
    if post:
        whole = add("round", working, value)
        if antialias:
            value = whole
        else:
            # Weights such as 0.1 + 0.9 leave whole results a rounding error short of themselves; others truncate.
            error = add("abs", working, add("sub", working, value, whole))
            value = add("where", working, add("lt", DType.BOOL, error, add("const", working, 1e-6)), whole, value)
    if final is not working or not program:
        value = add("cast", final, value)
    result: Program = tuple(program)
    apply(cx, result, inputs, y)


def _sizes(node: Node, cx: Lowering, lengths: list[DimLike]) -> tuple[list[DimLike], list[Factor]]:
    """New sizes and factors of the axes; a factor is None where it is new size / old size."""
    attrs: dict[str, Any] = node.attrs
    if attrs.get("to") is not None:
        counts, factors = list(attrs["to"]), attrs.get("factors")
        ratios: list[Factor] = [None] * len(counts) if factors is None else [exact(f) for f in factors]
        if attrs.get("policy", "stretch") != "stretch" and factors is None:
            counts, ratios = _with_policy(lengths, counts, attrs["policy"])
        return counts, ratios
    scales, sizes = (
        static_input(node, cx, 1, "the factor of a resize"),
        static_input(node, cx, 2, "the size of a resize"),
    )
    if scales is not None:
        values = [float(s) for s in scales]
        found = [scaled_size(n, s) for n, s in zip(lengths, values, strict=True)]
        if any(f is None for f in found):
            raise UnsupportedError(f"factors {values} of symbolic sizes")
        return [f for f in found if f is not None], [exact(s) for s in values]
    assert sizes is not None
    return _with_policy(lengths, [int(s) for s in sizes], attrs.get("policy", "stretch"))


def _with_policy(lengths: list[DimLike], counts: list[Any], policy: str) -> tuple[list[DimLike], list[Factor]]:
    if policy == "stretch":
        return counts, [None] * len(counts)
    if not all(isinstance(n, int) for n in (*lengths, *counts)):
        raise UnsupportedError(f"resizing of symbolic sizes with the policy {policy}")
    found, ratios = apply_policy([int(n) for n in lengths], [int(n) for n in counts], policy)
    return list(found), list(ratios)


def _regions(node: Node, cx: Lowering, kind: Filter, count: int) -> list[tuple[float, float]]:
    if kind.coordinate != "tf_crop_and_resize":
        return [(0.0, 1.0)] * count
    roi = static_input(node, cx, 3, "the region of a resize")
    assert roi is not None
    return [(float(roi[k]), float(roi[count + k])) for k in range(count)]


def _table(
    cx: Lowering, kind: Filter, working: DType, length: DimLike, count: DimLike, factor: Factor
) -> tuple[str, str]:
    """Emit the table of an axis whose sizes are symbolic: cell i lies at (first + i * delta) / denominator."""
    if kind.antialias or kind.coordinate in ("half_pixel_symmetric", "tf_crop_and_resize"):
        raise UnsupportedError(f"resizing a symbolic dimension with {kind.coordinate} or antialiasing")
    p, q = (factor.numerator, factor.denominator) if isinstance(factor, Fraction) else factor or (count, length)
    first: DimLike = 0
    if kind.coordinate == "asymmetric":
        delta, denominator = q, p
    elif kind.coordinate == "align_corners":
        delta, denominator = (length - 1) * q, length * p - q if factor is not None else (count - 1) * length
        if factor is None:
            delta, denominator = length - 1, count - 1
    else:
        first = q if kind.coordinate == "tf_half_pixel_for_nn" else q - p
        delta, denominator = 2 * q, 2 * p
    single = kind.coordinate in ("pytorch_half_pixel", "align_corners")
    if kind.coordinate == "align_corners":
        from edgerun.dims import maximum

        denominator = maximum(denominator, 1)
    rule = kind.nearest
    if rule == "simple":
        if not isinstance(factor, Fraction):
            raise UnsupportedError("resizing a symbolic dimension whose direction is not known")
        rule = "ceil" if factor < 1 else "floor"
    number, cells = MODES[kind.mode]
    shape = (count,) if kind.mode == "nearest" else (count, cells)
    index, weight = cx.temp(DType.I32, shape, "resize.index"), cx.temp(DType.F32, shape, "resize.weight")
    params: list[Param] = [
        length, count, first, delta, denominator, number, NEAREST.index(rule), float(kind.cubic_coeff),
        int(kind.exclude_outside), int(single),
    ]  # fmt: skip
    cx.emit("resize_table", [], [index, weight], params, why="sizes known from the shapes of the inputs")
    return index, cast(cx, weight, working) if kind.mode != "nearest" else ""
