"""Normalisation over the last axes: a workgroup for each row, mean first, then the sum of squared differences."""

from __future__ import annotations

import numpy as np

from edgerun.backends.gpu.lowering import Lowering, lowers
from edgerun.backends.gpu.wgsl import GROUP, per_row, tree
from edgerun.errors import UnsupportedError
from edgerun.graph import Node

_SUM = "{a} + {b}"


@lowers("layer_norm")
def layer_norm(node: Node, cx: Lowering) -> None:
    if any(node.outputs[1:]):
        raise UnsupportedError("layer normalisation that also gives its statistics")
    x, scale, bias = (*node.inputs, "", "")[:3]
    _normalise(cx, x, node.outputs[0], scale, bias, node.attrs["axis"], node.attrs["epsilon"], centred=True)


@lowers("rms_norm")
def rms_norm(node: Node, cx: Lowering) -> None:
    x, scale = node.inputs[:2]
    _normalise(cx, x, node.outputs[0], scale, "", node.attrs["axis"], node.attrs["epsilon"], centred=False)


def _normalise(
    cx: Lowering, x: str, out: str, scale: str, bias: str, axis: int, epsilon: float, *, centred: bool
) -> None:
    shape = cx.shape(x)
    length, rows = int(np.prod(shape[axis:])), int(np.prod(shape[:axis]))
    if rows * length == 0:
        return
    buffers = [x, *(n for n in (scale, bias) if n)]
    factor = " * b1[k]" if scale else ""
    term = f" + b{1 + bool(scale)}[k]" if bias else ""
    loop = f"for (var k: u32 = l; k < {length}u; k = k + {GROUP}u)"
    mean = f"""  var s: f32 = 0.0;
  {loop} {{ s = s + b0[base + k]; }}
  R[l] = s;
{tree(_SUM)}
  let mean = R[0] / {float(length)!r};
  workgroupBarrier();"""
    body = f"""  let base = row * {length}u;
{mean if centred else "  let mean: f32 = 0.0;"}
  var q: f32 = 0.0;
  {loop} {{ let d = b0[base + k] - mean; q = q + d * d; }}
  R[l] = q;
{tree(_SUM)}
  let inverse = 1.0 / sqrt(R[0] / {float(length)!r} + {epsilon!r});
  {loop} {{ b{len(buffers)}[base + k] = (b0[base + k] - mean) * inverse{factor}{term}; }}"""
    cx.emit(per_row(["f32"] * (len(buffers) + 1), rows, body), [*buffers, out])


@lowers("group_norm")
def group_norm(node: Node, cx: Lowering) -> None:
    """x [N, *S, C]: a workgroup for each example and group."""
    x, scale, bias = node.inputs[:3]
    shape, groups, epsilon = cx.shape(x), int(node.attrs["groups"]), node.attrs["epsilon"]
    channels, per_group = shape[-1], shape[-1] // groups
    pixels = int(np.prod(shape[1:-1]))
    length = pixels * per_group
    if shape[0] * length == 0:
        return
    loop = f"for (var k: u32 = l; k < {length}u; k = k + {GROUP}u)"
    channel = f"(row % {groups}u) * {per_group}u + k % {per_group}u"
    at = f"((row / {groups}u) * {pixels}u + k / {per_group}u) * {channels}u + {channel}"
    body = f"""  var s: f32 = 0.0;
  {loop} {{ s = s + b0[{at}]; }}
  R[l] = s;
{tree(_SUM)}
  let mean = R[0] / {float(length)!r};
  workgroupBarrier();
  var q: f32 = 0.0;
  {loop} {{ let d = b0[{at}] - mean; q = q + d * d; }}
  R[l] = q;
{tree(_SUM)}
  let inverse = 1.0 / sqrt(R[0] / {float(length)!r} + {epsilon!r});
  {loop} {{ let c = {channel}; b3[{at}] = (b0[{at}] - mean) * inverse * b1[c] + b2[c]; }}"""
    cx.emit(per_row(["f32"] * 4, shape[0] * groups, body), [x, scale, bias, node.outputs[0]])
