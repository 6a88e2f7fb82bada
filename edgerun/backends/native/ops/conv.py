"""Convolutions: which kernel, how its weights are packed, and what the choice costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgerun.backends.native import packing, winograd
from edgerun.backends.native.lowering import Alternative, Lowering, Param, lowers
from edgerun.backends.native.ops.half import computed_in_f32
from edgerun.dims import DimLike, product
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Node
from edgerun.ops.activation import ACTIVATIONS

RESIDUAL = {"none": 0, "before": 1, "after": 2}


@dataclass(frozen=True, slots=True)
class _Geometry:
    """A convolution's parameters with the spatial part made two-dimensional."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[DimLike, DimLike, DimLike, DimLike]
    """top, left, bottom, right"""
    dilations: tuple[int, int]
    group: int
    inputs: int
    outputs: int

    @property
    def padded(self) -> bool:
        return any(p != 0 for p in self.pads)


@lowers("conv")
@computed_in_f32
def conv(node: Node, cx: Lowering) -> None:
    """Depthwise, Winograd or implicit GEMM for constant float32 weights of one or two spatial dims; else tap by tap."""
    x, w = node.inputs[:2]
    _require_f32(cx, [i for i in node.inputs if i])
    shape, weight = cx.shape(x), cx.constant(w)
    if weight is None or len(shape) > 4:
        _direct(node, cx)
        return
    g, bias = _geometry(node, cx, weight), _optional(node, 2)
    values = cx.constant(bias)
    if g.group == _channels(cx, x) == g.outputs and g.group > 1:
        if bias and values is None:
            _direct(node, cx)
            return
        packed = cx.weight(packing.pack_depthwise(weight.reshape(g.outputs, *g.kernel, 1), values, cx.arch), w)
        _emit(node, cx, "dwconv_f32", packed, "", g, why="one filter per channel")
        return
    packed = cx.weight(packing.pack_filters(weight, g.group, cx.arch), w)
    layer = winograd.layer_of(node, cx)
    tile = winograd.choose(layer, cx)
    alternatives = _other_forms(layer, tile, cx) if layer else []
    if layer and tile:
        scratch, thread_scratch = layer.scratch(tile, cx.arch)
        gain = 9 * tile**2 / (tile + 2) ** 2
        _emit(
            node, cx, f"wino{tile}_f32", packed, bias, g, scratch=scratch, thread_scratch=thread_scratch,
            why=f"Winograd F({tile}x{tile}, 3x3): {gain:.2f} times fewer multiplications", alternatives=alternatives,
        )  # fmt: skip
        return
    _emit(
        node, cx, "conv_f32", packed, padded_bias(cx, bias, g.group), g, scratch=_padding_scratch(node, cx, g),
        why="pointwise: a matrix product" if g.kernel == (1, 1) else "implicit GEMM", alternatives=alternatives,
    )  # fmt: skip


def _other_forms(layer: winograd.Layer, chosen: int, cx: Lowering) -> list[Alternative]:
    """The forms of a 3x3 convolution that were not chosen: the direct one and Winograd's."""
    found = []
    for m in (0, 2, 4):
        if m == chosen:
            continue
        relative = layer.seconds(m, cx.arch) / layer.seconds(chosen, cx.arch)
        if m == 0:
            reason = "more multiplications"
        elif relative < 1:
            off = cx.options.get("winograd") is False
            reason = (
                "switched off"
                if off
                else f"{sum(layer.scratch(m, cx.arch)) / 1e3:.0f} kB of scratch, or too little gain"
            )
        else:
            reason = "transforms take longer than they save"
        found.append(Alternative(f"wino{m}_f32" if m else "conv_f32", reason, relative))
    return found


def _channels(cx: Lowering, name: str) -> int:
    channels = cx.shape(name)[-1]
    if not isinstance(channels, int):
        raise UnsupportedError(f"the number of channels {channels} is symbolic")
    return channels


