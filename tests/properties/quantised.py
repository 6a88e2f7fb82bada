"""Numbers with scales and zero points."""

from __future__ import annotations

import numpy as np

from tests.properties.case import Case
from tests.properties.draw import MS, Drawer, covers, one
from tests.properties.layers import window

f32 = np.float32
CODES = (np.uint8, np.int8)


def codes(d: Drawer, *shape: int, dtype: type = np.uint8) -> np.ndarray:
    info = np.iinfo(dtype)
    return d.integers(*shape, low=int(info.min), high=int(info.max), dtype=dtype)


def scale(d: Drawer, *shape: int) -> np.ndarray:
    return d.uniform(*shape, low=0.01, high=0.1)


def zero(d: Drawer, *shape: int, dtype: type = np.uint8) -> np.ndarray:
    middle = 128 if dtype is np.uint8 else 0
    return d.integers(*shape, low=middle - 9, high=middle + 9, dtype=dtype)


def layout(d: Drawer) -> tuple[tuple[int, ...], int, int, tuple[int, ...]]:
    """(shape, axis, block, shape of scales): for the whole tensor, for each slice, for blocks."""
    kind = d.pick("tensor", "axis", "block")
    if kind == "tensor":
        return d.shape(low=0), 0, 0, ()
    # onnxruntime takes a vector of one scale for the scale of the whole tensor.
    shape = [*d.shape(low=2 if kind == "block" else 1, smallest=1)]
    axis = d.int(0, len(shape) - 1)
    if kind == "axis":
        return tuple(shape), axis, 0, (shape[axis],)
    block, scales = d.int(1, 3), [*shape]
    shape[axis] = block * scales[axis]
    return tuple(shape), axis, block, tuple(scales)


@covers("quantize_linear")
def quantize_linear(d: Drawer) -> Case:
    shape, axis, block, scales = layout(d)
    dtype = d.pick(np.uint8, np.int8, np.uint16, np.int16)
    zeros = zero(d, *scales, dtype=dtype) if d.bool() or dtype is not np.uint8 else None
    feeds = {"x": d.normal(*shape) * 3, "s": scale(d, *scales), "z": zeros}
    attributes = {"axis": axis, "block_size": block}
    return one("QuantizeLinear", feeds, attributes, opset=21, constant=d.pick((), ("s", "z")), steps=1)


@covers("dequantize_linear")
def dequantize_linear(d: Drawer) -> Case:
    shape, axis, block, scales = layout(d)
    dtype = d.pick(np.uint8, np.int8, np.uint16, np.int16, np.int32)
    zeros = zero(d, *scales, dtype=dtype) if d.bool() and dtype is not np.int32 else None
    feeds = {"x": codes(d, *shape, dtype=dtype), "s": scale(d, *scales), "z": zeros}
    attributes = {"axis": axis, "block_size": block}
    return one("DequantizeLinear", feeds, attributes, opset=21, constant=d.pick((), ("s", "z")), atol=1e-3)


@covers("dynamic_quantize_linear")
def dynamic_quantize_linear(d: Drawer) -> Case:
    return one("DynamicQuantizeLinear", {"x": d.normal(*d.shape(smallest=1))}, outputs=3, opset=11, steps=1)


@covers("matmul_integer")
def matmul_integer(d: Drawer) -> Case:
    m, k, n = d.int(1, 5), d.int(1, 9), d.int(1, 20)
    left, right = d.pick(*CODES), d.pick(*CODES)
    if left is np.int8:
        right = np.int8
    batch = d.shape(high=1, smallest=1)
    per_column = d.bool()
    feeds = {
        "a": codes(d, *batch, m, k, dtype=left), "b": codes(d, k, n, dtype=right),
        "az": zero(d, dtype=left) if d.bool() else None,
        "bz": zero(d, *((n,) if per_column else ()), dtype=right) if d.bool() else None,
    }  # fmt: skip
    return one("MatMulInteger", feeds, opset=10, constant=d.pick((), ("b", "bz"), ("b", "az", "bz")))


