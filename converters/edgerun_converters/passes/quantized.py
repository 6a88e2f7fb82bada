"""From quantise/dequantise pairs to integer arithmetic.

Quantised models in QDQ form surround float ops with dequantize_linear and quantize_linear. In order:

* `settle_dequantize`: movement ops work on quantised data (dequantise afterwards), layout changes of quantised weights
  are done now, and quantising what was just dequantised with the same parameters disappears;
* `integer_layers`: a conv or matmul between dequantised inputs and a quantised output becomes one integer kernel;
* `elementwise_scales`: what is left, per tensor, becomes scalar arithmetic that fuses with its neighbours.

Rounding follows the written model up to the last place of the requantisation; see docs/semantics.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import find
from edgerun.dims import product
from edgerun.dtypes import DType
from edgerun.graph import Graph, Node, Tensor
from edgerun_converters.passes.editor import Editor

_RANGE = {DType.U8: (0, 255), DType.I8: (-128, 127)}
_MOVEMENT = ("transpose", "reshape", "slice", "expand", "gather")


@dataclass(frozen=True, slots=True)
class _Quantised:
    """A dequantize_linear node's parts: the quantised tensor and its constant parameters."""

    name: str
    scale: np.ndarray
    zero: np.ndarray
    axis: int
    dtype: DType
    node: Node

    @property
    def per_tensor(self) -> bool:
        return self.scale.size == 1


def _dequantised(editor: Editor, name: str) -> _Quantised | None:
    """What `name` is the dequantisation of, if scale and zero point are constants and not blocked."""
    node = editor.producer(name)
    if node is None or node.op != "dequantize_linear" or node.attrs.get("block"):
        return None
    scale = editor.constant(node.inputs[1])
    dtype = editor.tensor(node.inputs[0]).dtype
    if scale is None or scale.ndim > 1 or editor.tensor(name).dtype is not DType.F32:
        return None
    if len(node.inputs) > 2 and node.inputs[2]:
        zero = editor.constant(node.inputs[2])
        if zero is None:
            return None
    else:
        zero = np.zeros(scale.shape, dtype.numpy)
    return _Quantised(node.inputs[0], scale, zero, node.attrs.get("axis", 0), dtype, node)


# -- dequantisation settles as late as it can


