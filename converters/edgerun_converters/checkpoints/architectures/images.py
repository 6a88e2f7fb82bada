"""Layers that image classifiers share, channels last, sized by the tensors themselves."""

from __future__ import annotations

import itertools

import numpy as np

from edgerun.dtypes import DType
from edgerun_converters.checkpoints.checkpoint import Checkpoint
from edgerun_converters.checkpoints.weights import Weights
from edgerun_converters.onnx.builder import Builder


class ImageNet:
    """Convolutions, normalisations and heads by tensor name; x is [N, H, W, C] throughout."""

    def __init__(self, checkpoint: Checkpoint, builder: Builder, epsilon: float = 1e-5) -> None:
        self.b = builder
        self.epsilon = epsilon
        self.w = Weights(checkpoint, builder)
        self.w.ignore("num_batches_tracked")

    def count(self, prefix: str) -> int:
        """How many layers prefix + 0, prefix + 1, ... there are, whichever tensors they have."""
        found = {name[len(prefix) :].split(".")[0] for name in self.w.tensors if name.startswith(prefix)}
        return next(i for i in itertools.count() if str(i) not in found)

    def convolution(self, x: str, name: str, *, stride: int = 1, norm: str = "") -> str:
        """A convolution padded to keep the size (odd kernels), then the normalisation `norm`, or else a bias.

        Groups follow from channels and filter depth.
        """
        channels = int(self.b.shape(x)[-1])
        shape = self.w.shape(f"{name}.weight", (*self.w.shape(f"{norm or name}.bias", (channels,)), channels, 1, 1))
        outputs, group = shape[0], max(1, channels // max(1, shape[1]))
        wanted = (outputs, channels // group, *shape[2:])
        filters = np.ascontiguousarray(self.w.array(f"{name}.weight", wanted).transpose(0, 2, 3, 1))
        inputs = [x, self.b.const(filters, DType.F32, f"{name}.weight")]
        if not norm:
            inputs.append(self.w.take(f"{name}.bias", (outputs,)))
        half = (shape[2] // 2, shape[3] // 2)
        y = self.b.one(
            "conv", inputs, strides=(stride, stride), pads=(*half, *half), dilations=(1, 1), group=group,
        )  # fmt: skip
        return self.batch_norm(y, norm) if norm else y

    def batch_norm(self, x: str, name: str) -> str:
        """The affine map of a batch normalisation at inference; computed in f64."""
        channels = (int(self.b.shape(x)[-1]),)
        weight, bias, mean, variance = (
            self.w.array(f"{name}.{part}", channels).astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        scale = weight / np.sqrt(variance + self.epsilon)
        y = self.b.scalar("mul", x, self.b.const(scale, DType.F32, f"{name}.scale"))
        return self.b.scalar("add", y, self.b.const(bias - mean * scale, DType.F32, f"{name}.shift"))

    def relu(self, x: str) -> str:
        return self.b.scalar("max", x, self.b.fill(x, 0.0))

    def relu6(self, x: str) -> str:
        return self.b.scalar("min", self.relu(x), self.b.fill(x, 6.0))

    def hard_sigmoid(self, x: str) -> str:
        """clamp(x + 3, 0, 6) / 6"""
        y = self.relu6(self.b.scalar("add", x, self.b.fill(x, 3.0)))
        return self.b.scalar("div", y, self.b.fill(x, 6.0))

    def hard_swish(self, x: str) -> str:
        """x clamp(x + 3, 0, 6) / 6"""
        return self.b.scalar("mul", x, self.hard_sigmoid(x))

    def average(self, x: str, keepdims: bool = False) -> str:
        """The mean over the image: [N, C], or [N, 1, 1, C]."""
        return self.b.one("reduce", [x], kind="mean", over=(1, 2), keepdims=keepdims)

    def classifier(self, x: str, name: str) -> str:
        """A linear layer of [N, C]."""
        outputs = self.w.shape(f"{name}.bias", (1,))[0]
        inputs = int(self.b.shape(x)[-1])
        matrix = self.w.take(f"{name}.weight", (outputs, inputs), transposed=True)
        return self.b.one("matmul", [x, matrix, self.w.take(f"{name}.bias", (outputs,))])
