"""Vision transformers (ViT, DeiT) with the tensor names of Hugging Face (with config.json) and of timm (without).

Dosovitskiy et al. 2020 (arXiv 2010.11929), Touvron et al. 2020 (arXiv 2012.12877). Input image [N, 3, S, S], normalised
as in training; output logits [N, classes], or last_hidden [N, 1 + patches, H] of a model without classifier.
"""

from __future__ import annotations

import numpy as np

from edgerun.dtypes import DType
from edgerun.errors import ImportFailure
from edgerun_converters.checkpoints.architectures.transformer import Layers
from edgerun_converters.checkpoints.checkpoint import Checkpoint, add_input, add_output, architecture
from edgerun_converters.checkpoints.weights import Weights
from edgerun_converters.onnx.builder import Builder

TIMM_HEAD = 64
"""Features of a head in every ViT and DeiT of timm; a state dict does not tell."""


@architecture("vit", "deit")
def vit(c: Checkpoint, b: Builder) -> None:
    """Hugging Face's ViT, DeiT and distilled DeiT (whose two classifiers are averaged)."""
    w = Weights(c, b, ("vit.", "deit."))
    hidden, size, patch = c.number("hidden_size"), c.number("image_size", 224), c.number("patch_size", 16)
    net = Layers.from_config(c, w, b)
    tokens = ["embeddings.cls_token"] + ["embeddings.distillation_token"] * w.has("embeddings.distillation_token")
    x = _patches(net, "embeddings.patch_embeddings.projection", tokens, "embeddings.position_embeddings", size, patch,
                 c.number("num_channels", 3))  # fmt: skip
    biased = c.flag("qkv_bias", True)
    for i in range(c.layers("num_hidden_layers")):
        b.node_name = start = f"encoder.layer.{i}"
        y = net.norm(x, f"{start}.layernorm_before")
        q, k, v = (net.linear(y, f"{start}.attention.attention.{part}", hidden, hidden, bias=biased)
                   for part in ("query", "key", "value"))  # fmt: skip
        x = b.scalar("add", x, net.linear(net.attention(q, k, v), f"{start}.attention.output.dense", hidden, hidden))
        y = net.norm(x, f"{start}.layernorm_after")
        x = b.scalar("add", x, net.feed_forward(y, f"{start}.intermediate.dense", f"{start}.output.dense"))
    b.node_name = "head"
    x = net.norm(x, "layernorm")
    w.skip("pooler.", "embeddings.mask_token")
    w.prefix = ""
    if w.has("cls_classifier.weight"):
        both = [net.linear(net.step(x, i), f"{name}_classifier", hidden, w.shape(f"{name}_classifier.bias", (1,))[0])
                for i, name in enumerate(("cls", "distillation"))]  # fmt: skip
        result = b.scalar("mul", b.scalar("add", *both), b.fill(x, 0.5))
    elif w.has("classifier.weight"):
        result = net.linear(net.step(x, 0), "classifier", hidden, w.shape("classifier.bias", (1,))[0])
    else:
        result = ""
    w.finish("a ViT with this configuration")
    add_output(b, "logits" if result else "last_hidden", result or x)


@architecture(names=("cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight"))
def vit_timm(c: Checkpoint, b: Builder) -> None:
    """timm's ViT and DeiT: every size follows from the tensors, except that heads have 64 features."""
    w = Weights(c, b)
    hidden, channels, patch, _ = w.shape("patch_embed.proj.weight", (TIMM_HEAD, 3, 16, 16))
    tokens = ["cls_token"] + ["dist_token"] * w.has("dist_token")
    side = round((w.shape("pos_embed", (1, 197, hidden))[1] - len(tokens)) ** 0.5)
    inner = w.shape("blocks.0.mlp.fc1.bias", (4 * hidden,))[0]
    if hidden % TIMM_HEAD:
        raise ImportFailure(f"{c.origin}: a ViT of {hidden} features has no heads of {TIMM_HEAD}")
    net = Layers(b, w, hidden, hidden // TIMM_HEAD, inner, "gelu", 1e-6)
    x = _patches(net, "patch_embed.proj", tokens, "pos_embed", side * patch, patch, channels)
    layers = next(i for i in range(len(w.tensors)) if not w.has(f"blocks.{i}.norm1.weight"))
    for i in range(layers):
        b.node_name = start = f"blocks.{i}"
        joined = net.linear(net.norm(x, f"{start}.norm1"), f"{start}.attn.qkv", hidden, 3 * hidden)
        q, k, v = (b.one("slice", [joined], ranges=((2, j * hidden, hidden, 1),)) for j in range(3))
        x = b.scalar("add", x, net.linear(net.attention(q, k, v), f"{start}.attn.proj", hidden, hidden))
        y = net.norm(x, f"{start}.norm2")
        x = b.scalar("add", x, net.feed_forward(y, f"{start}.mlp.fc1", f"{start}.mlp.fc2"))
    b.node_name = "head"
    x = net.norm(x, "norm")
    heads = ["head"] + ["head_dist"] * w.has("head_dist.weight")
    parts = [net.linear(net.step(x, i), name, hidden, w.shape(f"{name}.bias", (1,))[0])
             for i, name in enumerate(heads)]  # fmt: skip
    logits = parts[0] if len(parts) == 1 else b.scalar("mul", b.scalar("add", *parts), b.fill(x, 0.5))
    w.finish("a ViT")
    add_output(b, "logits", logits)


def _patches(
    net: Layers, projection: str, tokens: list[str], positions: str, size: int, patch: int, channels: int
) -> str:
    """The image in patches, after the learned tokens, with positions: [N, tokens + patches, H]."""
    b, w, hidden = net.b, net.w, net.hidden
    side = size // patch
    image = add_input(b, "image", DType.F32, ("N", channels, side * patch, side * patch))
    b.node_name = "embeddings"
    kernel = w.array(f"{projection}.weight", (hidden, channels, patch, patch))
    filters = b.const(np.ascontiguousarray(kernel.transpose(0, 2, 3, 1)), DType.F32, f"{projection}.weight")
    y = b.one(
        "conv", [b.to_channels_last(image), filters, w.take(f"{projection}.bias", (hidden,))],
        strides=(patch, patch), pads=(0, 0, 0, 0), dilations=(1, 1),
    )  # fmt: skip
    n = b.shape(y)[0]
    starts = [b.one("expand", [w.take(name, (1, 1, hidden))], to=(n, 1, hidden)) for name in tokens]
    x = b.one("concat", [*starts, b.reshape(y, (n, side * side, hidden))], axis=1)
    return b.scalar("add", x, w.take(positions, (1, len(tokens) + side * side, hidden)))
