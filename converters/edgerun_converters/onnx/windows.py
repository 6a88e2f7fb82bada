"""Window attributes that the convolution and pooling operators share, with `auto_pad` resolved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgerun.dims import DimLike, ceildiv, floordiv, maximum
from edgerun.errors import ShapeError, UnsupportedError
from edgerun.graph import Shape
from edgerun_converters.onnx.builder import Builder, OnnxNode

AUTO_PAD = ("", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel, strides, dilations by spatial axis; pads = all begins, then all ends."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[DimLike, ...]
    dilations: tuple[int, ...]


def integers(n: OnnxNode, name: str, default: Sequence[int]) -> tuple[int, ...]:
    """An attribute that lists one integer for each entry of `default`, or `default` when absent or empty.

    Raises ShapeError when it has another length.
    """
    values = tuple(int(v) for v in n.attr(name, ()) or default)
    if len(values) != len(default):
        raise ShapeError(f"{name} has {len(values)} values, expected {len(default)}")
    return values


def auto_pad(n: OnnxNode) -> str:
    """The padding mode. Raises UnsupportedError when it is none of the standard's."""
    mode = n.attr("auto_pad", "NOTSET")
    if mode not in AUTO_PAD:
        raise UnsupportedError(f"there is no auto_pad mode {mode!r}")
    return mode or "NOTSET"


def read_window(n: OnnxNode, sizes: Shape, kernel: Sequence[int]) -> Window:
    """The window of a node whose input has these spatial sizes; symbolic sizes give symbolic pads."""
    spatial = len(sizes)
    strides = integers(n, "strides", (1,) * spatial)
    dilations = integers(n, "dilations", (1,) * spatial)
    mode = auto_pad(n)
    if mode == "NOTSET":
        return Window(tuple(kernel), strides, integers(n, "pads", (0,) * (2 * spatial)), dilations)
    if mode == "VALID":
        return Window(tuple(kernel), strides, (0,) * (2 * spatial), dilations)
    totals = [
        maximum((ceildiv(size, stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    return Window(tuple(kernel), strides, distribute(totals, upper=mode == "SAME_UPPER"), dilations)


def distribute(totals: Sequence[DimLike], *, upper: bool) -> tuple[DimLike, ...]:
    """Pads (begins, then ends) that add up to `totals`; an odd cell goes to the end when `upper`, else to the begin."""
    small = [floordiv(t, 2) for t in totals]
    large = [t - s for t, s in zip(totals, small, strict=True)]
    return (*small, *large) if upper else (*large, *small)


def filters_last(b: Builder, w: str) -> str:
    """Weights [A, B, *K] as [A, *K, B]; constants are rearranged now."""
    return permuted(b, w, (0, *range(2, b.rank(w)), 1))


def permuted(b: Builder, w: str, perm: Sequence[int]) -> str:
    """Transpose weights: a constant at once, so that no later step sees the old order; else by a node."""
    data = b.static(w)
    if data is None or tuple(perm) == tuple(range(len(perm))):
        return b.transpose(w, perm)
    return b.const(np.ascontiguousarray(data.transpose(perm)), hint=f"{w}.permuted")


def kernel_of(b: Builder, n: OnnxNode, w: str) -> tuple[int, ...]:
    """Kernel sizes of weights [A, B, *K]. Raises ShapeError when symbolic or when `kernel_shape` says other."""
    sizes = b.shape(w)[2:]
    kernel = tuple(int(s) for s in sizes)
    stated = tuple(int(s) for s in n.attr("kernel_shape", ()) or kernel)
    if stated != kernel:
        raise ShapeError(f"kernel_shape is {stated}, but the weights {b.type(w)} hold a kernel of {kernel}")
    return kernel
