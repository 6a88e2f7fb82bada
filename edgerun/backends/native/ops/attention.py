"""Attention, rotary embedding, cache update."""

from __future__ import annotations

from typing import Any

from edgerun.backends.native.lowering import Lowering, Param, Placement, lowers
from edgerun.backends.native.ops.elementwise import apply, cast
from edgerun.backends.native.ops.movement import view
from edgerun.backends.native.ops.reduce import HALF, number_of
from edgerun.backends.native.packing import PANEL
from edgerun.dims import DimLike, ceildiv, product
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node

SCORES = ("raw", "capped", "biased", "weights")
CHUNK, FEW = 28, 3
"""ATT_CHUNK and ATT_FEW of attention.c."""


def _input(node: Node, index: int) -> str:
    return node.inputs[index] if index < len(node.inputs) else ""


def _output(node: Node, index: int) -> str:
    return node.outputs[index] if index < len(node.outputs) else ""


def _joined(cx: Lowering, past: str, new: str, present: str) -> str:
    """Past and new keys (or values) one after the other along the sequence; `present` names the output, if any."""
    if not past:
        if present:
            view(cx, new, present)
        return new
    shape, before = cx.shape(new), cx.shape(past)
    total = before[2] + shape[2]
    result = present or cx.temp(cx.dtype(new), (*shape[:2], total, shape[3]), "present")
    placements = []
    if shape[0] == 1 and shape[1] == 1:
        placements = [Placement(past, result, 0), Placement(new, result, product((before[2], shape[3])))]
    cx.emit("concat", [past, new], [result], [2], placements=placements, why="the cache and the new steps")
    return result


@lowers("attention")
def attention(node: Node, cx: Lowering) -> None:
    """One kernel a call; 16-bit floats are computed in f32."""
    attrs: dict[str, Any] = node.attrs
    q, k, v, mask, past_k, past_v, nonpad, offset, sink = (_input(node, i) for i in range(9))
    y, present_k, present_v, scores = (_output(node, i) for i in range(4))
    dtype = cx.dtype(q)
    if dtype is DType.F64:
        raise UnsupportedError("attention in f64 is not done by the native backend")
    past: DimLike = cx.shape(past_k)[2] if past_k else -1
    if past == 0:
        past = -1
    keys, values = _joined(cx, past_k, k, present_k), _joined(cx, past_v, v, present_v)
    if mask and cx.dtype(mask) is not DType.BOOL:
        mask = cast(cx, mask, DType.F32)
    results = []
    for name in (y, scores):
        wide = cx.temp(DType.F32, cx.shape(name), f"{name}.f32") if name and dtype in HALF else name
        results.append((wide, name))
    size, total = cx.shape(keys)[3], cx.shape(keys)[2]
    params: list[Param] = [
        float(attrs["scale"]), float(attrs.get("softcap", 0.0)), int(attrs.get("causal", False)), attrs.get("left", -1),
        attrs.get("right", -1), SCORES.index(attrs.get("scores", "raw")), past,
    ]  # fmt: skip
    pad = max(PANEL[cx.arch], 16)
    padded, value_columns = (ceildiv(n, pad) * pad for n in (total, cx.shape(values)[3]))
    steps = cx.shape(q)[2]
    few = isinstance(steps, int) and steps <= FEW
    cx.emit(
        "attention",
        [cast(cx, q, DType.F32), cast(cx, keys, DType.F32), cast(cx, values, DType.F32), mask, nonpad, offset,
         cast(cx, sink, DType.F32) if sink else ""],
        [wide for wide, _ in results], params,
        thread_scratch=4 * (CHUNK * (padded + size) + (0 if few else product((padded, size + value_columns)))),
        macs=product(cx.shape(q)[:3]) * product((total, size + cx.shape(values)[3])),
        why="query by query" if few else f"products of {CHUNK} queries at a time",
    )  # fmt: skip
    for wide, name in results:
        if wide != name:
            apply(cx, (("cast", dtype, 0),), [wide], name)


@lowers("rotary")
def rotary(node: Node, cx: Lowering) -> None:
    x, cos, sin = node.inputs
    dtype, y = cx.dtype(x), node.outputs[0]
    if dtype is DType.F64:
        raise UnsupportedError("rotary embedding in f64 is not done by the native backend")
    result = y if dtype is DType.F32 else cx.temp(DType.F32, cx.shape(y), "rotated")
    inputs = [cast(cx, n, DType.F32) for n in (x, cos, sin)]
    params = [int(node.attrs.get("interleaved", False))]
    cx.emit("rotary", inputs, [result], params, in_place=[(0, 0)], why="pair by pair")
    if result != y:
        apply(cx, (("cast", dtype, 0),), [result], y)


@lowers("cache_update")
def cache_update(node: Node, cx: Lowering) -> None:
    past, new, offset, total = node.inputs
    number_of(cx, cx.dtype(past), "a cache")
    if cx.constant(total) is None and cx.shape(past)[2] != 0:
        raise UnsupportedError("the length of the cache is computed at run time")
    same = [(0, 0)] if cx.shape(past) == cx.shape(node.outputs[0]) else []
    cx.emit(
        "cache_update", [past, new, offset], [node.outputs[0]], in_place=same, why="past, then the new steps over it"
    )