@covers("qlinear_matmul")
def qlinear_matmul(d: Drawer) -> Case:
    m, k, n = d.int(1, 5), d.int(1, 9), d.int(1, 20)
    right = d.pick(*CODES)
    left = np.uint8 if right is np.uint8 else d.pick(*CODES)
    per = (n,) if d.bool() and right is np.int8 else ()
    feeds = {
        "a": codes(d, m, k, dtype=left), "as": scale(d), "az": zero(d, dtype=left),
        "b": codes(d, k, n, dtype=right), "bs": scale(d, *per), "bz": zero(d, *per, dtype=right),
        "ys": d.uniform(low=0.3, high=1.0), "yz": zero(d, dtype=left),
    }  # fmt: skip
    constant = d.pick(("as", "az", "b", "bs", "bz", "ys", "yz"), ("as", "az", "bs", "bz", "ys", "yz"))
    return one("QLinearMatMul", feeds, opset=10, constant=constant, steps=1)


@covers("conv_integer")
def conv_integer(d: Drawer) -> Case:
    sizes, kernel, attributes = window(d, 2)
    channels, outputs = d.int(1, 4), d.int(1, 9)
    feeds = {
        "x": codes(d, 1, channels, *sizes), "w": codes(d, outputs, channels, *kernel, dtype=np.uint8),
        "xz": zero(d) if d.bool() else None, "wz": zero(d) if d.bool() else None,
    }  # fmt: skip
    if feeds["wz"] is not None and feeds["xz"] is None:
        feeds["xz"] = np.array(0, np.uint8)
    return one("ConvInteger", feeds, attributes, opset=10, constant=d.pick((), ("w", "xz", "wz")), sized=("w",))


@covers("qlinear_conv")
def qlinear_conv(d: Drawer) -> Case:
    sizes, kernel, attributes = window(d, 2)
    group = d.pick(1, 1, 2)
    channels, outputs = group * d.int(1, 4), group * d.int(1, 9)
    if d.bool():
        group = channels = outputs = d.int(1, 9)
    left, right = np.uint8, d.pick(*CODES)
    per = (outputs,) if d.bool() and right is np.int8 else ()
    feeds = {
        "x": codes(d, 1, channels, *sizes, dtype=left), "xs": scale(d), "xz": zero(d, dtype=left),
        "w": codes(d, outputs, channels // group, *kernel, dtype=right), "ws": scale(d, *per),
        "wz": np.zeros(per, np.int8) if right is np.int8 else zero(d),
        "ys": d.uniform(low=0.3, high=1.0), "yz": zero(d, dtype=left),
        "b": d.integers(outputs, low=-999, high=999, dtype=np.int32) if d.bool() else None,
    }  # fmt: skip
    constant = ("xs", "xz", "w", "ws", "wz", "ys", "yz", "b")
    return one("QLinearConv", feeds, attributes | {"group": group}, opset=10, constant=constant, steps=1)


@covers("rows_nbits")
def rows_nbits(d: Drawer) -> Case:
    n, blocks = d.int(1, 20), d.int(1, 3)
    feeds = {
        "d": codes(d, n, blocks * 16), "i": d.integers(*d.shape(high=2), low=-n, high=n - 1),
        "s": scale(d, n, blocks), "z": codes(d, n, -(-blocks // 2)) if d.bool() else None,
    }  # fmt: skip
    attributes = {"block_size": 32, "bits": 4, "gather_axis": 0, "quantize_axis": 1}
    return one("GatherBlockQuantized", feeds, attributes, domain=MS, opset=1, constant=("d", "s", "z"))


@covers("matmul_nbits")
def matmul_nbits(d: Drawer) -> Case:
    bits, block, n, k = 4, d.pick(16, 32), d.int(1, 20), d.int(1, 3) * 32
    blocks = -(-k // block)
    feeds = {
        "a": d.normal(*d.shape(low=0, high=1, smallest=1), d.int(1, 3), k), "b": codes(d, n, blocks, block * bits // 8),
        "s": scale(d, n * blocks), "z": codes(d, n * -(-blocks * bits // 8)) if d.bool() else None,
    }  # fmt: skip
    attributes = {"K": k, "N": n, "bits": bits, "block_size": block}
    constant = ("b", "s", "z")
    return one("MatMulNBits", feeds, attributes, domain=MS, opset=1, constant=constant, rtol=1e-3, atol=1e-2)
