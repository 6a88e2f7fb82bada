"""Resize and Upsample of ai.onnx, every opset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgerun.dims import DimLike
from edgerun.errors import ShapeError, UnsupportedError
from edgerun.graph import Shape
from edgerun.ops.resample import apply_policy, exact, scaled_size, symbolic
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering


@dataclass(frozen=True, slots=True)
class _Request:
    """What the node asks for along `axes`: one of scales and sizes, known or as a tensor."""

    axes: tuple[int, ...]
    scales: str = ""
    sizes: str = ""
    factors: tuple[float, ...] | None = None
    to: tuple[DimLike, ...] | None = None


@lowering("Upsample")
def upsample(b: Builder, n: OnnxNode) -> None:
    x = n.input(0)
    mode = _mode(n)
    if mode == "cubic":
        raise UnsupportedError("Upsample knows nearest and linear interpolation")
    axes = tuple(range(b.rank(x)))
    if n.opset >= 9:
        request = _by_scales(b, x, n.input(1), axes)
    else:
        scales = n.attr("scales", ()) or (1.0, 1.0, n.attr("height_scale"), n.attr("width_scale"))
        request = _by_factors(b, x, tuple(float(s) for s in scales), axes)
    n.bind(_emit(b, x, request, mode=mode, coordinate="asymmetric", nearest="simple"))


@lowering("Resize")
def resize(b: Builder, n: OnnxNode) -> None:
    x = n.input(0)
    mode = _mode(n)
    rank = b.rank(x)
    if n.opset < 11:
        request = _by_scales(b, x, n.input(1), tuple(range(rank)))
        n.bind(_emit(b, x, request, mode=mode, coordinate="asymmetric", nearest="simple"))
        return
    axes = tuple(b.axis(x, int(a)) for a in n.attr("axes", ()) or range(rank))
    scales, sizes = (name if name and b.type(name).shape != (0,) else "" for name in (n.input(2), n.input(3)))
    if bool(scales) == bool(sizes):
        raise ShapeError("Resize needs either scales or sizes")
    policy = n.attr("keep_aspect_ratio_policy", "stretch")
    request = _by_scales(b, x, scales, axes) if scales else _by_sizes(b, x, sizes, axes, policy)
    coordinate = n.attr("coordinate_transformation_mode", "half_pixel")
    y = _emit(
        b,
        x,
        request,
        roi=n.input(1) if coordinate == "tf_crop_and_resize" else "",
        mode=mode,
        coordinate=coordinate,
        nearest=n.attr("nearest_mode", "round_prefer_floor"),
        cubic_coeff=float(n.attr("cubic_coeff_a", -0.75)),
        exclude_outside=bool(n.attr("exclude_outside", 0)),
        extrapolation=float(n.attr("extrapolation_value", 0.0)),
        antialias=bool(n.attr("antialias", 0)),
        policy=policy if request.sizes else "stretch",
    )
    n.bind(y)


def _mode(n: OnnxNode) -> str:
    mode = str(n.attr("mode", "nearest"))
    return "linear" if mode in ("bilinear", "trilinear") else mode


def _by_scales(b: Builder, x: str, scales: str, axes: tuple[int, ...]) -> _Request:
    data = b.static(scales)
    if data is None:
        return _Request(axes, scales=scales)
    return _by_factors(b, x, tuple(float(s) for s in data.ravel()), axes)


def _by_factors(b: Builder, x: str, factors: tuple[float, ...], axes: tuple[int, ...]) -> _Request:
    if len(factors) != len(axes):
        raise ShapeError(f"{len(factors)} scales for {len(axes)} axes")
    for factor in factors:
        exact(factor)  # refuses what is not positive
    sizes = [scaled_size(b.shape(x)[axis], factor) for axis, factor in zip(axes, factors, strict=True)]
    to = tuple(s for s in sizes if s is not None)
    if len(to) < len(sizes):
        return _Request(axes, scales=b.const(np.array(factors, np.float32)))
    return _Request(axes, factors=factors, to=to)


def _by_sizes(b: Builder, x: str, sizes: str, axes: tuple[int, ...], policy: str) -> _Request:
    known = b.known(sizes)
    if known is not None and len(known) != len(axes):
        raise ShapeError(f"{len(known)} sizes for {len(axes)} axes")
    lengths = [b.shape(x)[axis] for axis in axes]
    if known is None or (policy != "stretch" and symbolic([*known, *lengths])):
        return _Request(axes, sizes=sizes)
    if policy == "stretch":
        return _Request(axes, to=tuple(known))
    to, factors = apply_policy([int(n) for n in lengths], [int(s) for s in known], policy)
    return _Request(axes, factors=tuple(float(f) for f in factors), to=tuple(to))


def _emit(b: Builder, x: str, request: _Request, *, roi: str = "", coordinate: str, **attrs: Any) -> str:
    """The resize over the axes that change; a region keeps all of them."""
    axes, factors, to = request.axes, request.factors, request.to
    if to is not None and coordinate != "tf_crop_and_resize":
        shape: Shape = b.shape(x)
        changed = [
            k for k, axis in enumerate(axes) if to[k] != shape[axis] or (factors is not None and factors[k] != 1)
        ]
        if not changed:
            return x
        axes = tuple(axes[k] for k in changed)
        to = tuple(to[k] for k in changed)
        factors = tuple(factors[k] for k in changed) if factors is not None else None
    inputs = [x, request.scales, request.sizes, roi]
    return b.one("resize", inputs, axes=axes, factors=factors, to=to, coordinate=coordinate, **attrs)
