"""Convolutions of float32: each kernel at and around the edges of its tiles, against the NumPy kernels."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from edgerun.backends.native import packing
from edgerun.backends.native.lowering import Lowering
from edgerun.backends.numpy.registry import find
from edgerun.dims import symbol
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Graph, Node
from edgerun.ops.activation import ACTIVATIONS
from edgerun.ops.registry import TensorType, infer
from tests.native.kernel_harness import REMOTE, levels, run_graph, run_op

EPILOGUES: tuple[tuple[str, float, float], ...] = (
    ("none", 0, 0),
    ("clamp", 0, 6),
    ("clamp", 0, float("inf")),
    ("leaky", 0.1, 0),
    ("sigmoid", 0, 0),
    ("silu", 0, 0),
    ("hardsigmoid", 0.2, 0.5),
    ("hardswish", 0, 0),
    ("gelu", 0, 0),
    ("gelu_tanh", 0, 0),
    ("tanh", 0, 0),
    ("elu", 1.5, 0),
    ("prelu", 0, 0),
)


class Case:
    """A convolution of random numbers; sizes are [H, W], [W] or [D, H, W]."""

    def __init__(
        self,
        size: tuple[int, ...],
        kernel: tuple[int, ...],
        channels: int,
        outputs: int,
        *,
        batch: int = 1,
        strides: tuple[int, ...] = (),
        pads: tuple[int, ...] = (),
        dilations: tuple[int, ...] = (),
        group: int = 1,
        bias: bool = True,
        act: tuple[str, float, float] = ("none", 0, 0),
        res: str = "none",
        seed: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)
        n = len(size)

        def real(*shape: int) -> np.ndarray:
            return rng.standard_normal(shape).astype(np.float32)

        self.attrs: dict[str, Any] = {
            "strides": strides or (1,) * n,
            "pads": pads or (0,) * (2 * n),
            "dilations": dilations or (1,) * n,
            "group": group,
        }
        w = real(outputs, *kernel, channels // group)
        self.inputs: list[Any] = [real(batch, *size, channels), w, real(outputs) if bias else None]
        name, p0, p1 = act
        if name != "none" or res != "none":
            self.attrs |= {"act": name, "p0": float(p0), "p1": float(p1), "res": res}
            self.inputs += [None, real(outputs) if name == "prelu" else None]
        if res != "none":
            plain = find("conv")(*self.inputs[:3], **{k: self.attrs[k] for k in CONV_ATTRS})
            self.inputs[3] = real(*plain.shape)

    def check(self, level: str = "", **options: Any) -> None:
        """Assert that the native result is NumPy's, within rounding of sums of this length."""
        expected = find("conv")(*self.inputs, **self.attrs)
        constant = (1, 2, 4)
        (actual,) = run_op("conv", self.inputs, self.attrs, constant=constant, level=level, **options)
        taps = self.inputs[1].size // max(self.inputs[1].shape[0], 1)
        tolerance = 2e-6 * (1 + np.sqrt(taps))
        if options.get("options"):
            tolerance *= 10  # Winograd's transforms
        np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)

    def kernels(self, arch: str = "x86_64", **options: object) -> list[str]:
        """Names of the kernels that the lowering chooses."""
        graph = Graph()
        names = [f"in{k}" if a is not None else "" for k, a in enumerate(self.inputs)]
        for k, (name, array) in enumerate(zip(names, self.inputs, strict=True)):
            if name:
                graph.add_tensor(name, DType.F32, array.shape, array if k in (1, 2, 4) else None)
        y = find("conv")(*self.inputs, **self.attrs)
        graph.add_tensor("y", DType.F32, y.shape)
        graph.nodes.append(Node("conv", names, ["y"], self.attrs, "conv"))
        cx = Lowering(graph, arch, options)
        cx.run()
        return [node.kernel for node in cx.nodes]


CONV_ATTRS = ("strides", "pads", "dilations", "group")


@pytest.mark.parametrize("level", levels())
def test_pointwise_around_tile_edges(level: str) -> None:
    """1x1: rows around MR (6, 14), columns around NR and NR/2 (32, 16), short and odd K."""
    for pixels in (1, 5, 6, 7, 13, 14, 15, 27, 28, 29):
        for outputs in (1, 15, 16, 17, 31, 33, 49):
            Case((1, pixels), (1, 1), 7, outputs, act=("clamp", 0, 6)).check(level)
    for channels in (1, 2, 3, 4, 5, 8, 31):
        Case((4, 5), (1, 1), channels, 20, batch=2).check(level)
        Case((4, 5), (1, 1), channels, 32, batch=3, bias=False).check(level, threads=False)


