"""Reading feature maps at computed places, and summing patches back. Channels FIRST, as in ONNX."""

from __future__ import annotations

from edgerun.dims import DimLike, floordiv, product
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, compatible, fresh_symbol, may_equal, op, require
from edgerun.ops.windows import check_window

SAMPLING = ("nearest", "linear", "cubic")
PADDING = ("zeros", "border", "reflection")


@op("spatial")
def grid_sample(
    x: TensorType, grid: TensorType, *, mode: str = "linear", padding: str = "zeros", align_corners: bool = False
) -> TensorType:
    """Sample x [N, C, *S] at grid [N, *O, n], n = rank of S -> [N, C, *O].

    The last axis of `grid` names a place by coordinates for the LAST spatial axis first; -1 and 1 are the centres of
    the corner cells with `align_corners`, else their outer edges. `mode` nearest (halves to even) | linear | cubic
    (coefficient -0.75); `padding` beyond the edge: zeros | border | reflection. Floats; f16 and bf16 compute in f32.
    """
    require(mode in SAMPLING, f"there is no interpolation {mode!r}")
    require(padding in PADDING, f"there is no padding {padding!r}")
    require(grid.dtype.is_float, f"a grid of {grid.dtype.short}")
    require(x.dtype.is_float or mode == "nearest", f"{mode} sampling of {x.dtype.short}")
    if x.shape is None or grid.shape is None:
        return x.like() if x.shape is None else TensorType(x.dtype, None)
    require(len(x.shape) >= 3 and len(grid.shape) == len(x.shape), f"the grid {grid} does not fit {x}")
    require(may_equal(x.shape[0], grid.shape[0]), f"the batches of {x} and of the grid {grid} differ")
    size = grid.shape[-1]
    require(may_equal(size, len(x.shape) - 2), f"the grid {grid} does not name places in {x}")
    return x.like((x.shape[0], x.shape[1], *grid.shape[1:-1]))


@op("spatial")
def affine_grid(
    theta: TensorType, size: TensorType | None = None, *, to: tuple[DimLike, ...] | None = None, align_corners: bool
) -> TensorType:
    """The sampling grid of affine maps: theta [N, n, n + 1] -> [N, *S, n] for shapes `to` or `size` [N, C, *S].

    Cell centres in normalised coordinates (see grid_sample), extended by 1, times theta transposed. An axis of one cell
    has the coordinate 0.
    """
    require(theta.dtype.is_float, f"an affine map of {theta.dtype.short}")
    require((to is None) != (size is None), "an affine grid has one source of sizes")
    require(theta.shape is None or len(theta.shape) == 3, f"affine maps are [N, n, n + 1], not {theta}")
    if to is None:
        n = size.shape[0] if size is not None and size.shape is not None else None
        if not isinstance(n, int):
            return TensorType(theta.dtype, None)
        to = tuple(fresh_symbol("grid") for _ in range(n))
    axes = len(to) - 2
    require(axes in (2, 3), f"an affine grid for a map of shape {to}")
    if theta.shape is not None:
        require(compatible(theta.shape[1:], (axes, axes + 1)), f"affine maps {theta} for a map with {axes} axes")
    return theta.like((theta.shape[0] if theta.shape is not None else to[0], *to[2:], axes))


@op("spatial")
def col2im(
    x: TensorType,
    image: TensorType | None = None,
    block: TensorType | None = None,
    *,
    to: tuple[DimLike, ...] | None = None,
    kernel: tuple[int, ...] | None = None,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilations: tuple[int, ...],
) -> TensorType:
    """Sum the columns x [N, C * prod(K), L] of sliding blocks back into images [N, C, *S], the transpose of im2col.

    S is `to`, or the run-time `image` i64; K is `kernel`, or the run-time `block` i64. L counts the blocks.
    """
    n = len(strides)
    require(
        (to is None) != (image is None) and (kernel is None) != (block is None), "col2im needs image and block sizes"
    )
    for what, given in (("image", image), ("block", block)):
        require(given is None or given.dtype is DType.I64, f"the {what} sizes are i64")
    if kernel is not None:
        check_window(n, kernel, strides, dilations, pads)
    sizes = to if to is not None else tuple(fresh_symbol("image") for _ in range(n))
    require(len(sizes) == n, f"the image {sizes} has another rank than the strides {strides}")
    if x.shape is None:
        return x.like((fresh_symbol("batch"), fresh_symbol("channels"), *sizes))
    require(len(x.shape) == 3, f"columns are [N, C * block, L], not {x}")
    channels: DimLike = fresh_symbol("channels")
    if kernel is not None:
        area = product(kernel)
        rows = x.shape[1]
        if isinstance(rows, int) and isinstance(area, int):
            require(rows % area == 0, f"{rows} rows are no multiple of the block {kernel}")
        channels = floordiv(rows, area)
    return x.like((x.shape[0], channels, *sizes))