def settle_dequantize(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """One sweep of the movement rules and the cancellation."""
    editor = Editor(graph, outer)
    for node in editor:
        new = _cancel(editor, node) or _move(editor, node) or _max_pool(editor, node)
        if new is None:
            editor.keep(node)
        else:
            editor.replace(node.outputs[0], new)
    return editor.finish()


def _cancel(editor: Editor, node: Node) -> str | None:
    """quantize(dequantize(x)) with the same parameters is x."""
    if node.op != "quantize_linear" or node.attrs.get("block"):
        return None
    source = _dequantised(editor, node.inputs[0])
    if source is None or editor.tensor(node.outputs[0]).dtype is not source.dtype:
        return None
    scale, zero = _output_parameters(editor, node)
    if scale is None or zero is None or not np.array_equal(scale, source.scale):
        return None
    same_axis = source.per_tensor or node.attrs.get("axis", 0) == source.axis
    return source.name if same_axis and np.array_equal(zero, source.zero) else None


def _output_parameters(editor: Editor, node: Node) -> tuple[np.ndarray | None, np.ndarray | None]:
    """(scale, zero point) of a quantize_linear node, None where they are computed."""
    scale = editor.constant(node.inputs[1])
    if len(node.inputs) > 2 and node.inputs[2]:
        return scale, editor.constant(node.inputs[2])
    if scale is None:
        return None, None
    return scale, np.zeros(scale.shape, editor.tensor(node.outputs[0]).dtype.numpy)


def _move(editor: Editor, node: Node) -> str | None:
    """movement(dequantize(x)) is dequantize(movement(x)); for a constant x the movement happens now."""
    if node.op not in _MOVEMENT or len(node.outputs) != 1:
        return None
    source = _dequantised(editor, node.inputs[0])
    if source is None or (node.op != "gather" and any(node.inputs[1:])):
        return None
    weight = editor.constant(source.name) is not None
    if not weight and not editor.only_use(node.inputs[0]):
        return None
    attrs = dict(source.node.attrs)
    if not source.per_tensor:
        axis = _moved_axis(editor, node, source)
        if axis is None:
            return None
        attrs["axis"] = axis
    moved = editor.emit(node.op, [source.name, *node.inputs[1:]], **node.attrs)
    return editor.emit("dequantize_linear", [moved, *source.node.inputs[1:]], **attrs)


def _moved_axis(editor: Editor, node: Node, source: _Quantised) -> int | None:
    """Where the axis of per-channel parameters goes; None when the movement splits or mixes it."""
    if node.op == "transpose":
        return node.attrs["perm"].index(source.axis)
    old, new = editor.tensor(source.name).shape, node.attrs.get("to")
    if node.op != "reshape" or old is None or new is None:
        return None
    before = product(old[: source.axis])
    for axis, size in enumerate(new):
        if size == old[source.axis] and product(new[:axis]) == before:
            return axis
    return None


def _max_pool(editor: Editor, node: Node) -> str | None:
    """Maxima commute with dequantisation by a positive scale."""
    if node.op != "pool" or node.attrs["kind"] != "max":
        return None
    source = _dequantised(editor, node.inputs[0])
    if source is None or not source.per_tensor or not editor.only_use(node.inputs[0]) or source.scale.min() <= 0:
        return None
    pooled = editor.emit("pool", [source.name], **node.attrs)
    return editor.emit("dequantize_linear", [pooled, *source.node.inputs[1:]], **source.node.attrs)


# -- integer convolution and matmul


def integer_layers(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """Replace each quantize_linear whose input is a conv or matmul of dequantised 8-bit tensors."""
    editor = Editor(graph, outer)
    for node in editor:
        new = _integer_layer(editor, node)
        if new is None:
            editor.keep(node)
        else:
            editor.replace(node.outputs[0], new)
    return editor.finish()


def _integer_layer(editor: Editor, node: Node) -> str | None:
    if node.op != "quantize_linear" or node.attrs.get("block"):
        return None
    out_type = editor.tensor(node.outputs[0]).dtype
    scale, zero = _output_parameters(editor, node)
    if out_type not in _RANGE or scale is None or zero is None or scale.size != 1:
        return None
    layer = editor.producer(node.inputs[0])
    if layer is None or layer.op not in ("conv", "matmul") or not editor.only_use(node.inputs[0]):
        return None
    if layer.attrs.get("res", "none") != "none" or any(layer.inputs[3:]):
        return None
    if not _implied(layer, float(scale.reshape(())), int(zero.reshape(())), out_type):
        return None
    x = _dequantised(editor, layer.inputs[0])
    w = _dequantised(editor, layer.inputs[1])
    if x is None or w is None or x.dtype not in _RANGE or w.dtype not in _RANGE or not x.per_tensor:
        return None
    if not w.per_tensor and w.axis != _channel_axis(editor, layer):
        return None
    codes = editor.constant(w.name)
    if layer.attrs.get("trans_b") and codes is None:
        return None
    bias = _integer_bias(editor, layer, x, w)
    if bias is None:
        return None
    parameters = [
        x.name, editor.const(x.scale.reshape(())), editor.const(x.zero.reshape(())),
        w.name, editor.const(_weight_parameter(w, w.scale)), editor.const(_weight_parameter(w, w.zero)),
        editor.const(scale.reshape(())), editor.const(zero.reshape(())), bias,
    ]  # fmt: skip
    editor.drop(layer)
    editor.name = layer.name
    if layer.op == "matmul":
        if layer.attrs.get("trans_b") and codes is not None:
            parameters[3] = editor.const(np.ascontiguousarray(codes.swapaxes(-1, -2)))
        return editor.emit("qlinear_matmul", parameters)
    attrs = {k: layer.attrs[k] for k in ("strides", "pads", "dilations", "group") if k in layer.attrs}
    return editor.emit("qlinear_conv", parameters, **attrs)


def _channel_axis(editor: Editor, layer: Node) -> int:
    if layer.op == "conv":
        return 0
    return len(editor.tensor(layer.inputs[1]).shape or ()) - (2 if layer.attrs.get("trans_b") else 1)


def _weight_parameter(w: _Quantised, value: np.ndarray) -> np.ndarray:
    return value.reshape(()) if w.per_tensor else value


def _implied(layer: Node, scale: float, zero: int, dtype: DType) -> bool:
    """Whether saturation does what the layer's activation would do."""
    act = layer.attrs.get("act", "none")
    if act == "none":
        return True
    if act != "clamp":
        return False
    low, high = _RANGE[dtype]
    half = 0.5 * scale  # a bound this close to the end of the range rounds to the same code
    p0, p1 = layer.attrs.get("p0", 0.0), layer.attrs.get("p1", 0.0)
    return bool(p0 <= (low - zero) * scale + half and p1 >= (high - zero) * scale - half)


def _integer_bias(editor: Editor, layer: Node, x: _Quantised, w: _Quantised) -> str | None:
    """The bias in units of x.scale * w.scale as i32; "" when there is none, None when it cannot be had."""
    if len(layer.inputs) < 3 or not layer.inputs[2]:
        return ""
    unit = x.scale.reshape(()).astype(np.float64) * w.scale.astype(np.float64)
    value = editor.constant(layer.inputs[2])
    if value is None:
        source = _dequantised(editor, layer.inputs[2])
        data = editor.constant(source.name) if source is not None else None
        if source is None or data is None:
            return None
        if source.dtype is DType.I32 and np.allclose(source.scale, unit, rtol=1e-5) and not source.zero.any():
            return source.name
        value = (data.astype(np.float64) - source.zero) * source.scale
    if value.ndim != 1:
        return None
    codes = np.rint(value.astype(np.float64) / unit)
    if not np.isfinite(codes).all() or np.abs(codes).max(initial=0) > 2**30:
        return None
    return editor.const(codes.astype(np.int32), f"{layer.inputs[2]}.i32")


# -- the rest becomes scalar arithmetic


def elementwise_scales(graph: Graph, outer: dict[str, Tensor]) -> bool:
    """Write per-tensor quantisation of 8-bit data as elementwise programs; fold what is left of constant weights."""
    editor = Editor(graph, outer)
    for node in editor:
        new = _as_program(editor, node)
        if new is None:
            editor.keep(node)
        else:
            editor.replace(node.outputs[0], new)
    return editor.finish()


def _as_program(editor: Editor, node: Node) -> str | None:
    if node.op == "dequantize_linear":
        data = editor.constant(node.inputs[0])
        source = _dequantised(editor, node.outputs[0]) or _own(editor, node)
        if data is not None:
            return _folded(editor, node)
        if source is None or not source.per_tensor or source.dtype not in _RANGE:
            return None
        f = DType.F32
        program: tuple[Any, ...] = (
            ("cast", f, 0), ("const", f, float(source.zero.reshape(()))), ("sub", f, 1, 2),
            ("const", f, float(source.scale.reshape(()))), ("mul", f, 3, 4),
        )  # fmt: skip
        return editor.emit("elementwise", [node.inputs[0]], program=program)
    if node.op == "quantize_linear":
        return _quantise_program(editor, node)
    return None


def _own(editor: Editor, node: Node) -> _Quantised | None:
    """`_dequantised` for a node that is being visited, which the editor does not list as a producer yet."""
    scale = editor.constant(node.inputs[1])
    has_zero = len(node.inputs) > 2 and bool(node.inputs[2])
    zero = editor.constant(node.inputs[2]) if has_zero else None
    dtype = editor.tensor(node.inputs[0]).dtype
    if scale is None or scale.ndim > 1 or (has_zero and zero is None) or node.attrs.get("block"):
        return None
    if editor.tensor(node.outputs[0]).dtype is not DType.F32:
        return None
    if zero is None:
        zero = np.zeros(scale.shape, dtype.numpy)
    return _Quantised(node.inputs[0], scale, zero, node.attrs.get("axis", 0), dtype, node)


def _folded(editor: Editor, node: Node) -> str | None:
    arrays = [editor.constant(i) if i else None for i in node.inputs]
    if any(a is None and i for a, i in zip(arrays, node.inputs, strict=True)):
        return None
    return editor.const(find("dequantize_linear")(*arrays, **node.attrs), f"{node.inputs[0]}.float")


def _quantise_program(editor: Editor, node: Node) -> str | None:
    dtype = editor.tensor(node.outputs[0]).dtype
    scale, zero = _output_parameters(editor, node)
    if scale is None or zero is None or scale.size != 1 or dtype not in _RANGE or node.attrs.get("block"):
        return None
    if editor.tensor(node.inputs[0]).dtype is not DType.F32 or scale.dtype != np.float32:
        return None
    if node.attrs.get("precision") not in (None, DType.F32):
        return None
    f = DType.F32
    program = (
        ("const", f, float(scale.reshape(()))), ("div", f, 0, 1), ("round", f, 2),
        ("const", f, float(zero.reshape(()))), ("add", f, 3, 4), ("cast", dtype, 5),
    )  # fmt: skip
    return editor.emit("elementwise", [node.inputs[0]], program=program)