@pytest.mark.parametrize("level", levels())
def test_every_panel_and_row_remainder(level: str) -> None:
    for outputs in range(1, 66, 3):
        Case((3, 5), (3, 3), 3, outputs, pads=(1, 1, 1, 1), bias=outputs % 2 == 0).check(level)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("group", [1, 2, 3])
def test_strides_dilations_and_pads(level: str, group: int) -> None:
    channels, outputs = 4 * group, 5 * group
    for kernel in ((1, 1), (3, 3), (2, 5), (5, 1)):
        for strides in ((1, 1), (2, 2), (1, 3)):
            for dilations in ((1, 1), (2, 1), (1, 2), (3, 2)):
                for pads in ((0, 0, 0, 0), (1, 1, 1, 1), (2, 0, 1, 3), (0, 4, 0, 0)):
                    geometry: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads}
                    Case((13, 14), kernel, channels, outputs, group=group, **geometry).check(level)


@pytest.mark.parametrize("level", levels())
def test_padding_beyond_the_kernel(level: str) -> None:
    """Whole windows of padding, and padding that no window reaches."""
    Case((3, 2), (2, 2), 3, 4, pads=(4, 5, 3, 6)).check(level)
    Case((3, 3), (3, 3), 3, 4, pads=(0, 0, 1, 1), strides=(3, 3)).check(level)
    Case((2, 2), (3, 3), 8, 8, pads=(4, 4, 4, 4), strides=(4, 4), group=8).check(level)
    Case((1, 1), (7, 7), 3, 9, pads=(3, 3, 3, 3)).check(level)


@pytest.mark.parametrize("level", levels())
def test_first_layer(level: str) -> None:
    for kernel, pad in ((3, 1), (7, 3)):
        Case((17, 19), (kernel, kernel), 3, 32, strides=(2, 2), pads=(pad,) * 4, act=("clamp", 0, 6)).check(level)
    Case((17, 18), (3, 3), 1, 24, strides=(2, 2), pads=(0, 0, 1, 1)).check(level)


@pytest.mark.parametrize("level", levels())
def test_one_and_three_spatial_dimensions(level: str) -> None:
    for strides, dilations, pads in (((1,), (1,), (0, 0)), ((2,), (3,), (4, 1)), ((1,), (2,), (0, 5))):
        geometry: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads}
        Case((29,), (3,), 6, 33, batch=2, **geometry).check(level)
        Case((29,), (5,), 24, 24, group=24, **geometry).check(level)
    Case((5, 6, 7), (3, 2, 3), 4, 6, group=2, pads=(1, 0, 2, 1, 1, 0), strides=(1, 2, 2), dilations=(2, 1, 1)).check(
        level
    )
    Case((4, 4, 4), (1, 1, 1), 5, 3, act=("gelu", 0, 0), res="after").check(level)


@pytest.mark.parametrize("level", levels())
def test_depthwise(level: str) -> None:
    for channels in (2, 3, 4, 7, 8, 15, 16, 17, 33, 72):
        for kernel, stride in ((3, 1), (3, 2), (5, 1), (5, 2), (4, 1), (3, 3)):
            pad = kernel // 2
            geometry: dict[str, Any] = {"strides": (stride, stride), "pads": (pad, pad, pad, pad)}
            case = Case((9, 14), (kernel, kernel), channels, channels, group=channels, batch=2, **geometry)
            case.check(level)
            assert case.kernels() == ["dwconv_f32"]
    for size in ((1, 1), (2, 3), (3, 2), (7, 7), (4, 30)):
        for pads in ((1, 1, 1, 1), (0, 0, 1, 1), (0, 0, 0, 0) if min(size) > 2 else (2, 2, 2, 2), (3, 1, 0, 2)):
            for strides in ((1, 1), (2, 2)):
                Case(size, (3, 3), 20, 20, group=20, pads=pads, strides=strides).check(level)


@pytest.mark.parametrize("level", levels())
def test_depthwise_general(level: str) -> None:
    """Unequal kernels and strides, dilations, several outputs a channel."""
    Case((9, 11), (1, 5), 19, 19, group=19, pads=(0, 2, 0, 2)).check(level)
    Case((9, 11), (3, 3), 19, 19, group=19, strides=(1, 2), dilations=(2, 3), pads=(2, 3, 2, 3)).check(level)
    Case((9, 11), (7, 7), 40, 40, group=40, pads=(3, 3, 3, 3)).check(level)
    Case((6, 7), (3, 3), 5, 15, group=5, pads=(1, 1, 1, 1)).check(level)
    Case((6, 7), (3, 3), 1, 7, group=1, pads=(1, 1, 1, 1)).check(level)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("tile", [2, 4])