def _require_f32(cx: Lowering, names: list[str]) -> None:
    for name in names:
        if cx.dtype(name) is not DType.F32:
            raise UnsupportedError(f"a native convolution of {cx.dtype(name).short}")


def padded_bias(cx: Lowering, name: str, group: int = 1) -> str:
    """The bias [O] with each group's part padded to whole panels; a computed one is padded while running."""
    if not name:
        return ""
    data = cx.constant(name)
    if data is not None:
        return cx.weight(packing.pad_biases(data, group, cx.arch), name)
    outputs = _channels(cx, name) // group
    columns = packing.padded_columns(outputs, cx.arch)
    grouped = cx.temp(DType.F32, (group, outputs), name)
    padded = cx.temp(DType.F32, (group, columns), name)
    cx.lower(Node("reshape", [name], [grouped], {"to": (group, outputs)}))
    cx.lower(Node("pad", [grouped], [padded], {"widths": ((0, 0), (0, columns - outputs))}))
    return padded


def _geometry(node: Node, cx: Lowering, weight: np.ndarray) -> _Geometry:
    a = node.attrs
    kernel, strides, dilations = weight.shape[1:-1], a["strides"], a["dilations"]
    rank = len(kernel)
    pads = a["pads"]
    begin, end = pads[:rank], pads[rank:]
    if rank == 1:
        kernel, strides, dilations = (1, *kernel), (1, *strides), (1, *dilations)
        begin, end = (0, *begin), (0, *end)
    return _Geometry(
        (kernel[0], kernel[1]), (strides[0], strides[1]), (begin[0], begin[1], end[0], end[1]),
        (dilations[0], dilations[1]), a.get("group", 1), weight.shape[-1] * a.get("group", 1), weight.shape[0],
    )  # fmt: skip


def _epilogue(node: Node) -> list[Param]:
    a = node.attrs
    return [
        ACTIVATIONS[a.get("act", "none")],
        float(a.get("p0", 0.0)),
        float(a.get("p1", 0.0)),
        RESIDUAL[a.get("res", "none")],
    ]


def _optional(node: Node, index: int) -> str:
    return node.inputs[index] if len(node.inputs) > index else ""


def _slopes(cx: Lowering, name: str, channels: int) -> str:
    """Prelu slopes, one a channel: a single one is repeated."""
    if not name or cx.shape(name) == (channels,):
        return name
    slope = cx.constant(name)
    if slope is not None:
        return cx.weight(np.full(channels, slope.reshape(()), np.float32), name)
    repeated = cx.temp(DType.F32, (channels,), name)
    cx.lower(Node("expand", [name], [repeated], {"to": (channels,)}))
    return repeated


def residual_in_place(node: Node) -> bool:
    """Whether the output may replace the residual: not when it is added after a pass over the stored row."""
    if not _optional(node, 3):
        return False
    return node.attrs.get("res") != "after" or node.attrs.get("act", "none") in ("none", "clamp")


def _emit(
    node: Node,
    cx: Lowering,
    kernel: str,
    weights: str,
    bias: str,
    g: _Geometry,
    *,
    scratch: DimLike = 0,
    thread_scratch: DimLike = 0,
    why: str,
    alternatives: list[Alternative] | None = None,
) -> None:
    residual, slope = _optional(node, 3), _slopes(cx, _optional(node, 4), g.outputs)
    params: list[Param] = [g.outputs, *g.kernel, *g.strides, *g.pads, *g.dilations, g.group, *_epilogue(node)]
    cx.emit(
        kernel, [node.inputs[0], weights, bias, residual, slope], node.outputs, params, scratch=scratch,
        thread_scratch=thread_scratch, in_place=((0, 3),) if residual_in_place(node) else (),
        strided_inputs=(0, 3) if residual else (0,), strided_outputs=(0,),
        macs=cx.macs(node), why=why, alternatives=alternatives or (),
    )  # fmt: skip


def _spatial(shape: tuple[DimLike, ...]) -> tuple[DimLike, DimLike]:
    return (shape[1], shape[2]) if len(shape) == 4 else (1, shape[1])


