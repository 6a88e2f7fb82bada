"""Sizes of sliding windows, shared by convolution and pooling. Sizes may be numbers or symbolic dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from edgerun.dims import DimLike, ceildiv, floordiv, minimum
from edgerun.graph import Shape
from edgerun.ops.registry import require


def span(kernel: DimLike, dilation: int) -> DimLike:
    """Cells from the first to the last tap of a dilated kernel."""
    return (kernel - 1) * dilation + 1


def window_count(
    size: DimLike,
    kernel: DimLike,
    stride: int,
    dilation: int,
    before: DimLike,
    after: DimLike,
    ceil_mode: bool = False,
) -> DimLike:
    """How many windows fit along an axis of `size` cells with padding.

    In ceil mode a last, partial window counts when it starts inside the input or the padding before it.
    Raises ShapeError when the kernel is longer than the padded axis.
    """
    room = size + before + after - span(kernel, dilation)
    if isinstance(room, int):
        require(room >= -stride, f"a window of {span(kernel, dilation)} does not fit into {size} + {before} + {after}")
    if ceil_mode:
        return minimum(ceildiv(room, stride) + 1, ceildiv(size + before, stride))
    return floordiv(room, stride) + 1


def window_counts(
    sizes: Shape,
    kernel: Sequence[DimLike],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[DimLike],
    ceil_mode: bool = False,
) -> Shape:
    """`window_count` along each axis; pads = all begins, then all ends."""
    n = len(sizes)
    return tuple(
        window_count(sizes[i], kernel[i], strides[i], dilations[i], pads[i], pads[n + i], ceil_mode) for i in range(n)
    )


def check_window(
    spatial: int,
    kernel: Sequence[DimLike],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[DimLike],
    *,
    negative_pads: bool = False,
) -> None:
    """Check counts and signs of window attributes. Raises ShapeError."""
    require(spatial >= 1, "a window needs at least one spatial axis")
    for what, values, count in (
        ("kernel", kernel, spatial),
        ("strides", strides, spatial),
        ("dilations", dilations, spatial),
        ("pads", pads, 2 * spatial),
    ):
        require(len(values) == count, f"{what} has {len(values)} values for {spatial} spatial axes")
    require(all(not isinstance(k, int) or k > 0 for k in kernel), f"a kernel of {tuple(kernel)} is empty")
    require(all(s > 0 for s in (*strides, *dilations)), "strides and dilations are positive")
    require(negative_pads or all(not isinstance(p, int) or p >= 0 for p in pads), f"padding {tuple(pads)} is negative")