def test_winograd(level: str, tile: int) -> None:
    forced: dict[str, Any] = {"winograd": tile}
    for size in ((12, 12), (13, 14), (15, 17), (6, 7), (1, 11)):
        for channels, outputs in ((8, 5), (17, 33), (32, 32)):
            case = Case(size, (3, 3), channels, outputs, batch=2, pads=(1, 1, 1, 1), act=("clamp", 0, 6), res="before")
            assert case.kernels(winograd=tile) == [f"wino{tile}_f32"]
            case.check(level, options=forced)
            case.check(level, options=forced, apart=3, in_place=True, threads=False)
    Case((16, 18), (3, 3), 9, 20, pads=(0, 2, 1, 0), bias=False).check(level, options=forced)
    many = Case((60, 60), (3, 3), 16, 16, pads=(1, 1, 1, 1), act=("silu", 0, 0), res="after")
    many.check(level, options=forced)


@pytest.mark.parametrize("level", levels())
def test_winograd_blocks_slices_and_chunks(level: str) -> None:
    """More tiles than a block (28 of 300 channels) or a chunk (28), one more and one less; slices of half a panel."""
    pads = (1, 1, 1, 1)
    for width in (107, 111, 112, 113, 117):
        Case((4, width), (3, 3), 8, 33, pads=pads).check(level, options={"winograd": 4})
    for channels, outputs in ((300, 17), (300, 40)):
        Case((24, 20), (3, 3), channels, outputs, pads=pads).check(level, options={"winograd": 4})
    Case((8, 9), (3, 3), 650, 34, pads=pads, act=("silu", 0, 0)).check(level, options={"winograd": 2})


def test_winograd_is_chosen_where_it_pays() -> None:
    """Never for small images, other kernels, strides or groups; the weights stay those of the direct form."""
    pads = (1, 1, 1, 1)
    large = Case((56, 56), (3, 3), 64, 64, pads=pads)
    for arch in packing.PANEL:
        assert large.kernels(arch) == ["wino4_f32"]
        assert large.kernels(arch, winograd=False) == ["conv_f32"]
    for other in (
        Case((56, 56), (3, 3), 64, 64, pads=pads, strides=(2, 2)),
        Case((56, 56), (3, 3), 64, 64, pads=pads, dilations=(2, 2)),
        Case((56, 56), (3, 3), 64, 64, pads=pads, group=2),
        Case((56, 56), (5, 5), 64, 64, pads=pads),
        Case((56, 56), (3, 3), 4, 64, pads=pads),
        Case((2, 2), (3, 3), 64, 64, pads=pads),
    ):
        assert other.kernels() == ["conv_f32"]


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("act", EPILOGUES, ids=lambda e: f"{e[0]}-{e[2]}")
@pytest.mark.parametrize("res", ["none", "before", "after"])
def test_epilogues(level: str, act: tuple[str, float, float], res: str) -> None:
    """Every activation with every residual, dense, strided and over its residual, in every kernel."""
    for group, kernel, outputs in ((1, (1, 1), 20), (1, (3, 3), 35), (2, (3, 3), 38), (20, (3, 3), 20)):
        channels = 20
        case = Case((5, 6), kernel, channels, outputs, group=group, batch=2, act=act, res=res, pads=(1, 1, 1, 1))
        case.check(level)
        case.check(level, apart=5, threads=False)
        case.check(level, in_place=True)
        case.check(level, apart=3, in_place=True)
    wino = Case((8, 7), (3, 3), 9, 19, act=act, res=res, pads=(1, 1, 1, 1))
    wino.check(level, options={"winograd": 2}, in_place=True, apart=2)
    Case((3, 4, 2), (2, 1, 2), 3, 5, act=act, res=res).check(level, in_place=True)


def test_every_activation_is_tested() -> None:
    assert {name for name, _, _ in EPILOGUES} == set(ACTIVATIONS)


@pytest.mark.parametrize("level", levels())
def test_one_slope_for_all_channels(level: str) -> None:
    for outputs, group in ((20, 1), (8, 8)):
        case = Case((5, 6), (3, 3), 8, outputs, group=group, act=("prelu", 0, 0))
        case.inputs[4] = case.inputs[4][:1]
        case.check(level)


