"""Pooling of ai.onnx. It arrives channels first and runs channels last."""

from __future__ import annotations

from edgerun.errors import ShapeError, UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering
from edgerun_converters.onnx.windows import Window, integers, read_window


@lowering("MaxPool")
def max_pool(b: Builder, n: OnnxNode) -> None:
    if not n.wants(1):
        n.bind(_pool(b, n, "max"))
        return
    window = _window(b, n)
    y, indices = b.emit(
        "max_pool_indices",
        [b.to_channels_last(n.input(0))],
        kernel=window.kernel,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        ceil_mode=bool(n.attr("ceil_mode", 0)),
        column_major=bool(n.attr("storage_order", 0)),
    )
    n.bind(b.to_channels_first(y), b.to_channels_first(indices))


@lowering("AveragePool")
def average_pool(b: Builder, n: OnnxNode) -> None:
    n.bind(_pool(b, n, "average", count_include_pad=bool(n.attr("count_include_pad", 0))))


@lowering("LpPool")
def lp_pool(b: Builder, n: OnnxNode) -> None:
    n.bind(_pool(b, n, "lp", p=_order(n)))


def _window(b: Builder, n: OnnxNode) -> Window:
    sizes = b.shape(n.input(0))[2:]
    if not sizes:
        raise ShapeError(f"pooling needs batch, channels and spatial axes, not {b.type(n.input(0))}")
    kernel = tuple(int(k) for k in n.attr("kernel_shape"))
    if len(kernel) != len(sizes):
        raise ShapeError(f"kernel_shape {kernel} does not fit the {len(sizes)} spatial axes of {b.type(n.input(0))}")
    return read_window(n, sizes, kernel)


def _pool(b: Builder, n: OnnxNode, kind: str, *, count_include_pad: bool = False, p: int = 2) -> str:
    window = _window(b, n)
    y = b.one(
        "pool",
        [b.to_channels_last(n.input(0))],
        kind=kind,
        kernel=window.kernel,
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        ceil_mode=bool(n.attr("ceil_mode", 0)),
        count_include_pad=count_include_pad,
        p=p,
    )
    return b.to_channels_first(y)


def _order(n: OnnxNode) -> int:
    """The order of the norm: an integer, which the first opset wrote as a float."""
    p = float(n.attr("p", 2))
    if p < 1 or p != int(p):
        raise UnsupportedError(f"a norm of order {p} is not supported")
    return int(p)


@lowering("MaxUnpool")
def max_unpool(b: Builder, n: OnnxNode) -> None:
    x, indices, size = n.input(0), n.input(1), n.input(2)
    kernel = tuple(int(k) for k in n.attr("kernel_shape"))
    known = b.known(size) if size else None
    n.bind(
        b.one(
            "max_unpool",
            [x, indices, size if size and known is None else ""],
            kernel=kernel,
            strides=integers(n, "strides", (1,) * len(kernel)),
            pads=integers(n, "pads", (0,) * (2 * len(kernel))),
            to=tuple(known) if known is not None else None,
        )
    )
