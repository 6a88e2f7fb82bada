"""Softmax along any axis: a workgroup for each row."""

from __future__ import annotations

import numpy as np

from edgerun.backends.gpu.lowering import Lowering, lowers
from edgerun.backends.gpu.wgsl import GROUP, per_row, tree
from edgerun.graph import Node


@lowers("softmax")
def softmax(node: Node, cx: Lowering) -> None:
    x, out = node.inputs[0], node.outputs[0]
    shape = cx.shape(x)
    axis = node.attrs["axis"] % max(len(shape), 1)
    length = shape[axis] if shape else 1
    inner = int(np.prod(shape[axis + 1 :]))
    rows = int(np.prod(shape)) // max(length, 1)
    if rows == 0 or length == 0:
        return
    at = f"(row / {inner}u) * {length * inner}u + row % {inner}u" if inner > 1 else f"row * {length}u"
    loop = f"for (var k: u32 = l; k < {length}u; k = k + {GROUP}u)"
    each = f"base + k * {inner}u"
    result = "b0[{0}] - top - log(sum)" if node.attrs.get("log") else "exp(b0[{0}] - top) / sum"
    body = f"""  let base = {at};
  var m = -inf_();
  {loop} {{ m = max_(m, b0[{each}]); }}
  R[l] = m;
{tree("max_({a}, {b})")}
  let top = R[0];
  workgroupBarrier();
  var s: f32 = 0.0;
  {loop} {{ s = s + exp(b0[{each}] - top); }}
  R[l] = s;
{tree("{a} + {b}")}
  let sum = R[0];
  {loop} {{ b1[{each}] = {result.format(each)}; }}"""
    cx.emit(per_row(["f32", "f32"], rows, body), [x, out])
