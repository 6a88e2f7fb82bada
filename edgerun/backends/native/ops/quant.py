"""Quantised arithmetic: conversions, products of 8-bit codes (csrc/kernels/qgemm.h), weights of 2 to 8 bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgerun.backends.native import group
from edgerun.backends.native.lowering import Lowering, Param, lowers
from edgerun.backends.native.ops.elementwise import apply, cast
from edgerun.backends.native.ops.movement import broadcast_strides, copy_nd, view
from edgerun.backends.native.ops.reduce import HALF, in_float
from edgerun.dims import DimLike, ceildiv, product
from edgerun.dtypes import DType, from_numpy
from edgerun.errors import UnsupportedError
from edgerun.graph import Node, Shape

RANGES = {DType.U8: (0, 255), DType.I8: (-128, 127), DType.U16: (0, 65535), DType.I16: (-32768, 32767)}
RANGES |= {DType.U4: (0, 15), DType.U2: (0, 3), DType.I4: (-8, 7), DType.I2: (-2, 1)}
STORED = {DType.U4: np.uint8, DType.U2: np.uint8, DType.I4: np.int8, DType.I2: np.int8}
"""Types of less than a byte, and what holds their codes while the kernels compute."""
CODES = (DType.U8, DType.I8)
SMALL_FLOATS = (DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ, DType.F4E2M1)
COLUMNS, COLUMN_BYTES, ROWS = 16, 16, 56
"""QG_N, QG_COLUMN_BYTES and QG_ROWS of qtile.h and qgemm.h."""
PAIRS = 128
"""QD_TAPS of qdepthwise.c."""


def _name(node: Node, index: int) -> str:
    return node.inputs[index] if index < len(node.inputs) else ""


@lowers("quantize_linear")
def quantize_linear(node: Node, cx: Lowering) -> None:
    """Divided in f32, whatever the type of the scale."""
    dtype = cx.dtype(node.outputs[0])
    if dtype in SMALL_FLOATS:
        _scaled_floats(node, cx, forward=True)
        return
    if dtype not in RANGES:
        raise UnsupportedError(f"quantisation to {dtype.short} is not done by the native backend")
    for name in node.inputs[:2]:
        if cx.dtype(name) is not DType.F32 and cx.dtype(name) not in HALF:
            raise UnsupportedError(f"quantisation of {cx.dtype(name).short} is not done by the native backend")
    x, scale = (cast(cx, n, DType.F32) for n in node.inputs[:2])
    params: list[Param] = [node.attrs.get("axis", 0), node.attrs.get("block", 0), *RANGES[dtype]]
    zero, y = _name(node, 2), node.outputs[0]
    result = y
    if dtype in STORED:
        zero = _widened(cx, zero, dtype)
        result = cx.temp(from_numpy(STORED[dtype]), cx.shape(y), f"{y}.codes")
    cx.emit("quantize", [x, scale, zero], [result], params, why="rounded and saturated in one pass")
    if result != y:
        apply(cx, (("cast", dtype, 0),), [result], y)


@lowers("dequantize_linear")
def dequantize_linear(node: Node, cx: Lowering) -> None:
    x, scale = node.inputs[:2]
    zero = _name(node, 2)
    dtype = cx.dtype(x)
    if dtype in STORED:
        x, zero = (_widened(cx, n, dtype) for n in (x, zero))
    elif dtype in SMALL_FLOATS:
        _scaled_floats(node, cx, forward=False)
        return
    elif dtype not in RANGES and dtype is not DType.I32:
        raise UnsupportedError(f"dequantisation of {dtype.short} is not done by the native backend")
    params: list[Param] = [node.attrs.get("axis", 0), node.attrs.get("block", 0), 0, 0]
    if cx.dtype(node.outputs[0]) is DType.F64:
        raise UnsupportedError("dequantisation to f64 is not done by the native backend")
    scale = cast(cx, scale, DType.F32)
    out, final = node.outputs[0], cx.dtype(node.outputs[0])
    result = out if final is DType.F32 else cx.temp(DType.F32, cx.shape(out), "dequantised")
    cx.emit("dequantize", [x, scale, zero], [result], params, why="one pass")
    if result != out:
        apply(cx, (("cast", final, 0),), [result], out)


def _scaled_floats(node: Node, cx: Lowering, *, forward: bool) -> None:
    """Small floats from numbers (`forward`) and to numbers, in one elementwise pass in f32."""
    if node.attrs.get("block", 0):
        raise UnsupportedError("small floats with scales of blocks are not done by the native backend")
    y, final, axis = node.outputs[0], cx.dtype(node.outputs[0]), node.attrs.get("axis", 0)
    inputs = [cast(cx, node.inputs[0], DType.F32)]
    for name in filter(None, (node.inputs[1], _name(node, 2))):
        inputs.append(_along(cx, cast(cx, name, DType.F32), cx.shape(node.inputs[0]), axis))
    first, steps = len(inputs), ("div", "add") if forward else ("sub", "mul")
    value, program = 0, list[Any]()
    for function in steps:
        if function in ("div", "mul") or first == 3:
            program.append((function, DType.F32, value, 1 if function in ("div", "mul") else 2))
            value = first + len(program) - 1
    wrap = forward and not node.attrs.get("saturate", True)
    program.append(("cast_wrap" if wrap else "cast", final, value))
    apply(cx, tuple(program), inputs, y)


def _along(cx: Lowering, name: str, shape: Shape, axis: int) -> str:
    """One number, or one for each index of an axis, so that it broadcasts to `shape`."""
    one = product(cx.shape(name)) == 1
    wanted = () if one else tuple(d if k == axis % len(shape) else 1 for k, d in enumerate(shape))
    if cx.shape(name) == wanted:
        return name
    seen = cx.temp(cx.dtype(name), wanted, name)
    view(cx, name, seen)
    return seen


def _widened(cx: Lowering, name: str, dtype: DType) -> str:
    if not name:
        return ""
    data = cx.constant(name)
    if data is None:
        return cast(cx, name, from_numpy(STORED[dtype]))
    return cx.weight(data.astype(STORED[dtype]), name, key=(name, "a byte each"))


@lowers("dynamic_quantize_linear")
def dynamic_quantize_linear(node: Node, cx: Lowering) -> None:
    outputs = list(node.outputs) + [""] * (3 - len(node.outputs))
    for k, (dtype, shape) in enumerate([(DType.U8, cx.shape(node.inputs[0])), (DType.F32, ()), (DType.U8, ())]):
        outputs[k] = outputs[k] or cx.temp(dtype, shape, "quantised")
    cx.emit("dynamic_quantize", list(node.inputs), outputs, why="range, then codes")


# -- products


def pack_codes(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """[K, N] 8-bit codes to (panels of 16 columns, 4 rows of K together, i8; column sums i32; offset subtracted)."""
    k, n = matrix.shape
    offset = 128 if matrix.dtype == np.uint8 else 0
    padded = np.zeros((-(-k // 4) * 4, -(-n // COLUMNS) * COLUMNS), np.int32)
    padded[:k, :n] = matrix.astype(np.int32) - offset
    panels = padded.reshape(padded.shape[0] // 4, 4, padded.shape[1] // COLUMNS, COLUMNS).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(panels).astype(np.int8).reshape(-1), padded.sum(axis=0, dtype=np.int32), offset


def _columns(n: DimLike) -> DimLike:
    """Bytes of scratch for the numbers per column."""
    return ceildiv(n, COLUMNS) * (COLUMNS * COLUMN_BYTES)


def _flipped(cx: Lowering, dtype: DType) -> bool:
    """Whether the micro-kernel wants the codes with their top bit flipped (QG_A_SIGNED)."""
    return (dtype is DType.I8) == (cx.arch == "x86_64")


@lowers("matmul_integer")
def matmul_integer(node: Node, cx: Lowering) -> None:
    a, b = node.inputs[:2]
    _matmul(cx, node, a, b, [_name(node, 2), _name(node, 3)], "", [])


@lowers("qlinear_matmul")
def qlinear_matmul(node: Node, cx: Lowering) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs[:8]
    scales = [cast(cx, s, DType.F32) for s in (a_scale, b_scale, y_scale)]
    _matmul(cx, node, a, b, [a_zero, b_zero], _name(node, 8), [*scales, y_zero])


def _matmul(cx: Lowering, node: Node, a: str, b: str, zeros: list[str], bias: str, scales: list[str]) -> None:
    """Vectors become matrices by views; a constant matrix b is packed here, others while running."""
    out = node.outputs[0]
    _check_codes(cx, a, b, *([out] if scales else []))
    left, right = cx.shape(a), cx.shape(b)
    result, shape = out, cx.shape(out)
    if len(left) == 1:
        a, left = _reshaped(cx, a, (1, *left)), (1, *left)
    if len(right) == 1:
        right = (*right, 1)
        b = _reshaped(cx, b, right) if cx.constant(b) is None else cx.weight(cx.constant(b).reshape(-1, 1), b)  # type: ignore[union-attr]
    full = (*_batch(left, right), left[-2], right[-1])
    if len(left) < len(full):
        a, left = (
            _reshaped(cx, a, (1,) * (len(full) - len(left)) + tuple(left)),
            (1,) * (len(full) - len(left)) + tuple(left),
        )
    if tuple(full) != tuple(shape):
        result = cx.temp(cx.dtype(out), full, out)
    a = _expanded(cx, a, left, (*full[:-2], *left[-2:]))
    data = cx.constant(b)
    if data is not None and data.size != product(right[-2:]):
        data = None
    k, n = data.shape[-2:] if data is not None else (left[-1], right[-1])
    for name, size in ((zeros[0], product(full[:-1])), (scales[0] if scales else "", product(full[:-1]))):
        if name and product(cx.shape(name)) not in (1, size):
            raise UnsupportedError(f"quantisation parameters of shape {cx.shape(name)} for the rows of a product")
    for name in (zeros[1], scales[1] if scales else ""):
        if name and product(cx.shape(name)) not in (1, n):
            raise UnsupportedError(f"quantisation parameters of shape {cx.shape(name)} for the columns of a product")
    sums, offset, scratch = "", 0, _columns(n)
    if data is not None:
        codes, column_sums, offset = pack_codes(data.reshape(k, n))
        b, sums = cx.weight(codes, b, key=(b, "codes")), cx.weight(column_sums, f"{b}.sums", key=(b, "code sums"))
    else:
        batches = product(right[:-2])
        if batches not in (1, product(full[:-2])):
            b = _expanded(cx, b, (1,) * (len(full) - len(right)) + tuple(right), (*full[:-2], *right[-2:]))
        scratch = scratch + ceildiv(n, COLUMNS) * COLUMNS * (ceildiv(k, 4) * 4 + 4)
    inputs = [a, b, *zeros, sums, bias, *(scales or [""] * 4)]
    cx.emit(
        "qmatmul", inputs, [result], [int(data is not None), k, n, offset], scratch=scratch,
        thread_scratch=product((ROWS, ceildiv(k, 4) * 4)), macs=product((*full, k)),
        why="8-bit products, " + ("packed while planning" if data is not None else "packed while running"),
    )  # fmt: skip
    if result != out:
        view(cx, result, out)


def _check_codes(cx: Lowering, *names: str) -> None:
    for name in names:
        if cx.dtype(name) not in CODES:
            raise UnsupportedError(f"a quantised product of {cx.dtype(name).short} is not done by the native backend")


def _reshaped(cx: Lowering, name: str, shape: Shape) -> str:
    temp = cx.temp(cx.dtype(name), tuple(shape), name)
    view(cx, name, temp)
    return temp


def _batch(left: Shape, right: Shape) -> Shape:
    from edgerun.dims import broadcast

    return broadcast(tuple(left[:-2]), tuple(right[:-2]))


def _expanded(cx: Lowering, name: str, shape: Shape, to: Shape) -> str:
    """`name` with its batch dimensions repeated."""
    if tuple(shape) == tuple(to):
        return name
    temp = cx.temp(cx.dtype(name), tuple(to), name)
    copy_nd(cx, name, temp, to, broadcast_strides(shape, to), why="batches repeated")
    return temp


# -- convolutions


@lowers("conv_integer")
def conv_integer(node: Node, cx: Lowering) -> None:
    _conv(cx, node, node.inputs[0], node.inputs[1], [_name(node, 2), _name(node, 3)], "", [])


@lowers("qlinear_conv")
def qlinear_conv(node: Node, cx: Lowering) -> None:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = node.inputs[:8]
    scales = [cast(cx, s, DType.F32) for s in (x_scale, w_scale, y_scale)]
    _conv(cx, node, x, w, [x_zero, w_zero], _name(node, 8), [*scales, y_zero])


def _conv(cx: Lowering, node: Node, x: str, w: str, zeros: list[str], bias: str, scales: list[str]) -> None:
    _check_codes(cx, x, w, *([node.outputs[0]] if scales else []))
    data, attrs = cx.constant(w), node.attrs
    if data is None:
        raise UnsupportedError("the filters of a quantised convolution are computed at run time")
    outputs, *kernel, per_group = data.shape
    spatial, group = len(kernel), attrs.get("group", 1)
    if spatial > 3:
        raise UnsupportedError(f"a quantised convolution over {spatial} spatial dimensions; the native kernel takes 3")
    taps = int(np.prod(kernel)) * per_group
    window: list[Param] = [spatial]
    for k in range(spatial):
        window += [kernel[k], attrs["strides"][k], attrs["pads"][k], attrs["dilations"][k]]
    w_zero = cx.constant(zeros[1]) if zeros[1] else np.zeros(1, np.int32)
    macs = product((*cx.shape(node.outputs[0]), taps))
    rest = [bias, *(scales or [""] * 4)]
    pairs = (math.prod([1, *kernel][-2:-1]) + 1) // 2 * kernel[-1]
    if per_group == 1 and group == outputs and w_zero is not None and spatial <= 2 and pairs <= PAIRS:
        centred = data.astype(np.int16) - w_zero.astype(np.int16).reshape(-1, *[1] * (spatial + 1))
        filters = cx.weight(pack_pairs(centred.reshape(outputs, -1, kernel[-1])), w, key=(w, "depthwise codes"))
        totals = cx.weight(
            centred.reshape(outputs, -1).sum(axis=1, dtype=np.int32), f"{w}.sums", key=(w, "filter sums")
        )
        cx.emit(
            "qconv_depthwise", [x, filters, zeros[0], "", totals, *rest], [node.outputs[0]],
            [group, taps, outputs, 0, 0, *window], scratch=(cx.shape(x)[-2] + 9) * outputs, macs=macs,
            why="one filter a channel, 16 channels at a time",
        )  # fmt: skip
        return
    # K in segments of whole words: see qconv.c.
    together = group == 1 and attrs["dilations"][-1] == 1
    length = kernel[-1] * per_group if together else per_group
    segments = taps // length
    codes = np.full((outputs, segments, -(-length // 4) * 4), 128 if data.dtype == np.uint8 else 0, data.dtype)
    codes[:, :, :length] = data.reshape(outputs, segments, length)
    packed, sums, offset = [], [], 0
    for part in np.split(codes.reshape(outputs, -1), group):
        panels, column_sums, offset = pack_codes(np.ascontiguousarray(part.T))
        packed.append(panels)
        sums.append(column_sums)
    filters = cx.weight(np.concatenate(packed), w, key=(w, "conv codes"))
    totals = cx.weight(np.concatenate(sums), f"{w}.sums", key=(w, "conv code sums"))
    image = _flipped(cx, cx.dtype(x)) or length % 4 != 0 or any(p != 0 for p in attrs["pads"])
    scratch = group * _columns(outputs // group) + 8 * segments
    if image:
        scratch = scratch + _image_bytes(cx, node, kernel, cx.shape(x)[-1]) + 4
    cx.emit(
        "qconv", [x, filters, *zeros, totals, *rest], [node.outputs[0]],
        [group, taps, outputs, offset, int(image), *window], scratch=scratch, macs=macs,
        why="8-bit products, " + ("the image copied with its border" if image else "the image read in place"),
    )  # fmt: skip


def pack_pairs(filters: np.ndarray) -> np.ndarray:
    """[C, rows, columns] i16 to pairs of rows [ceil(rows / 2) * columns, C, 2], 0 below an odd last row."""
    channels, rows, columns = filters.shape
    padded = np.zeros((channels, rows + rows % 2, columns), np.int16)
    padded[:, :rows] = filters
    return np.ascontiguousarray(padded.reshape(channels, -1, 2, columns).transpose(1, 3, 0, 2))


def _image_bytes(cx: Lowering, node: Node, kernel: list[int], channels: DimLike) -> DimLike:
    """The part of the image that the windows read, with its border."""
    attrs, out = node.attrs, cx.shape(node.outputs[0])[1:-1]
    extents = [
        (t - 1) * stride + (size - 1) * dilation + 1
        for t, stride, size, dilation in zip(out, attrs["strides"], kernel, attrs["dilations"], strict=True)
    ]
    return product((*extents, channels))


# -- weights of few bits


@lowers("matmul_nbits")
def matmul_nbits(node: Node, cx: Lowering) -> None:
    attrs: dict[str, Any] = node.attrs
    if attrs.get("a_bits"):
        group.matmul(node, cx)
        return
    k, n, bits, block = attrs["k"], attrs["n"], attrs.get("bits", 4), attrs["block"]
    blocks = -(-k // block)
    constants = [cx.constant(name) if name else None for name in (*node.inputs[1:], *[""] * (6 - len(node.inputs)))]
    codes, scales, zeros, index, bias = constants
    for name, data in zip(node.inputs[1:], constants, strict=False):
        if name and data is None:
            raise UnsupportedError(f"{name!r}, a parameter of packed weights, is computed at run time")
    assert codes is not None and scales is not None
    if zeros is None:
        zero = np.full((n, blocks), 1 << (bits - 1), np.float32)
    elif zeros.dtype == np.uint8:
        from edgerun.backends.numpy.quant import unpack_codes

        zero = unpack_codes(zeros.reshape(n, -1), bits)[:, :blocks].astype(np.float32)
    else:
        zero = zeros.reshape(n, blocks).astype(np.float32)
    weights = [cx.weight(codes.reshape(n, -1), node.inputs[1]), cx.weight(scales.astype(np.float32), node.inputs[2]),
               cx.weight(np.ascontiguousarray(zero), f"{node.inputs[1]}.zeros")]  # fmt: skip
    weights.append(cx.weight(index[:k].astype(np.int32), node.inputs[4]) if index is not None else "")
    weights.append(cx.weight(bias.astype(np.float32), node.inputs[5]) if bias is not None else "")

    def emit(x: str, y: str) -> None:
        cx.emit(
            "matmul_nbits", [x, *weights], [y], [k, n, bits, block], thread_scratch=4 * blocks * block,
            macs=product((*cx.shape(y), k)), why=f"{bits}-bit weights read back row by row",
        )  # fmt: skip

    in_float(cx, node.inputs[0], node.outputs[0], emit)


@lowers("rows_nbits")
def rows_nbits(node: Node, cx: Lowering) -> None:
    group.rows(node, cx)
