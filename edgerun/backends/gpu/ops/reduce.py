"""Reductions: a workgroup for each result where there is much to add up, else one invocation."""

from __future__ import annotations

import numpy as np

from edgerun.backends.gpu.lowering import Lowering, lowers
from edgerun.backends.gpu.wgsl import GROUP, coordinates, literal, per_row, place, tree
from edgerun.errors import UnsupportedError
from edgerun.graph import Node

MANY = 64
"""Elements of a result that are worth a workgroup."""
_TERMS = {"l1": "abs({0})", "l2": "{0} * {0}", "sumsq": "{0} * {0}", "logsumexp": "exp({0} - top)"}


@lowers("reduce")
def reduce(node: Node, cx: Lowering) -> None:
    x, out, kind = node.inputs[0], node.outputs[0], node.attrs["kind"]
    over = node.attrs.get("over")
    if over is None:
        raise UnsupportedError("a reduction whose axes are computed")
    real = cx.kind(x) == "f32"
    if not real and kind in ("mean", "l2", "logsum", "logsumexp"):
        raise UnsupportedError(f"the {kind} of {cx.dtype(x).short}")
    shape = cx.shape(x)
    axes = sorted({a % len(shape) for a in over}) if shape else []
    kept = [k for k in range(len(shape)) if k not in axes]
    results = tuple(shape[k] for k in kept)
    length, count = int(np.prod([shape[k] for k in axes])), int(np.prod(results))
    if kind == "logsumexp":
        raise UnsupportedError("logsumexp has no GPU kernel")
    start = {"prod": literal(1, cx.dtype(x))}.get(kind, literal(0, cx.dtype(x)))
    if kind in ("max", "min"):
        sign = "-" if kind == "max" else ""
        start = f"{sign}inf_()" if real else ("-2147483647 - 1" if kind == "max" else "2147483647")
    combine = {
        "max": "max_({a}, {b})" if real else "max({a}, {b})",
        "min": "min_({a}, {b})" if real else "min({a}, {b})",
    }
    join = combine.get(kind, "{a} * {b}" if kind == "prod" else "{a} + {b}")
    names = {k: f"c{position}" for position, k in enumerate(kept)} | {
        k: f"r{position}" for position, k in enumerate(axes)
    }
    read = f"b0[{place(shape, [names[k] for k in range(len(shape))])}]"
    term = _TERMS.get(kind, "{0}").format("e")
    inner = coordinates([shape[k] for k in axes], "j", "r")
    final = {"mean": f"v / {float(max(length, 1))!r}", "l2": "sqrt(v)", "logsum": "log(v)"}.get(kind, "v")
    if length == 0 and kind == "mean":
        final = "nan_()"
    wide = length >= MANY
    step, begin = (GROUP, "l") if wide else (1, "0u")
    loop = f"""  var v = {start};
  for (var j: u32 = {begin}; j < {length}u; j = j + {step}u) {{
{inner}
    let e = {read};
    v = {join.format(a="v", b=f"({term})")};
  }}"""
    if not count:
        return
    if not wide:
        cx.pointwise([x], out, f"{coordinates(results)}\n{loop}\n  b1[i] = {final};", count)
        return
    store = f"  if (l == 0u) {{ v = R[0]; b1[row] = {final}; }}"
    body = f"{coordinates(results, 'row')}\n{loop}\n  R[l] = v;\n{tree(join)}\n{store}"
    cx.emit(per_row([cx.kind(x), cx.kind(out)], count, body, cx.kind(x)), [x, out])


@lowers("argreduce")
def argreduce(node: Node, cx: Lowering) -> None:
    """The place of an extreme: one invocation for each result. NaN comes before everything."""
    x, out, shape = node.inputs[0], node.outputs[0], cx.shape(node.inputs[0])
    axis = node.attrs["axis"] % len(shape)
    length, inner = shape[axis], int(np.prod(shape[axis + 1 :]))
    sign = ">" if node.attrs["kind"] == "max" else "<"
    last = node.attrs.get("last", False)
    better = f"e {sign}{'=' if last else ''} best"
    if cx.kind(x) == "f32":
        better = f"is_nan_(e) || {better}" if last else f"(is_nan_(e) && !is_nan_(best)) || {better}"
    body = f"""  let base = (i / {inner}u) * {length * inner}u + i % {inner}u;
  var best = b0[base];
  var at: i32 = 0;
  for (var k: u32 = 1u; k < {length}u; k = k + 1u) {{
    let e = b0[base + k * {inner}u];
    if ({better}) {{ best = e; at = i32(k); }}
  }}
  b1[i] = at;"""
    cx.pointwise([x], out, body)