@pytest.mark.parametrize("level", levels())
def test_special_values_reach_the_output(level: str) -> None:
    """NaN stays NaN through every activation; infinities follow NumPy; padding does not spread them."""
    for act in EPILOGUES:
        for group, kernel in ((1, (1, 1)), (1, (3, 3)), (20, (3, 3))):
            case = Case((6, 7), kernel, 20, 20, group=group, act=act, pads=(1, 1, 1, 1))
            case.inputs[0][0, 2, 3, 1:5] = [np.nan, np.inf, -np.inf, 1e30]
            with np.errstate(all="ignore"):
                expected = find("conv")(*case.inputs, **case.attrs)
            (actual,) = run_op("conv", case.inputs, case.attrs, constant=(1, 2, 4), level=level)
            if act[0] in ("silu", "hardswish", "gelu", "gelu_tanh"):
                # The limit at minus infinity is 0 times infinity.
                expected = np.where(np.isnan(expected) & ~np.isnan(actual), 0, expected)
                actual = np.where(np.isneginf(actual), 0, actual)
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5, err_msg=str(act))


@pytest.mark.parametrize("level", levels())
def test_sizes_of_zero(level: str) -> None:
    Case((0, 5), (1, 1), 3, 4).check(level)
    Case((4, 5), (1, 1), 3, 4, batch=0).check(level)
    Case((4, 5), (1, 1), 0, 20).check(level)
    Case((4, 5), (3, 3), 0, 20, pads=(1, 1, 1, 1), act=("sigmoid", 0, 0)).check(level)
    Case((0, 5), (3, 3), 8, 8, group=8, pads=(1, 1, 1, 1)).check(level)


