"""Products of 8-bit codes in 32-bit integers, and quantisation over the range of a tensor."""

from __future__ import annotations

import numpy as np

from edgerun.backends.gpu.lowering import Lowering, lowers
from edgerun.backends.gpu.wgsl import GROUP, coordinates, per_row, place, tree
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node


@lowers("dynamic_quantize_linear")
def dynamic_quantize_linear(node: Node, cx: Lowering) -> None:
    """The range by one workgroup, then scale, zero point and codes."""
    x, (y, scale, zero) = node.inputs[0], (*node.outputs, "", "")[:3]
    scale = scale or cx.temp(DType.F32, ())
    zero = zero or cx.temp(DType.U8, ())
    limits = cx.temp(DType.F32, (2,))
    count = int(np.prod(cx.shape(x)))
    loop = f"for (var k: u32 = l; k < {count}u; k = k + {GROUP}u)"
    body = f"""  var low: f32 = 0.0;
  var high: f32 = 0.0;
  {loop} {{ low = min(low, b0[k]); high = max(high, b0[k]); }}
  R[l] = low;
{tree("min({a}, {b})")}
  let least = R[0];
  workgroupBarrier();
  R[l] = high;
{tree("max({a}, {b})")}
  if (l == 0u) {{ b1[0] = least; b1[1] = R[0]; }}"""
    cx.emit(per_row(["f32", "f32"], 1, body), [x, limits])
    cx.pointwise([limits], scale, "  let d = b0[1] - b0[0];\n  b1[i] = select(d / 255.0, 1.0, d == 0.0);")
    cx.pointwise([limits, scale], zero, "  b2[i] = i32(round(clamp(-b0[0] / b1[0], 0.0, 255.0)));")
    if y:
        cx.pointwise([x, scale, zero], y, "  b3[i] = i32(clamp(round(b0[i] / b1[0]) + f32(b2[0]), 0.0, 255.0));")


@lowers("matmul_integer")
def matmul_integer(node: Node, cx: Lowering) -> None:
    """(a - a_zero) @ (b - b_zero): one invocation for each element."""
    a, b, a_zero, b_zero = (*node.inputs, "", "")[:4]
    out = node.outputs[0]
    left, right, shape = cx.shape(a), cx.shape(b), cx.shape(out)
    if min(len(left), len(right)) < 2:
        raise UnsupportedError("an integer product with a vector has no GPU kernel")
    rank, buffers, lines = len(shape), [a, b], [coordinates(shape)]

    def batch(of: tuple[int, ...]) -> list[str]:
        return ["0u" if size == 1 else f"c{axis + rank - len(of)}" for axis, size in enumerate(of[:-2])]

    def zero_point(name: str, whole: tuple[int, ...], at: str) -> str:
        if not name:
            return "0"
        if cx.shape(name) not in ((), (1,), whole):
            raise UnsupportedError(f"zero points {list(cx.shape(name))} of an integer product")
        buffers.append(name)
        return f"b{len(buffers) - 1}[{at if cx.shape(name) == whole else '0'}]"

    lines.append(f"  let za = {zero_point(a_zero, (left[-2], 1), f'c{rank - 2}')};")
    lines.append(f"  let zb = {zero_point(b_zero, (right[-1],), f'c{rank - 1}')};")
    at_a, at_b = place(left, [*batch(left), f"c{rank - 2}", "k"]), place(right, [*batch(right), "k", f"c{rank - 1}"])
    lines.append("  var v: i32 = 0;")
    lines.append(f"  for (var k: u32 = 0u; k < {left[-1]}u; k = k + 1u) {{")
    lines.append(f"    v = v + (b0[{at_a}] - za) * (b1[{at_b}] - zb);\n  }}")
    cx.pointwise(buffers, out, "\n".join([*lines, f"  b{len(buffers)}[i] = v;"]))


@lowers("qlinear_conv")
def qlinear_conv(node: Node, cx: Lowering) -> None:
    """Channels last, one invocation for each element; zero points are taken off the weights beforehand."""
    x, out = node.inputs[0], node.outputs[0]
    values = [cx.value(name) for name in node.inputs[1:8]]
    if any(v is None for v in values):
        raise UnsupportedError("a quantised convolution whose weights, scales or zero points are computed")
    x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (np.asarray(v) for v in values)
    dtype, shape = cx.dtype(out), cx.shape(x)
    if dtype not in (DType.U8, DType.I8):
        raise UnsupportedError(f"a quantised convolution to {dtype.short}")
    outputs, *kernel, per_group = w.shape
    spatial, taps = len(kernel), int(np.prod(kernel))
    per_output = outputs // node.attrs.get("group", 1)
    centred = w.astype(np.int32) - w_zero.astype(np.int32).reshape(-1, *[1] * (spatial + 1))
    single = (v.astype(np.float32) for v in (x_scale, w_scale, y_scale))
    first, second, third = (v.reshape(-1) for v in single)
    multiplier = np.broadcast_to(first * second / third, (outputs,))
    buffers = [x, cx.constant(centred, DType.I32), cx.constant(multiplier, DType.F32), *node.inputs[8:9]]
    buffers = [name for name in buffers if name]
    n, inside, names = f"c{spatial + 1}", [], []
    lines = [coordinates(cx.shape(out)), f"  let first = ({n} / {per_output}u) * {per_group}u;"]
    lines.append(f"  var v: i32 = {f'b3[{n}]' if len(buffers) == 4 else '0'};")
    lines += [f"  for (var tap: u32 = 0u; tap < {taps}u; tap = tap + 1u) {{", coordinates(kernel, "tap", "t")]
    for axis in range(spatial):
        step, dilation, before = (node.attrs[key][axis] for key in ("strides", "dilations", "pads"))
        lines.append(f"    let p{axis} = i32(c{axis + 1} * {step}u + t{axis} * {dilation}u) - {before};")
        inside.append(f"p{axis} >= 0 && p{axis} < {shape[1 + axis]}")
        names.append(f"u32(p{axis})")
    lines.append(f"    if ({' && '.join(inside)}) {{ for (var d: u32 = 0u; d < {per_group}u; d = d + 1u) {{")
    at = place(shape, ["c0", *names, "first + d"])
    weight = f"b1[({n} * {taps}u + tap) * {per_group}u + d]"
    lines.append(f"      v = v + (b0[{at}] - ({int(x_zero.reshape(-1)[0])})) * {weight};\n    }} }}\n  }}")
    low, high = (-128.0, 127.0) if dtype.is_signed else (0.0, 255.0)
    code = f"round(f32(v) * b2[{n}]) + ({float(y_zero.reshape(-1)[0])!r})"
    cx.pointwise(buffers, out, "\n".join([*lines, f"  b{len(buffers)}[i] = i32(clamp({code}, {low}, {high}));"]))
