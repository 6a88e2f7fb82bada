"""Convolutions, channels last: implicit GEMM on tiles for one group, else a sum for each output element."""

from __future__ import annotations

import numpy as np

from edgerun.backends.gpu.lowering import Lowering, lowers
from edgerun.backends.gpu.ops.epilogue import epilogue
from edgerun.backends.gpu.ops.matmul import flat
from edgerun.backends.gpu.ops.tiles import Operand, Product, emit
from edgerun.backends.gpu.wgsl import coordinates, place
from edgerun.errors import UnsupportedError
from edgerun.graph import Node

MAX_UNROLLED = 25
"""Taps that are written out; more are a loop."""


def _weights(cx: Lowering, name: str) -> np.ndarray:
    data = cx.value(name)
    if data is None:
        raise UnsupportedError("a convolution whose filters are computed")
    return np.asarray(data, np.float32)


@lowers("conv")
def conv(node: Node, cx: Lowering) -> None:
    x, w, bias, residual, slope = (*node.inputs, "", "", "", "")[:5]
    out, group = node.outputs[0], node.attrs.get("group", 1)
    if int(np.prod(cx.shape(out))) == 0:
        return
    weights = _weights(cx, w)
    if group == 1 and weights.shape[0] >= 8:
        _tiled(node, cx, weights, x, bias, residual, slope)
    else:
        _direct(node, cx, weights, x, bias, residual, slope)


def _tiled(node: Node, cx: Lowering, weights: np.ndarray, x: str, bias: str, residual: str, slope: str) -> None:
    """Rows of the product are output pixels, its columns output channels; k runs over taps and channels."""
    out, attrs, shape = node.outputs[0], node.attrs, cx.shape(x)
    outputs, *kernel, channels = weights.shape
    spatial, sizes = len(kernel), cx.shape(out)[1:-1]
    k = int(np.prod(kernel)) * channels
    packed = cx.constant(weights.reshape(outputs, k).T, cx.dtype(x))
    lines, rest, pixel = [f"  let ch = k % {channels}u;", f"  let tap = k / {channels}u;"], "m", []
    taps = "tap"
    for axis in reversed(range(spatial)):
        lines.append(f"  let q{axis} = ({rest}) % {sizes[axis]}u; let t{axis} = ({taps}) % {kernel[axis]}u;")
        rest, taps = f"({rest}) / {sizes[axis]}u", f"({taps}) / {kernel[axis]}u"
    inside = []
    for axis in range(spatial):
        step, dilation, before = attrs["strides"][axis], attrs["dilations"][axis], attrs["pads"][axis]
        lines.append(f"  let p{axis} = i32(q{axis} * {step}u + t{axis} * {dilation}u) - {before};")
        inside.append(f"p{axis} >= 0 && p{axis} < {shape[1 + axis]}")
        pixel.append(f"u32(p{axis})")
    vector = channels % 4 == 0
    zero = "vec4<f32>(0.0)" if vector else "0.0"
    lines.append(f"  if (!({' && '.join(inside)})) {{ return {zero}; }}")
    at = place(shape, [rest, *pixel, "ch"])
    plain = all(k == 1 for k in kernel) and all(s == 1 for s in attrs["strides"]) and not any(attrs["pads"])
    if plain:
        lines, at = [], f"m * {channels}u + k"
    m = int(np.prod(cx.shape(out)[:-1]))
    tail = epilogue(node, cx, 2, bias=bias, residual=residual, slope=slope, element=f"m * {outputs}u + n")
    image = Operand(flat(0, at, vector).text, "\n".join(lines), vector)
    body = Product(1, m, outputs, k, image, flat(1, f"k * {outputs}u + n", outputs % 4 == 0))
    emit(cx, [x, packed], body, out, tail.text, tail.buffers)