def _padding_scratch(node: Node, cx: Lowering, g: _Geometry) -> DimLike:
    """Bytes of the padded copy of one image."""
    if not g.padded:
        return 0
    oh, ow = _spatial(cx.shape(node.outputs[0]))
    height = (oh - 1) * g.strides[0] + g.dilations[0] * (g.kernel[0] - 1) + 1
    width = (ow - 1) * g.strides[1] + g.dilations[1] * (g.kernel[1] - 1) + 1
    return cx.upper(height) * cx.upper(width) * g.inputs * 4


def _direct(node: Node, cx: Lowering) -> None:
    """conv_direct_f32 takes weights as they are, computed ones too."""
    a = node.attrs
    rank = len(cx.shape(node.inputs[0])) - 2
    if not 1 <= rank <= 3:
        raise UnsupportedError(f"a convolution of {rank} spatial dimensions")
    inputs = [*node.inputs, *[""] * (5 - len(node.inputs))]
    if inputs[4]:
        inputs[4] = _slopes(cx, inputs[4], _channels(cx, node.outputs[0]))
    params: list[Param] = [rank, a.get("group", 1), *_epilogue(node), *a["strides"], *a["pads"], *a["dilations"]]
    why = "weights computed at run time" if cx.constant(node.inputs[1]) is None else f"{rank} spatial dimensions"
    cx.emit("conv_direct_f32", inputs, node.outputs, params, macs=cx.macs(node), why=why)


@lowers("conv_transpose")
@computed_in_f32
def conv_transpose(node: Node, cx: Lowering) -> None:
    """A GEMM and a gather, for constant float32 weights of one or two spatial dims; else tap by tap."""
    x, w = node.inputs[:2]
    _require_f32(cx, [i for i in node.inputs if i])
    shape, weight = cx.shape(x), cx.constant(w)
    if weight is None or len(shape) not in (3, 4):
        _direct_transpose(node, cx)
        return
    a, group = node.attrs, node.attrs.get("group", 1)
    pads = a["pads"]
    kernel, strides, dilations = weight.shape[1:-1], a["strides"], a["dilations"]
    begin = pads[: len(kernel)]
    if len(kernel) == 1:
        kernel, strides, dilations, begin = (1, *kernel), (1, *strides), (1, *dilations), (0, *begin)
    outputs = weight.shape[-1] * group
    packed = cx.weight(packing.pack_transposed(weight, group, cx.arch), w)
    bias, slope = _optional(node, 2), _slopes(cx, _optional(node, 3), outputs)
    pixels = cx.upper(product(shape[1:-1]))
    scratch = pixels * int(np.prod(kernel)) * weight.shape[-1] * 4
    params: list[Param] = [outputs, *kernel, *strides, *begin, 0, 0, *dilations, group, *_epilogue(node)]
    cx.emit(
        "conv_transpose_f32", [x, packed, bias, "", slope], node.outputs, params, scratch=scratch,
        macs=cx.macs(node), why="a matrix product, then each output gathers its taps",
    )  # fmt: skip


def _direct_transpose(node: Node, cx: Lowering) -> None:
    """conv_transpose_direct_f32 takes weights as they are, computed ones too."""
    a = node.attrs
    rank = len(cx.shape(node.inputs[0])) - 2
    if not 1 <= rank <= 3:
        raise UnsupportedError(f"a transposed convolution of {rank} spatial dimensions")
    inputs = [*node.inputs, *[""] * (4 - len(node.inputs))]
    if inputs[3]:
        inputs[3] = _slopes(cx, inputs[3], _channels(cx, node.outputs[0]))
    params: list[Param] = [
        rank,
        a.get("group", 1),
        *_epilogue(node)[:3],
        *a["strides"],
        *a["pads"][:rank],
        *a["dilations"],
    ]
    why = "weights computed at run time" if cx.constant(node.inputs[1]) is None else f"{rank} spatial dimensions"
    cx.emit("conv_transpose_direct_f32", inputs, node.outputs, params, macs=cx.macs(node), why=why)
