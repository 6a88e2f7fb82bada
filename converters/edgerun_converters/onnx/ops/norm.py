"""Layer, RMS, group, instance and local response normalisation of ai.onnx."""

from __future__ import annotations

from edgerun.dims import Dim
from edgerun.dtypes import DType, from_onnx
from edgerun.errors import ShapeError, UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering


@lowering("LayerNormalization")
def layer_normalization(b: Builder, n: OnnxNode) -> None:
    x, scale, bias = n.input(0), n.input(1), n.input(2)
    axis, epsilon = b.axis(x, int(n.attr("axis", -1))), float(n.attr("epsilon", 1e-5))
    dtype = b.dtype(x)
    x = _wider(b, x, n)
    fused = _in_norm(b, x, scale, axis) and (not bias or _in_norm(b, x, bias, axis))
    wanted = 3 if n.wants(1) or n.wants(2) else 1
    parameters = [scale, bias] if fused else []
    y, *statistics = b.emit("layer_norm", [x, *parameters], wanted, axis=axis, epsilon=epsilon)
    if not fused:
        y = b.scalar("mul", b.cast(y, b.dtype(scale)), scale)
        y = b.scalar("add", y, bias) if bias else y
    stash = from_onnx(int(n.attr("stash_type", DType.F32.onnx)))
    n.bind(b.cast(y, dtype), *(b.cast(s, stash) for s in statistics))


@lowering("RMSNormalization")
def rms_normalization(b: Builder, n: OnnxNode) -> None:
    x, scale = _wider(b, n.input(0), n), n.input(1)
    axis, epsilon = b.axis(x, int(n.attr("axis", -1))), float(n.attr("epsilon", 1e-5))
    if _in_norm(b, x, scale, axis, any_dtype=True):
        n.bind(b.one("rms_norm", [x, scale], axis=axis, epsilon=epsilon))
        return
    square = b.one("reduce", [b.scalar("mul", x, x)], kind="mean", over=tuple(range(axis, b.rank(x))))
    root = b.scalar("sqrt", b.scalar("add", square, b.fill(square, epsilon)))
    n.bind(b.scalar("mul", b.cast(b.scalar("div", x, root), b.dtype(scale)), scale))


@lowering("GroupNormalization")
def group_normalization(b: Builder, n: OnnxNode) -> None:
    x, scale, bias = n.input(0), n.input(1), n.input(2)
    groups, epsilon = int(n.attr("num_groups")), float(n.attr("epsilon", 1e-5))
    channels = b.shape(x)[1]
    if n.opset < 21:
        # One scale and bias a group until opset 21.
        scale, bias = (_repeated(b, p, groups, channels) for p in (scale, bias))
    y = b.one("group_norm", [b.to_channels_last(x), scale, bias], groups=groups, epsilon=epsilon)
    n.bind(b.to_channels_first(y))


@lowering("InstanceNormalization")
def instance_normalization(b: Builder, n: OnnxNode) -> None:
    x, scale, bias = n.input(0), n.input(1), n.input(2)
    epsilon = float(n.attr("epsilon", 1e-5))
    y = b.one("group_norm", [b.to_channels_last(x), scale, bias], groups=b.shape(x)[1], epsilon=epsilon)
    n.bind(b.to_channels_first(y))


@lowering("LRN")
def lrn(b: Builder, n: OnnxNode) -> None:
    y = b.one(
        "lrn",
        [b.to_channels_last(n.input(0))],
        size=int(n.attr("size")),
        alpha=float(n.attr("alpha", 1e-4)),
        beta=float(n.attr("beta", 0.75)),
        bias=float(n.attr("bias", 1.0)),
    )
    n.bind(b.to_channels_first(y))


def _in_norm(b: Builder, x: str, parameter: str, axis: int, any_dtype: bool = False) -> bool:
    """Whether the norm op takes this scale or bias: its shape is exactly that of the normalised axes."""
    shape = b.type(parameter).shape
    return shape == b.shape(x)[axis:] and (any_dtype or b.dtype(parameter) is b.dtype(x))


def _wider(b: Builder, x: str, n: OnnxNode) -> str:
    """x in the type that `stash_type` asks to compute in, where that is wider than what the norms use anyway."""
    stash = from_onnx(int(n.attr("stash_type", DType.F32.onnx)))
    if not stash.is_float:
        raise UnsupportedError(f"stash_type {stash.short}")
    return b.cast(x, DType.F64) if stash is DType.F64 else x


def _repeated(b: Builder, parameter: str, groups: int, channels: int | Dim) -> str:
    """One value a group [G] to one a channel [C]."""
    if isinstance(channels, int) and channels % groups:
        raise ShapeError(f"{channels} channels in {groups} groups")
    per_group = channels // groups
    return b.reshape(b.one("expand", [b.reshape(parameter, (groups, 1))], to=(groups, per_group)), (channels,))