def _direct(node: Node, cx: Lowering, weights: np.ndarray, x: str, bias: str, residual: str, slope: str) -> None:
    """w as [taps, channels of a group, O], so that neighbours read neighbours."""
    out, attrs, shape = node.outputs[0], node.attrs, cx.shape(x)
    outputs, *kernel, per_group = weights.shape
    spatial, per_output = len(kernel), outputs // attrs.get("group", 1)
    taps = int(np.prod(kernel))
    packed = cx.constant(weights.reshape(outputs, taps, per_group).transpose(1, 2, 0), cx.dtype(x))
    channel = f"c{spatial + 1}"
    lines = [coordinates(cx.shape(out)), "  var v: f32 = 0.0;", f"  let n = {channel};"]
    lines.append(f"  let first = (n / {per_output}u) * {per_group}u;")

    def tap(number: str, offsets: list[str]) -> list[str]:
        found, inside, names = [], [], []
        for axis in range(spatial):
            step, dilation, before = attrs["strides"][axis], attrs["dilations"][axis], attrs["pads"][axis]
            found.append(f"    let p{axis} = i32(c{axis + 1} * {step}u + ({offsets[axis]}) * {dilation}u) - {before};")
            inside.append(f"p{axis} >= 0 && p{axis} < {shape[1 + axis]}")
            names.append(f"u32(p{axis})")
        base = place(shape, ["c0", *names, "first"])
        if per_group == 1:
            add = f"v = fma(b0[{base}], b1[({number}) * {outputs}u + n], v);"
        else:
            add = (
                f"for (var d: u32 = 0u; d < {per_group}u; d = d + 1u) "
                f"{{ v = fma(b0[{base} + d], b1[(({number}) * {per_group}u + d) * {outputs}u + n], v); }}"
            )
        return [*found, f"    if ({' && '.join(inside)}) {{ {add} }}"]

    if taps <= MAX_UNROLLED:
        for number, offsets in enumerate(np.ndindex(*kernel)):
            lines += ["  {", *tap(f"{number}u", [f"{o}u" for o in offsets]), "  }"]
    else:
        lines.append(f"  for (var tap: u32 = 0u; tap < {taps}u; tap = tap + 1u) {{")
        digits, rest = [""] * spatial, "tap"
        for axis in reversed(range(spatial)):
            digits[axis], rest = f"({rest}) % {kernel[axis]}u", f"({rest}) / {kernel[axis]}u"
        lines += [*tap("tap", digits), "  }"]
    tail = epilogue(node, cx, 2, bias=bias, residual=residual, slope=slope)
    buffers = [x, packed, *tail.buffers]
    cx.pointwise(buffers, out, "\n".join([*lines, tail.text, f"  b{len(buffers)}[i] = v;"]))


@lowers("conv_transpose")
def conv_transpose(node: Node, cx: Lowering) -> None:
    """Every output cell gathers the input cells whose kernel reaches it. w [C, *K, O/group] as [taps, C, O/group]."""
    x, w, bias, slope = (*node.inputs, "", "", "")[:4]
    out, attrs, shape = node.outputs[0], node.attrs, cx.shape(x)
    weights = _weights(cx, w)
    channels, *kernel, per_output = weights.shape
    spatial, group = len(kernel), attrs.get("group", 1)
    taps, per_group = int(np.prod(kernel)), channels // group
    packed = cx.constant(weights.reshape(channels, taps, per_output).transpose(1, 0, 2), cx.dtype(x))
    lines = [coordinates(cx.shape(out)), "  var v: f32 = 0.0;", f"  let n = c{spatial + 1};"]
    lines.append(f"  let first = (n / {per_output}u) * {per_group}u; let o = n % {per_output}u;")
    lines.append(f"  for (var tap: u32 = 0u; tap < {taps}u; tap = tap + 1u) {{")
    rest = "tap"
    inside: list[str] = []
    names: list[str] = []
    for axis in reversed(range(spatial)):
        step, dilation, before = attrs["strides"][axis], attrs["dilations"][axis], attrs["pads"][axis]
        lines.append(
            f"    let r{axis} = i32(c{axis + 1}) + {before} - i32((({rest}) % {kernel[axis]}u) * {dilation}u);"
        )
        inside.append(f"r{axis} >= 0 && r{axis} % {step} == 0 && r{axis} / {step} < {shape[1 + axis]}")
        names.insert(0, f"u32(r{axis} / {step})")
        rest = f"({rest}) / {kernel[axis]}u"
    base = place(shape, ["c0", *names, "first"])
    lines.append(f"    if ({' && '.join(inside)}) {{")
    lines.append(f"      for (var d: u32 = 0u; d < {per_group}u; d = d + 1u) {{")
    lines.append(f"        v = fma(b0[{base} + d], b1[(tap * {channels}u + first + d) * {per_output}u + o], v);")
    lines.append("      }\n    }\n  }")
    tail = epilogue(node, cx, 2, bias=bias, slope=slope)
    buffers = [x, packed, *tail.buffers]
    cx.pointwise(buffers, out, "\n".join([*lines, tail.text, f"  b{len(buffers)}[i] = v;"]))
