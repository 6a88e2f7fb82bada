"""Resizing, one axis after the other, from tables of cells and weights (edgerun.ops.resample)."""

from __future__ import annotations

import numpy as np

from edgerun.backends.gpu.lowering import Lowering, lowers
from edgerun.backends.gpu.wgsl import coordinates, place
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node
from edgerun.ops.resample import Axis, Filter, exact, taps


@lowers("resize")
def resize(node: Node, cx: Lowering) -> None:
    attrs, x, out = node.attrs, node.inputs[0], node.outputs[0]
    if attrs.get("to") is None or attrs.get("coordinate") == "tf_crop_and_resize":
        raise UnsupportedError("a resize whose sizes or region are computed")
    if attrs.get("mode", "nearest") != "nearest" and not cx.dtype(x).is_float:
        raise UnsupportedError(f"interpolation of {cx.dtype(x).short}")
    kind = Filter(
        attrs.get("mode", "nearest"), attrs.get("coordinate", "half_pixel"), attrs.get("nearest", "round_prefer_floor"),
        attrs.get("cubic_coeff", -0.75), attrs.get("exclude_outside", False), attrs.get("antialias", False),
    )  # fmt: skip
    shape, factors = list(cx.shape(x)), attrs.get("factors")
    current = x
    for position, axis in enumerate(attrs["axes"]):
        count, length = int(attrs["to"][position]), shape[axis]
        scale = exact(factors[position]) if factors is not None else exact(count / max(length, 1))
        if factors is None:
            from fractions import Fraction

            scale = Fraction(count, max(length, 1))
        if count == length and scale == 1:
            continue
        found = taps(Axis(length, count, scale), kind)
        shape[axis] = count
        following = cx.temp(cx.dtype(x), shape)
        _axis(cx, current, following, axis, found.index, found.weight)
        current = following
    cx.pointwise([current], out, "  b1[i] = b0[i];")


def _axis(cx: Lowering, x: str, out: str, axis: int, index: np.ndarray, weight: np.ndarray) -> None:
    wide = index.shape[1]
    cells = cx.constant(index, DType.I32)
    names = [f"c{k}" if k != axis else f"u32(b1[c{k} * {wide}u + {{0}}])" for k in range(len(cx.shape(x)))]
    read = "b0[" + place(cx.shape(x), names) + "]"
    head = coordinates(cx.shape(out))
    if wide == 1 and np.all(weight == 1):
        cx.pointwise([x, cells], out, f"{head}\n  b2[i] = {read.format('0u')};")
        return
    weights = cx.constant(weight, DType.F32)
    body = f"""{head}
  var v: f32 = 0.0;
  for (var t: u32 = 0u; t < {wide}u; t = t + 1u) {{ v = fma({read.format("t")}, b2[c{axis} * {wide}u + t], v); }}
  b3[i] = v;"""
    cx.pointwise([x, cells, weights], out, body)
