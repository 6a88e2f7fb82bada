"""Which 3x3 convolutions run as Winograd's: a model of time, and a limit on what the transformed weights may add.

F(m x m, 3x3) multiplies (m + 2)^2 times for m^2 outputs where the direct form needs 9 m^2, but stores its weights
(m + 2)^2 / 9 times as large: 4 times for m = 4, 1.8 times for m = 2 (Lavin and Gray 2015, arXiv 1509.09308). The whole
model's weights may grow by GROWTH; layers get their share in the order of time saved per byte added.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from edgerun.backends.native import packing
from edgerun.backends.native.lowering import Lowering
from edgerun.dims import Dim
from edgerun.dtypes import DType
from edgerun.graph import Node

GROWTH = 0.05
"""How much the weights of a model may grow, relative to all of its weights: files stay small, and the layers of large
images, which gain most, have the smallest weights."""
GAIN = 0.85
"""A form is worth it when it takes at most this part of the direct form's time."""
ROWS = 8
"""A product of fewer rows takes as long as one of so many."""
SCRATCH = (2 << 20, 4)
"""Scratch stays below so many bytes, or so many times the layer's input and output."""


@dataclass(frozen=True, slots=True)
class _Machine:
    """Rates of one core of a typical CPU of an architecture; only their ratios matter."""

    flops: float
    near: float
    """Bytes a second in the second-level cache."""
    far: float
    """Bytes a second beyond it."""
    cache: int
    """Bytes of weights that stay near from one use to the next."""


_TYPES = (DType.F32, DType.F16, DType.BF16)
_MACHINES = {
    "x86_64": _Machine(200e9, 60e9, 25e9, 1 << 20),
    "aarch64": _Machine(12e9, 6e9, 4e9, 1 << 18),
    "armv7": _Machine(4e9, 2e9, 1.5e9, 1 << 18),
    "riscv64": _Machine(2e9, 2e9, 2e9, 1 << 18),
    "wasm32": _Machine(20e9, 10e9, 10e9, 1 << 18),
}


@dataclass(frozen=True, slots=True)
class Layer:
    """A 3x3 convolution of stride 1: image size of its output, channels."""

    height: int
    width: int
    inputs: int
    outputs: int

    def tiles(self, m: int) -> int:
        """Tiles of m x m outputs."""
        return -(-self.height // m) * -(-self.width // m)

    def weight_bytes(self, m: int, arch: str) -> int:
        """Packed weights of the form m; 0 is the direct one."""
        taps, columns = 9 if m == 0 else (m + 2) ** 2, packing.padded_columns(self.outputs, arch)
        return taps * self.inputs * columns * 4

    def scratch(self, m: int) -> int:
        """Bytes of scratch for transformed inputs and outputs of a block of tiles."""
        channels = self.inputs + self.outputs
        return (m + 2) ** 2 * packing.winograd_block(self.tiles(m), m, self.inputs, self.outputs) * channels * 4

    def seconds(self, m: int, arch: str) -> float:
        """Predicted time of form m on one core of `arch`."""
        machine = _MACHINES[arch]
        rows = self.height * self.width if m == 0 else self.tiles(m)
        positions = (9 if m == 0 else (m + 2) ** 2) * max(rows, ROWS)
        compute = 2 * positions * self.inputs * self.outputs / machine.flops
        weights = self.weight_bytes(m, arch)
        fetch = weights / machine.far if weights > machine.cache else 0.0
        if m == 0:
            return max(compute, fetch)
        transforms = 2 * positions * (self.inputs + self.outputs) * 4 / machine.near
        return max(compute / GAIN, fetch) + transforms

    def worthwhile(self, m: int, arch: str) -> bool:
        """Whether form m is clearly faster and its scratch bearable."""
        least, share = SCRATCH
        pixels = self.height * self.width
        scratch_limit = max(least, share * pixels * (self.inputs + self.outputs) * 4)
        return self.seconds(m, arch) <= GAIN * self.seconds(0, arch) and self.scratch(m) <= scratch_limit


def layer_of(node: Node, cx: Lowering) -> Layer | None:
    """The layer when `node` has the geometry for Winograd's algorithm and a known size, else None."""
    weight, a = cx.constant(node.inputs[1]), node.attrs
    if node.op != "conv" or weight is None or weight.ndim != 4 or weight.shape[1:3] != (3, 3):
        return None
    if set(a["strides"]) | set(a["dilations"]) != {1} or a.get("group", 1) != 1 or weight.shape[-1] < 8:
        return None
    height, width = cx.shape(node.outputs[0])[1:3]
    if isinstance(height, Dim) or isinstance(width, Dim) or height < 1 or width < 1:
        return None
    return Layer(height, width, weight.shape[-1], weight.shape[0])


def choose(node: Node, cx: Lowering) -> int:
    """The form of a convolution: 4, 2, or 0 for the direct one.

    Option `winograd`: False never, True wherever it is faster, 2 or 4 this form wherever it fits; by default as far as
    the limit on weights allows.
    """
    option = cx.options.get("winograd")
    layer = layer_of(node, cx)
    if layer is None or option is False:
        return 0
    if option is not None and option is not True:
        return int(str(option))
    if option:
        return min((0, *forms(layer, cx.arch)), key=lambda m: layer.seconds(m, cx.arch))
    if "winograd" not in cx.shared:
        cx.shared["winograd"] = _allot(cx)
    chosen = cx.shared["winograd"]
    assert isinstance(chosen, dict)
    return int(chosen.get(node.name, 0))


def forms(layer: Layer, arch: str) -> list[int]:
    """The forms that pay, if weights may grow."""
    return [m for m in (4, 2) if layer.worthwhile(m, arch)]


def _padding(node: Node, cx: Lowering) -> float:
    """Bytes that packing adds to the weights of a convolution by filling panels up."""
    weight = cx.constant(node.inputs[1]) if node.op == "conv" else None
    if weight is None or weight.size == 0 or weight.shape[-1] == 1:
        return 0
    outputs = weight.shape[0] // node.attrs.get("group", 1)
    return weight.nbytes * (packing.padded_columns(outputs, cx.arch) / outputs - 1)


def _allot(cx: Lowering) -> dict[str, int]:
    """Node name -> form, over the whole graph: the best ratio of time saved to bytes added first, while they fit."""
    names = Counter(n.name for n in cx.graph.nodes)
    layers = {}
    for node in cx.graph.nodes:
        if node.op == "conv" and names[node.name] == 1 and cx.dtype(node.outputs[0]) in _TYPES:
            layer = layer_of(node, cx)
            if layer is not None:
                layers[node.name] = layer
    total = sum(t.data.nbytes for t in cx.graph.tensors.values() if t.data is not None)
    room = GROWTH * total - sum(_padding(node, cx) for node in cx.graph.nodes)
    chosen: dict[str, int] = {}
    while True:
        steps = []
        for name, layer in layers.items():
            now = chosen.get(name, 0)
            for m in forms(layer, cx.arch):
                added = layer.weight_bytes(m, cx.arch) - layer.weight_bytes(now, cx.arch)
                saved = layer.seconds(now, cx.arch) - layer.seconds(m, cx.arch)
                if m != now and saved > 0 and 0 < added <= room:
                    steps.append((saved / added, name, m, added))
        if not steps:
            return chosen
        _, name, m, added = max(steps)
        chosen[name] = m
        room -= added