def test_symbolic_sizes() -> None:
    """Batch and image size bound at run time; scratch is planned for the largest."""
    for kernel, group in (((1, 1), 1), ((3, 3), 1), ((3, 3), 8)):
        case = Case((6, 9), kernel, 8, 8, group=group, batch=2, pads=(1, 1, 1, 1), act=("clamp", 0, 6))
        graph, values = Graph(), {"n": 2, "h": 6, "w": 9}
        graph.symbols |= {"n": (0, 4), "h": (1, 20), "w": (1, 20)}
        types = [TensorType(DType.F32, (symbol("n"), symbol("h"), symbol("w"), 8))]
        types += [TensorType(DType.F32, a.shape, a) for a in case.inputs[1:3]]
        (y,) = infer("conv", types, {**case.attrs})
        for k, t in enumerate(types):
            graph.add_tensor(f"in{k}", t.dtype, t.shape, t.value)
        graph.add_tensor("y", DType.F32, y.shape)
        graph.nodes.append(Node("conv", ["in0", "in1", "in2"], ["y"], case.attrs, "conv"))
        graph.outputs = ["y"]
        (actual,) = run_graph(graph, {"in0": case.inputs[0]}, values)
        np.testing.assert_allclose(actual, find("conv")(*case.inputs, **case.attrs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", levels())
def test_computed_weights_and_biases(level: str) -> None:
    for group in (1, 2):
        case = Case((6, 7), (3, 3), 4, 6, group=group, pads=(1, 0, 2, 1), act=("clamp", 0, 6))
        expected = find("conv")(*case.inputs, **case.attrs)
        for constant in ((), (1,), (2,)):
            (actual,) = run_op("conv", case.inputs, case.attrs, constant=constant, level=level)
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", levels())
def test_transposed(level: str) -> None:
    rng = np.random.default_rng(1)
    for n, kernel in ((2, (3, 3)), (2, (2, 4)), (1, (5,)), (2, (1, 1))):
        for stride in (1, 2, 3):
            for dilation in (1, 2):
                for group, per in ((1, 7), (2, 17), (3, 1)):
                    for pad, more in ((0, 0), (1, 0), (0, stride - 1)):
                        reach = [(5 - 1) * stride + (k - 1) * dilation + 1 - 2 * pad for k in kernel]
                        if min(reach) < 0:
                            continue
                        attrs = {
                            "strides": (stride,) * n,
                            "pads": (pad,) * (2 * n),
                            "dilations": (dilation,) * n,
                            "output_padding": (more,) * n,
                            "group": group,
                        }
                        x = rng.standard_normal((2, *[5] * n, 3 * group)).astype(np.float32)
                        w = rng.standard_normal((3 * group, *kernel, per)).astype(np.float32)
                        bias = rng.standard_normal(per * group).astype(np.float32)
                        expected = find("conv_transpose")(x, w, bias, **attrs)
                        (actual,) = run_op("conv_transpose", [x, w, bias], attrs, constant=(1, 2), level=level)
                        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("level", levels())
def test_transposed_tap_by_tap(level: str) -> None:
    """Computed weights, and three spatial dimensions."""
    rng = np.random.default_rng(3)
    for n, constant in ((1, False), (2, False), (3, False), (3, True)):
        for stride, dilation, pads, more in ((1, 1, 0, 0), (2, 1, 1, 1), (3, 2, 1, 2)):
            for group, act in ((1, "none"), (2, "clamp"), (2, "gelu"), (1, "prelu")):
                attrs: dict[str, Any] = {
                    "strides": (stride,) * n,
                    "pads": (pads, 0, pads)[:n] + (0, pads, 0)[:n],
                    "dilations": (dilation,) * n,
                    "output_padding": (more,) * n,
                    "group": group,
                }
                attrs |= {"act": act, "p0": -0.5, "p1": 0.5}
                x = rng.standard_normal((2, *(3, 4, 2)[:n], 2 * group)).astype(np.float32)
                w = rng.standard_normal((2 * group, *(3, 2, 3)[:n], 5)).astype(np.float32)
                bias = rng.standard_normal(5 * group).astype(np.float32)
                slope = bias[:1] if act == "prelu" else None
                expected = find("conv_transpose")(x, w, bias, slope, **attrs)
                weights = (1, 2) if constant else ()
                (actual,) = run_op("conv_transpose", [x, w, bias, slope], attrs, constant=weights, level=level)
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("act", EPILOGUES, ids=lambda e: f"{e[0]}-{e[2]}")
def test_transposed_epilogues(level: str, act: tuple[str, float, float]) -> None:
    rng = np.random.default_rng(2)
    attrs: dict[str, Any] = {"strides": (2, 2), "pads": (1, 0, 0, 1), "dilations": (1, 1), "output_padding": (0, 0)}
    attrs |= {"act": act[0], "p0": float(act[1]), "p1": float(act[2])}
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 4, 5, 6), (6, 3, 3, 19)))
    slope = rng.standard_normal(19).astype(np.float32) if act[0] == "prelu" else None
    for bias in (None, rng.standard_normal(19).astype(np.float32)):
        expected = find("conv_transpose")(x, w, bias, slope, **attrs)
        (actual,) = run_op("conv_transpose", [x, w, bias, slope], attrs, constant=(1, 2, 3), level=level)
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("level", REMOTE)
def test_other_architectures(level: str) -> None:
    """Tiles of 8x8 (AArch64), 6x4 (Armv7) and 4x8 rows and columns, in emulators."""
    assert shutil.which(REMOTE[level][2]), f"{REMOTE[level][2]} is not installed"
    pads = (1, 1, 1, 1)
    for pixels, outputs in ((5, 3), (6, 4), (7, 5), (8, 8), (9, 9), (15, 12), (17, 21)):
        Case((1, pixels), (1, 1), pixels, outputs, act=("clamp", 0, 6)).check(level)
    for act in EPILOGUES:
        Case((5, 6), (3, 3), 5, 11, pads=pads, act=act, res="before").check(level)
    Case((9, 8), (3, 3), 3, 13, strides=(2, 2), pads=(0, 0, 1, 1)).check(level)
    Case((9, 8), (3, 3), 6, 14, group=2, dilations=(2, 2), pads=pads, res="after").check(level)
    for kernel, stride in ((3, 1), (3, 2), (5, 1), (5, 2), (2, 1)):
        Case((9, 11), (kernel, kernel), 11, 11, group=11, strides=(stride, stride), pads=pads).check(level)
    for size in ((13, 12), (7, 8)):
        for tile in (2, 4):
            Case(size, (3, 3), 9, 11, pads=pads).check(level, options={"winograd": tile})
    Case((3, 4, 5), (2, 2, 2), 3, 5).check(level)


@pytest.mark.parametrize("op", ["conv", "conv_transpose"])
def test_other_types_are_refused(op: str) -> None:
    x, w = np.zeros((1, 4, 4, 2), np.float64), np.zeros((2, 3, 3, 2), np.float64)
    attrs: dict[str, Any] = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1)}
    if op == "conv_transpose":
        attrs["output_padding"] = (0, 0)
    with pytest.raises(UnsupportedError, match="f64"):
        run_op(op, [x, w], attrs, constant=(1,))
