"""GridSample, AffineGrid and Col2Im of ai.onnx."""

from __future__ import annotations

from edgerun.backends.numpy.spatial import centres
from edgerun.dtypes import DType
from edgerun.errors import ShapeError, UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering
from edgerun_converters.onnx.windows import integers

_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Names until opset 20."""


@lowering("GridSample")
def grid_sample(b: Builder, n: OnnxNode) -> None:
    mode = n.attr("mode", "linear")
    n.bind(
        b.one(
            "grid_sample",
            [n.input(0), n.input(1)],
            mode=_MODES.get(mode, mode),
            padding=n.attr("padding_mode", "zeros"),
            align_corners=bool(n.attr("align_corners", 0)),
        )
    )


@lowering("AffineGrid")
def affine_grid(b: Builder, n: OnnxNode) -> None:
    """A product with the constant cell centres when the size is known, else an op of its own."""
    theta, size = n.input(0), n.input(1)
    align_corners = bool(n.attr("align_corners", 0))
    known = b.known(size)
    sizes = [s for s in known[2:] if isinstance(s, int)] if known is not None else []
    if known is None or len(known) not in (4, 5):
        n.bind(b.one("affine_grid", [theta, size], align_corners=align_corners))
        return
    if len(sizes) != len(known) - 2:
        n.bind(b.one("affine_grid", [theta], to=tuple(known), align_corners=align_corners))
        return
    dtype = b.dtype(theta)
    working = DType.F64 if dtype is DType.F64 else DType.F32
    base = b.const(centres(tuple(sizes), align_corners), working, hint="cell_centres")
    grid = b.one("matmul", [base, b.transpose(b.cast(theta, working), (0, 2, 1))])
    n.bind(b.cast(b.reshape(grid, (b.shape(theta)[0], *sizes, len(sizes))), dtype))


@lowering("Col2Im")
def col2im(b: Builder, n: OnnxNode) -> None:
    x, image, block = n.input(0), n.input(1), n.input(2)
    to, kernel = b.known(image), b.static(block)
    rank = b.shape(image)[0] if b.shape(image) else None
    if not isinstance(rank, int):
        raise ShapeError("Col2Im of an image of unknown rank")
    if kernel is not None and kernel.size != rank:
        raise UnsupportedError(f"Col2Im with {kernel.size} block sizes for {rank} image sizes")
    y = b.one(
        "col2im",
        [x, image if to is None else "", block if kernel is None else ""],
        to=tuple(to) if to is not None else None,
        kernel=tuple(int(k) for k in kernel) if kernel is not None else None,
        strides=integers(n, "strides", (1,) * rank),
        pads=integers(n, "pads", (0,) * (2 * rank)),
        dilations=integers(n, "dilations", (1,) * rank),
    )
    n.bind(y)
