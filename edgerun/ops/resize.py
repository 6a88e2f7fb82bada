"""Resizing by interpolation along any axes."""

from __future__ import annotations

from edgerun.dims import DimLike
from edgerun.dtypes import DType
from edgerun.graph import Shape
from edgerun.ops.registry import TensorType, compatible, fresh_symbol, op, require
from edgerun.ops.resample import COORDINATES, MODES, NEAREST, POLICIES


@op("resize")
def resize(
    x: TensorType,
    scales: TensorType | None = None,
    sizes: TensorType | None = None,
    roi: TensorType | None = None,
    *,
    axes: tuple[int, ...],
    factors: tuple[float, ...] | None = None,
    to: tuple[DimLike, ...] | None = None,
    mode: str = "nearest",
    coordinate: str = "half_pixel",
    nearest: str = "round_prefer_floor",
    cubic_coeff: float = -0.75,
    exclude_outside: bool = False,
    extrapolation: float = 0.0,
    antialias: bool = False,
    policy: str = "stretch",
) -> TensorType:
    """Resize `axes` of x; the other axes stay.

    Attribute form: `to` are the new sizes of the axes and `factors` the scales that coordinates use (None: new size /
    old size). Tensor form: `scales` f32 or `sizes` i64, one an axis. `roi` f32 [2 * axes] (starts, then ends) is
    for tf_crop_and_resize, whose coordinates outside the input give `extrapolation`. `mode` nearest | linear | cubic;
    `coordinate`, `nearest`: see `edgerun.ops.resample`; `policy` stretch | not_larger | not_smaller applies to `sizes`.

    Nearest takes any dtype. Linear and cubic take floats, computed in f32 (f64 for f64), and integers, computed in f64
    and truncated toward zero (with `antialias` rounded) within the dtype's range. Beyond the edge the edge repeats, or
    with `exclude_outside` the weights there are dropped and the others scaled up.
    """
    require(mode in MODES, f"there is no interpolation {mode!r}")
    require(coordinate in COORDINATES, f"there is no coordinate transformation {coordinate!r}")
    require(nearest in NEAREST, f"there is no rounding {nearest!r}")
    require(policy in POLICIES, f"there is no aspect ratio policy {policy!r}")
    require(mode == "nearest" or x.dtype.is_float or x.dtype.is_integer, f"{mode} interpolation of {x.dtype.short}")
    require((to is not None) + (scales is not None) + (sizes is not None) == 1, "a resize has one source of sizes")
    require(factors is None or len(factors) == len(axes), f"{factors} are not {len(axes)} factors")
    require(coordinate != "tf_crop_and_resize" or roi is not None, "tf_crop_and_resize needs a region")
    for what, given, count in (("scales", scales, len(axes)), ("sizes", sizes, len(axes)), ("roi", roi, 2 * len(axes))):
        if given is not None and given.shape is not None:
            require(compatible(given.shape, (count,)), f"{what} is {given}, expected {count} values")
    require(sizes is None or sizes.dtype is DType.I64, "sizes are i64")
    if x.shape is None:
        return x.like()
    require(all(0 <= a < len(x.shape) for a in axes) and len(set(axes)) == len(axes), f"axes {axes} of {x}")
    if to is not None:
        require(len(to) == len(axes), f"{to} are not the sizes of {len(axes)} axes")
        require(all(not isinstance(t, int) or t >= 0 for t in to), f"the sizes {to} are negative")
    new: tuple[DimLike, ...] = to if to is not None else tuple(fresh_symbol("resize") for _ in axes)
    shape: Shape = tuple(new[axes.index(k)] if k in axes else d for k, d in enumerate(x.shape))
    return x.like(shape)
