"""Moving elements: reshape, slice, pad, gather, scatter and the like."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.properties.case import Case
from tests.properties.draw import Drawer, covers, one

f32 = np.float32
DTYPES = (f32, f32, np.int64, np.int32, np.uint8, bool, np.float16, np.float64, object)
NUMBERS = (f32, f32, np.int64, np.int32, np.float64)


@covers("transpose")
def transpose(d: Drawer) -> Case:
    shape = d.shape(low=1, high=5)
    perm = [int(p) for p in d.rng.permutation(len(shape))]
    return one("Transpose", {"x": d.any(*shape, dtype=d.pick(*DTYPES))}, {"perm": d.pick(perm, perm, None)})


@covers("reshape")
def reshape(d: Drawer) -> Case:
    """Zeros copy a size, -1 is the rest."""
    shape = d.shape(smallest=1)
    x = d.any(*shape, dtype=d.pick(*DTYPES))
    sizes = (
        [*shape] if d.bool() else [int(math.prod(shape[: len(shape) // 2])), int(math.prod(shape[len(shape) // 2 :]))]
    )
    target = [0 if i < len(shape) and sizes[i] == shape[i] and d.bool() else s for i, s in enumerate(sizes)]
    if target and d.bool():
        target[d.int(0, len(target) - 1)] = -1
    inputs = {"x": x, "shape": np.array(target, np.int64)}
    return one("Reshape", inputs, opset=14, constant=d.pick((), ("shape",)))


@covers("reshape")
def reshape_of_nothing(d: Drawer) -> Case:
    x = f32(np.zeros((0, d.int(1, 3))))
    return one("Reshape", {"x": x, "s": np.array([d.int(1, 3), 0])}, {"allowzero": 1}, opset=14, constant=("s",))


@covers("reshape")
def squeeze_and_flatten(d: Drawer) -> Case:
    kind = d.pick("Flatten", "Squeeze", "Unsqueeze", "DepthToSpace", "SpaceToDepth")
    if kind == "Flatten":
        shape = d.shape()
        return one("Flatten", {"x": d.normal(*shape)}, {"axis": d.int(-len(shape), len(shape))}, opset=13)
    if kind in ("DepthToSpace", "SpaceToDepth"):
        n, c, h, w, b = (d.int(1, 3) for _ in range(5))
        if kind == "DepthToSpace":
            attributes = {"blocksize": b, "mode": d.pick("DCR", "CRD")}
            return one(kind, {"x": d.normal(n, c * b * b, h, w)}, attributes, opset=13)
        return one(kind, {"x": d.normal(n, c, h * b, w * b)}, {"blocksize": b}, opset=13)
    shape = [*d.shape(low=1, smallest=1)]
    axis = d.int(0, len(shape) - 1)
    if kind == "Squeeze":
        shape[axis] = 1
    inputs = {"x": d.normal(*shape), "axes": np.array([axis - d.int(0, 1) * len(shape) if kind == "Squeeze" else axis])}
    return one(kind, inputs, opset=13, constant=("axes",))


@covers("expand")
def expand(d: Drawer) -> Case:
    shape = d.shape()
    x = d.any(*d.broadcast(shape), dtype=d.pick(*(t for t in DTYPES if t is not np.float16)))
    return one("Expand", {"x": x, "shape": np.array(shape, np.int64)}, opset=13, constant=d.pick((), ("shape",)))


@covers("concat")
def concat(d: Drawer) -> Case:
    shape = d.shape(low=1)
    axis, dtype = d.axis(len(shape)), d.pick(*DTYPES)
    parts = {}
    for i in range(d.int(1, 4)):
        part = [*shape]
        part[axis] = d.int(0, 3)
        parts[f"x{i}"] = d.any(*part, dtype=dtype)
    return one("Concat", parts, {"axis": axis}, opset=13)


@covers("slice")
def slices(d: Drawer) -> Case:
    """Bounds far outside, negative steps; in one case of two as tensors that are only known when it runs."""
    shape = d.shape(low=1)
    axes = sorted({d.int(0, len(shape) - 1) for _ in range(d.int(1, 3))})
    named = [a - len(shape) * d.int(0, 1) for a in axes]
    steps = [d.pick(1, 1, 2, 3, -1, -2) for _ in axes]
    starts, ends = ([d.pick(d.int(-6, 6), 2**62, -(2**62)) for _ in axes] for _ in range(2))
    kind = d.pick(np.int32, np.int64)
    if kind is np.int32:
        starts, ends = ([int(np.clip(v, -(2**31), 2**31 - 1)) for v in part] for part in (starts, ends))
    inputs: dict[str, Any] = {"x": d.any(*shape, dtype=d.pick(*DTYPES))}
    inputs |= {k: np.array(v, kind) for k, v in (("s", starts), ("e", ends), ("a", named), ("t", steps))}
    # A start before the axis and a negative step: onnxruntime gives one element, Python none; see docs/semantics.md.
    odd = any(t < 0 for t in steps)
    reason = "where a negative step starts before the axis, onnxruntime gives one element" if odd else ""
    return one("Slice", inputs, opset=13, constant=d.pick((), ("s", "e", "a", "t")), no_oracle=reason)


@covers("slice")
def split(d: Drawer) -> Case:
    shape = [*d.shape(low=1)]
    axis = d.axis(len(shape))
    sizes = [d.int(0, 3) for _ in range(d.int(2, 3))]
    shape[axis] = sum(sizes)
    inputs = {"x": d.normal(*shape), "split": np.array(sizes)}
    return one("Split", inputs, {"axis": axis}, outputs=len(sizes), opset=13, constant=("split",))


@covers("pad")
def pad(d: Drawer) -> Case:
    mode = d.pick("constant", "constant", "edge", "reflect", "wrap")
    shape = d.shape(low=1, smallest=2 if mode != "constant" else 1)
    limit = 1 if mode == "reflect" else 2
    widths = np.array([d.int(-1 if mode == "constant" else 0, limit) for _ in range(2 * len(shape))])
    widths[: len(shape)] = np.where(widths[: len(shape)] + widths[len(shape) :] + shape < 0, 0, widths[: len(shape)])
    x = d.any(*shape, dtype=d.pick(*NUMBERS))
    value = np.array(d.int(-2, 2), x.dtype) if d.bool() and mode == "constant" else None
    inputs = {"x": x, "pads": widths, "value": value}
    return one("Pad", inputs, {"mode": mode}, opset=19, constant=d.pick((), ("pads",), ("pads", "value")))


@covers("tile")
def tile(d: Drawer) -> Case:
    shape = d.shape(low=1)
    x = d.any(*shape, dtype=d.pick(*NUMBERS, bool))
    inputs = {"x": x, "r": np.array([d.int(0, 3) for _ in shape])}
    return one("Tile", inputs, opset=13, constant=d.pick((), ("r",)))


@covers("shape")
def shape_of(d: Drawer) -> Case:
    """With computed sizes; a symbolic import keeps the node."""
    from onnx import TensorProto, helper

    shape = d.shape()
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Shape", ["places"], ["out0"], start=d.int(-3, 3), end=d.int(-3, 3)),
    ]
    x = d.any(*shape, dtype=f32)
    port = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [port], [helper.make_empty_tensor_value_info("out0")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return Case(model, {"x": x})


@covers("shape")
def shape_of_input(d: Drawer) -> Case:
    """Only a symbolic import has to compute this one."""
    return one("Shape", {"x": d.normal(*d.shape(low=1))}, {"start": d.int(-3, 0)}, opset=15)


@covers("range")
def range_to_a_size(d: Drawer) -> Case:
    """Only a symbolic import has to compute this one."""
    from onnx import TensorProto, helper, numpy_helper

    x = d.normal(d.int(0, 5))
    weights = [numpy_helper.from_array(np.array(v), k) for k, v in (("zero", 0), ("one", d.int(1, 2)), ("axis", [0]))]
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Squeeze", ["sizes", "axis"], ["size"]),
        helper.make_node("Range", ["zero", "size", "one"], ["out0"]),
    ]
    port = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph(nodes, "g", [port], [helper.make_empty_tensor_value_info("out0")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return Case(model, {"x": x})


@covers("range")
def ranges(d: Drawer) -> Case:
    dtype = d.pick(np.int32, np.int64, f32, np.float64)
    step = d.pick(1, 2, 3, -1, -2)
    values = {k: np.array(v, dtype) for k, v in (("s", d.int(-9, 9)), ("l", d.int(-9, 9)), ("d", step))}
    return one("Range", values, opset=11)


@covers("gather")
def gather(d: Drawer) -> Case:
    shape = d.shape(low=1)
    axis = d.axis(len(shape))
    size = shape[axis]
    where = d.shape(high=2, smallest=1 if size else 0)
    if not size:
        where = (0,)
    indices = d.integers(*where, low=-size, high=max(size - 1, -size), dtype=d.pick(np.int32, np.int64))
    inputs = {"x": d.any(*shape, dtype=d.pick(*DTYPES)), "i": indices}
    return one("Gather", inputs, {"axis": axis}, opset=13, constant=d.pick((), ("i",)))


@covers("gather_elements")
def gather_elements(d: Drawer) -> Case:
    shape = d.shape(low=1, smallest=1)
    axis = d.axis(len(shape))
    where = [d.int(0, s) for s in shape]
    where[axis] = d.int(0, 4)
    indices = d.integers(*where, low=-shape[axis], high=shape[axis] - 1, dtype=d.pick(np.int32, np.int64))
    inputs = {"x": d.any(*shape, dtype=d.pick(*DTYPES)), "i": indices}
    return one("GatherElements", inputs, {"axis": axis}, opset=13)


@covers("gather_nd")
def gather_nd(d: Drawer) -> Case:
    shape = d.shape(low=1, smallest=1)
    batch = d.int(0, len(shape) - 1)
    depth = d.int(1, len(shape) - batch)
    where = (*shape[:batch], *d.shape(low=0, high=2))
    parts = [d.integers(*where, low=-s, high=s - 1) for s in shape[batch : batch + depth]]
    inputs = {"x": d.any(*shape, dtype=d.pick(*DTYPES)), "i": np.stack(parts, -1)}
    return one("GatherND", inputs, {"batch_dims": batch}, opset=13)


@covers("scatter_elements")
def scatter_elements(d: Drawer) -> Case:
    """Places named twice only where a reduction makes the order irrelevant."""
    shape = d.shape(low=1, smallest=1)
    axis, reduction = d.axis(len(shape)), d.pick("none", "add", "mul", "max", "min")
    where = [d.int(0, s) for s in shape]
    if reduction == "none":
        order = np.argsort(d.rng.random(shape), axis=axis)
        indices = order[tuple(slice(0, w) for w in where)]
    else:
        indices = d.integers(*where, low=-shape[axis], high=shape[axis] - 1)
    dtype = d.pick(*NUMBERS)
    inputs = {"x": d.any(*shape, dtype=dtype), "i": indices, "u": d.any(*where, dtype=dtype)}
    return one("ScatterElements", inputs, {"axis": axis, "reduction": reduction}, opset=18)


@covers("scatter_nd")
def scatter_nd(d: Drawer) -> Case:
    shape = d.shape(low=1, smallest=1)
    depth, reduction = d.int(1, len(shape)), d.pick("none", "add", "mul", "max", "min")
    cells = math.prod(shape[:depth])
    count = d.int(0, cells)
    flat = (
        d.rng.choice(cells, count, replace=False) if reduction == "none" else d.integers(count, low=0, high=cells - 1)
    )
    indices = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype(np.int64).reshape(count, depth)
    dtype = d.pick(*NUMBERS)
    inputs = {"x": d.any(*shape, dtype=dtype), "i": indices, "u": d.any(count, *shape[depth:], dtype=dtype)}
    return one("ScatterND", inputs, {"reduction": reduction}, opset=18)


@covers("one_hot")
def one_hot(d: Drawer) -> Case:
    """Indices outside leave a line of off values."""
    where = d.shape(low=1, high=3)
    depth = d.int(1, 4)
    dtype = d.pick(f32, np.int64)
    inputs = {
        "i": d.integers(*where, low=-depth - 1, high=depth), "d": np.array(depth),
        "v": np.array([d.int(-2, 2), d.int(-2, 2)], dtype),
    }  # fmt: skip
    return one("OneHot", inputs, {"axis": d.axis(len(where) + 1)}, opset=11, constant=d.pick((), ("d",), ("d", "v")))


@covers("compress")
def compress(d: Drawer) -> Case:
    shape = d.shape(low=1, smallest=1)
    axis = d.pick(None, d.axis(len(shape)))
    length = math.prod(shape) if axis is None else shape[axis]
    inputs = {"x": d.any(*shape, dtype=d.pick(*DTYPES)), "c": d.any(d.int(0, length), dtype=bool)}
    return one("Compress", inputs, {"axis": axis}, opset=11)


@covers("nonzero")
def nonzero(d: Drawer) -> Case:
    return one("NonZero", {"x": d.any(*d.shape(low=1), dtype=d.pick(f32, np.int64, bool, np.int32))}, opset=13)


@covers("trilu")
def trilu(d: Drawer) -> Case:
    shape = d.shape(low=2)
    k = np.array(d.int(-5, 5)) if d.bool() else None
    inputs = {"x": d.any(*shape, dtype=d.pick(f32, np.int64, np.float64, bool)), "k": k}
    return one("Trilu", inputs, {"upper": d.int(0, 1)}, opset=14, constant=d.pick((), ("k",)))


@covers("reverse_sequence")
def reverse_sequence(d: Drawer) -> Case:
    shape = d.shape(low=2, smallest=1)
    time = d.int(0, 1)
    lengths = d.integers(shape[1 - time], low=0, high=shape[time])
    inputs = {"x": d.any(*shape, dtype=d.pick(f32, np.int64, np.int32)), "l": lengths}
    return one("ReverseSequence", inputs, {"time_axis": time, "batch_axis": 1 - time}, opset=10)


@covers("tensor_scatter")
def tensor_scatter(d: Drawer) -> Case:
    batch, heads, length, size = d.int(1, 2), d.int(1, 2), d.int(1, 5), d.int(1, 3)
    mode, count = d.pick("linear", "circular"), d.int(1, length)
    last = length - (count if mode == "linear" else 1)
    offsets = d.integers(batch, low=0, high=last) if d.bool() else None
    inputs = {"p": d.normal(batch, heads, length, size), "u": d.normal(batch, heads, count, size), "o": offsets}
    return one("TensorScatter", inputs, {"mode": mode, "axis": d.pick(2, -2)}, opset=24)
