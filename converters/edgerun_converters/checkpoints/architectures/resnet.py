"""ResNet, ResNeXt and Wide ResNet with the tensor names of torchvision and timm (they agree).

He et al. 2015 (arXiv 1512.03385), with the stride on the 3x3 convolution of bottlenecks as both libraries have it.
Input image [N, 3, H, W], normalised as in training; output logits [N, classes]. Depths, widths and groups follow from
the tensors.
"""

from __future__ import annotations

from edgerun.dtypes import DType
from edgerun.errors import ImportFailure
from edgerun_converters.checkpoints.architectures.images import ImageNet
from edgerun_converters.checkpoints.checkpoint import Checkpoint, add_input, add_output, architecture
from edgerun_converters.onnx.builder import Builder


@architecture(names=("conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "fc.weight"))
def resnet(c: Checkpoint, b: Builder) -> None:
    """Build the classifier; see the module docstring."""
    net = ImageNet(c, b)
    image = add_input(b, "image", DType.F32, ("N", 3, "H", "W"))
    x = net.relu(net.convolution(b.to_channels_last(image), "conv1", stride=2, norm="bn1"))
    x = b.one(
        "pool", [x], kind="max", kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1),
    )  # fmt: skip
    for stage in range(1, 5):
        blocks = net.count(f"layer{stage}.")
        if not blocks:
            raise ImportFailure(f"{c.origin}: stage layer{stage} of the ResNet has no blocks")
        for i in range(blocks):
            b.node_name = f"layer{stage}.{i}"
            x = _block(net, x, b.node_name, 2 if stage > 1 and i == 0 else 1)
    b.node_name = "head"
    logits = net.classifier(net.average(x), "fc")
    net.w.finish("a ResNet")
    add_output(b, "logits", logits)


def _block(net: ImageNet, x: str, name: str, stride: int) -> str:
    """A basic block (two 3x3 convolutions) or a bottleneck (1x1, 3x3, 1x1), by whether there is a third one."""
    bottleneck = net.w.has(f"{name}.conv3.weight")
    shortcut = x
    if net.w.has(f"{name}.downsample.0.weight"):
        shortcut = net.convolution(x, f"{name}.downsample.0", stride=stride, norm=f"{name}.downsample.1")
    y = net.relu(net.convolution(x, f"{name}.conv1", stride=1 if bottleneck else stride, norm=f"{name}.bn1"))
    y = net.convolution(y, f"{name}.conv2", stride=stride if bottleneck else 1, norm=f"{name}.bn2")
    if bottleneck:
        y = net.convolution(net.relu(y), f"{name}.conv3", norm=f"{name}.bn3")
    return net.relu(net.b.scalar("add", y, shortcut))
