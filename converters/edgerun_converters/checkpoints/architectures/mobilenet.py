"""MobileNetV2 and V3 (any width) with the tensor names of torchvision and timm.

Sandler et al. 2018 (arXiv 1801.04381), Howard et al. 2019 (arXiv 1905.02244). Input image [N, 3, H, W], normalised as
in training; output logits [N, classes]. Channels follow from the tensors; strides and activations do not, so they are
those of the published tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun_converters.checkpoints.architectures.images import ImageNet
from edgerun_converters.checkpoints.checkpoint import Checkpoint, add_input, add_output, architecture
from edgerun_converters.onnx.builder import Builder

V2 = tuple((stride if i == 0 else 1, "relu6")
           for blocks, stride in ((1, 1), (2, 2), (3, 2), (4, 2), (3, 1), (3, 2), (1, 1))
           for i in range(blocks))  # fmt: skip
V3_LARGE = tuple((stride, "relu" if i < 6 else "swish")
                 for i, stride in enumerate((1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1)))  # fmt: skip
V3_SMALL = tuple((stride, "relu" if i < 3 else "swish")
                 for i, stride in enumerate((2, 2, 1, 2, 1, 1, 1, 1, 2, 1, 1)))  # fmt: skip
"""(stride, activation) of each block: table 2 of the first paper, tables 1 and 2 of the second."""

Pair = tuple[str, str]
"""A convolution and its normalisation."""


@dataclass(frozen=True)
class Block:
    """Tensor names of an inverted residual block; None where it has no such layer."""

    expand: Pair | None
    depthwise: Pair
    squeeze: Pair | None
    """The two convolutions of squeeze and excitation."""
    project: Pair


@architecture(names=("features.0.0.weight", "features.1.conv.0.0.weight", "classifier.1.weight"))
def mobilenet_v2(c: Checkpoint, b: Builder) -> None:
    """MobileNetV2 as torchvision names it."""
    net = ImageNet(c, b)
    x = _stem(net, ("features.0.0", "features.0.1"), "relu6")
    x = _body(net, x, V2, [_v2_block(net, f"features.{i + 1}.conv") for i in range(len(V2))])
    x = net.average(_unit(net, x, ("features.18.0", "features.18.1"), "relu6"))
    _finish(net, net.classifier(x, "classifier.1"), "a MobileNetV2")


def _v2_block(net: ImageNet, start: str) -> Block:
    if net.w.has(f"{start}.3.weight"):
        return Block((f"{start}.0.0", f"{start}.0.1"), (f"{start}.1.0", f"{start}.1.1"), None,
                     (f"{start}.2", f"{start}.3"))  # fmt: skip
    return Block(None, (f"{start}.0.0", f"{start}.0.1"), None, (f"{start}.1", f"{start}.2"))


@architecture(names=("features.0.0.weight", "features.1.block.0.0.weight", "classifier.3.weight"))
def mobilenet_v3(c: Checkpoint, b: Builder) -> None:
    """MobileNetV3 as torchvision names it; its normalisations have an epsilon of 0.001."""
    net = ImageNet(c, b, epsilon=1e-3)
    last = net.count("features.") - 1
    rows = _version_3(c, last - 1)
    x = _stem(net, ("features.0.0", "features.0.1"), "swish")
    x = _body(net, x, rows, [_v3_block(net, f"features.{i + 1}.block") for i in range(len(rows))])
    x = net.average(_unit(net, x, (f"features.{last}.0", f"features.{last}.1"), "swish"))
    x = net.hard_swish(net.classifier(x, "classifier.0"))
    _finish(net, net.classifier(x, "classifier.3"), "a MobileNetV3")


def _v3_block(net: ImageNet, start: str) -> Block:
    units = iter(range(5))

    def pair() -> Pair:
        i = next(units)
        return f"{start}.{i}.0", f"{start}.{i}.1"

    def depth(i: int) -> int:
        return net.w.shape(f"{start}.{i}.0.weight", (1, 1, 1, 1))[1]

    expand = pair() if depth(0) > 1 else None
    depthwise, squeeze = pair(), None
    if net.w.has(f"{start}.{2 if expand else 1}.fc1.weight"):
        i = next(units)
        squeeze = (f"{start}.{i}.fc1", f"{start}.{i}.fc2")
    return Block(expand, depthwise, squeeze, pair())


@architecture(names=("conv_stem.weight", "bn1.running_mean", "blocks.0.0.conv_dw.weight", "classifier.weight"))
def mobilenet(c: Checkpoint, b: Builder) -> None:
    """MobileNetV2 and V3 as timm names them: V3 has a bias on its last convolution, which comes after the pooling."""
    net = ImageNet(c, b)
    starts = [f"blocks.{s}.{i}" for s, i in _timm_blocks(net)]
    third = net.w.has("conv_head.bias")
    rows = _version_3(c, len(starts)) if third else V2
    if len(rows) != len(starts):
        raise UnsupportedError(f"{c.origin}: a MobileNetV2 of {len(starts)} blocks instead of {len(rows)}")
    x = _stem(net, ("conv_stem", "bn1"), rows[-1][1])
    x = _body(net, x, rows, [_timm_block(net, s) for s in starts])
    if third:
        last = f"blocks.{net.count('blocks.') - 1}.0"
        x = net.average(_unit(net, x, (f"{last}.conv", f"{last}.bn1"), "swish"), keepdims=True)
        x = net.hard_swish(net.convolution(x, "conv_head"))
        x = b.reshape(x, (b.shape(x)[0], b.shape(x)[3]))
    else:
        x = net.average(_unit(net, x, ("conv_head", "bn2"), "relu6"))
    _finish(net, net.classifier(x, "classifier"), "a MobileNet")


def _timm_blocks(net: ImageNet) -> Iterator[tuple[int, int]]:
    """(stage, number) of each inverted residual block; the last stage of a V3 is a plain convolution."""
    for stage in range(net.count("blocks.") - net.w.has("conv_head.bias")):
        for i in range(net.count(f"blocks.{stage}.")):
            yield stage, i


def _timm_block(net: ImageNet, start: str) -> Block:
    squeeze = (f"{start}.se.conv_reduce", f"{start}.se.conv_expand")
    has_squeeze = net.w.has(f"{squeeze[0]}.weight")
    if net.w.has(f"{start}.conv_pwl.weight"):
        return Block((f"{start}.conv_pw", f"{start}.bn1"), (f"{start}.conv_dw", f"{start}.bn2"),
                     squeeze if has_squeeze else None, (f"{start}.conv_pwl", f"{start}.bn3"))  # fmt: skip
    return Block(None, (f"{start}.conv_dw", f"{start}.bn1"), squeeze if has_squeeze else None,
                 (f"{start}.conv_pw", f"{start}.bn2"))  # fmt: skip


# -- the network


def _version_3(c: Checkpoint, blocks: int) -> Sequence[tuple[int, str]]:
    for rows in (V3_LARGE, V3_SMALL):
        if len(rows) == blocks:
            return rows
    raise UnsupportedError(f"{c.origin}: a MobileNetV3 of {blocks} blocks; those of 15 and 11 are known")


def _unit(net: ImageNet, x: str, names: Pair, activation: str, stride: int = 1) -> str:
    """Convolution, normalisation, activation."""
    y = net.convolution(x, names[0], stride=stride, norm=names[1])
    return {"relu6": net.relu6, "relu": net.relu, "swish": net.hard_swish}[activation](y) if activation else y


def _stem(net: ImageNet, names: Pair, activation: str) -> str:
    image = add_input(net.b, "image", DType.F32, ("N", 3, "H", "W"))
    return _unit(net, net.b.to_channels_last(image), names, activation, stride=2)


def _body(net: ImageNet, x: str, rows: Sequence[tuple[int, str]], blocks: Sequence[Block]) -> str:
    for i, ((stride, activation), block) in enumerate(zip(rows, blocks, strict=True)):
        net.b.node_name = f"block.{i}"
        y = _unit(net, x, block.expand, activation) if block.expand else x
        y = _unit(net, y, block.depthwise, activation, stride)
        if block.squeeze:
            y = _squeeze(net, y, block.squeeze)
        y = _unit(net, y, block.project, "")
        x = net.b.scalar("add", x, y) if stride == 1 and net.b.shape(x) == net.b.shape(y) else y
    net.b.node_name = "head"
    return x


def _squeeze(net: ImageNet, x: str, names: Pair) -> str:
    """Squeeze and excitation: channels scaled by a small network of their means."""
    y = net.relu(net.convolution(net.average(x, keepdims=True), names[0]))
    return net.b.scalar("mul", x, net.hard_sigmoid(net.convolution(y, names[1])))


def _finish(net: ImageNet, logits: str, what: str) -> None:
    net.w.finish(what)
    add_output(net.b, "logits", logits)
