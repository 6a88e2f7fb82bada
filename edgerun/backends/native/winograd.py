"""Which 3x3 convolutions run as Winograd's: a model of time, and a limit on scratch.

F(m x m, 3x3) multiplies (m + 2)^2 times for m^2 outputs where the direct form needs 9 m^2 (Lavin and Gray 2015, arXiv
1509.09308). The kernel transforms the weights while it runs, so that they are stored once, as the direct form's.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgerun.backends.native import packing
from edgerun.backends.native.lowering import Lowering
from edgerun.dims import Dim
from edgerun.graph import Node

GAIN = 0.9
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
    """Bytes a second that the transforms read and write."""


_MACHINES = {
    "x86_64": _Machine(200e9, 35e9),
    "aarch64": _Machine(12e9, 6e9),
    "armv7": _Machine(4e9, 2e9),
    "riscv64": _Machine(2e9, 2e9),
    "wasm32": _Machine(20e9, 10e9),
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

    def scratch(self, m: int, arch: str) -> tuple[int, int]:
        """Bytes of scratch of form m: shared, and for each thread."""
        return packing.winograd_scratch(self.tiles(m), m, self.inputs, arch)

    def seconds(self, m: int, arch: str) -> float:
        """Predicted time of form m on one core of `arch`; 0 is the direct form."""
        machine = _MACHINES[arch]
        rows = self.height * self.width if m == 0 else self.tiles(m)
        positions = 9 if m == 0 else (m + 2) ** 2
        compute = 2 * positions * max(rows, ROWS) * self.inputs * self.outputs / machine.flops
        if m == 0:
            return compute
        images = 2 * positions * rows * (self.inputs + self.outputs)
        weights = (positions + 9) * self.inputs * packing.padded_columns(self.outputs, arch)
        return compute / GAIN + (images + weights) * 4 / machine.near

    def worthwhile(self, m: int, arch: str) -> bool:
        """Whether form m is clearly faster and its scratch bearable."""
        least, share = SCRATCH
        scratch_limit = max(least, share * self.height * self.width * (self.inputs + self.outputs) * 4)
        return self.seconds(m, arch) <= GAIN * self.seconds(0, arch) and sum(self.scratch(m, arch)) <= scratch_limit


def layer_of(node: Node, cx: Lowering) -> Layer | None:
    """The layer when `node` has the geometry for Winograd's algorithm and a known size, else None."""
    weight, a = cx.constant(node.inputs[1]), node.attrs
    if weight is None or weight.ndim != 4 or weight.shape[1:3] != (3, 3):
        return None
    if set(a["strides"]) | set(a["dilations"]) != {1} or a.get("group", 1) != 1 or weight.shape[-1] < 8:
        return None
    height, width = cx.shape(node.outputs[0])[1:3]
    if isinstance(height, Dim) or isinstance(width, Dim) or height < 1 or width < 1:
        return None
    return Layer(height, width, weight.shape[-1], weight.shape[0])


def choose(layer: Layer | None, cx: Lowering) -> int:
    """The form of a convolution: 4, 2, or 0 for the direct one.

    Option `winograd`: False never, 2 or 4 this form wherever it fits; by default the fastest.
    """
    option = cx.options.get("winograd", True)
    if layer is None or option is False:
        return 0
    if option is not True:
        return int(str(option))
    forms = (0, *(m for m in (4, 2) if layer.worthwhile(m, cx.arch)))
    return min(forms, key=lambda m: layer.seconds(m, cx.arch))
