"""Attention without a cache: scores on tiles, a softmax of rows with the mask, and the product with the values."""

from __future__ import annotations

from edgerun.backends.gpu.lowering import Lowering, lowers
from edgerun.backends.gpu.ops.matmul import flat
from edgerun.backends.gpu.ops.tiles import Product, emit
from edgerun.backends.gpu.wgsl import GROUP, coordinates, literal, per_row, place, tree
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node


@lowers("attention")
def attention(node: Node, cx: Lowering) -> None:
    q, k, v, mask, *others = (*node.inputs, *[""] * 9)[:9]
    attrs = node.attrs
    if any(others) or attrs.get("softcap") or attrs.get("left", -1) >= 0 or attrs.get("right", -1) >= 0:
        raise UnsupportedError("attention with a cache, a window, a cap or a sink")
    if any(node.outputs[1:]):
        raise UnsupportedError("attention that also gives its keys, values or scores")
    batch, heads, steps, size = cx.shape(q)
    groups, total = cx.shape(k)[1:3]
    width, shared = cx.shape(v)[3], heads // groups
    key = f"(z / {heads}u) * {groups}u + (z % {heads}u) / {shared}u"
    scores = cx.temp(DType.F32, (batch, heads, steps, total))
    scale = literal(attrs["scale"], DType.F32)
    rows = flat(0, f"(z * {steps}u + m) * {size}u + k", size % 4 == 0)
    columns = flat(1, f"(({key}) * {total}u + n) * {size}u + k", False)
    emit(cx, [q, k], Product(batch * heads, steps, total, size, rows, columns), scores, f"  v = v * {scale};")
    weights = cx.temp(DType.F32, (batch, heads, steps, total))
    _softmax(cx, scores, mask, weights, bool(attrs.get("causal")))
    rows = flat(0, f"(z * {steps}u + m) * {total}u + k", total % 4 == 0)
    columns = flat(1, f"(({key}) * {total}u + k) * {width}u + n", width % 4 == 0)
    emit(cx, [weights, v], Product(batch * heads, steps, width, total, rows, columns), node.outputs[0])


def _softmax(cx: Lowering, scores: str, mask: str, weights: str, causal: bool) -> None:
    shape = cx.shape(scores)
    steps, total = shape[2:]
    rows = shape[0] * shape[1] * steps
    buffers = [scores, *([mask] if mask else []), weights]
    lines = ["    var e = b0[base + k];"]
    if mask:
        given = (*[1] * (4 - len(cx.shape(mask))), *cx.shape(mask))
        if given[3] not in (1, total):
            raise UnsupportedError("a mask that is shorter than the keys")
        names = ["0u" if size == 1 else f"c{axis}" if axis < 3 else "k" for axis, size in enumerate(given)]
        read = f"b1[{place(given, names)}]"
        if cx.dtype(mask) is DType.BOOL:
            lines.append(f"    e = select(-inf_(), e, {read} != 0);")
        else:
            lines.append(f"    let w = {read}; e = select(e + w, -inf_(), is_inf_(w) && w < 0.0);")
    if causal:
        lines.append("    e = select(-inf_(), e, k <= c2);")
    term = "\n".join(lines)
    loop = f"for (var k: u32 = l; k < {total}u; k = k + {GROUP}u)"
    body = f"""{coordinates(shape[:3], "row")}
  let base = row * {total}u;
  var m = -inf_();
  {loop} {{
{term}
    m = max_(m, e);
  }}
  R[l] = m;
{tree("max_({a}, {b})")}
  let top = select(R[0], 0.0, is_inf_(R[0]) && R[0] < 0.0);
  workgroupBarrier();
  var s: f32 = 0.0;
  {loop} {{
{term}
    let x = exp(e - top);
    b{len(buffers) - 1}[base + k] = x;
    s = s + x;
  }}
  R[l] = s;
{tree("{a} + {b}")}
  let sum = select(R[0], 1.0, R[0] == 0.0);
  {loop} {{ b{len(buffers) - 1}[base + k] = b{len(buffers) - 1}[base + k] / sum; }}"""
    cx.emit(per_row([cx.kind(n) for n in buffers], rows, body), buffers)
