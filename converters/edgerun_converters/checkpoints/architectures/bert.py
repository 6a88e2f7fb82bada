"""BERT and its relatives (MiniLM, sentence transformers, DistilBERT): encoder with learned positions, post-norm.

Devlin et al. 2018 (arXiv 1810.04805), Sanh et al. 2019 (arXiv 1910.01108). Inputs input_ids, attention_mask and (not
DistilBERT) token_type_ids [N, T]; output last_hidden [N, T, H], before it for sentence transformers with mean pooling
sentence_embedding [N, H], for sequence classifiers logits [N, labels]. Heads of masked language models are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgerun.dtypes import DType
from edgerun.errors import ImportFailure
from edgerun_converters.checkpoints.architectures.transformer import Layers
from edgerun_converters.checkpoints.checkpoint import Checkpoint, add_input, add_output, architecture, read_json
from edgerun_converters.checkpoints.weights import Weights
from edgerun_converters.onnx.builder import Builder


@dataclass(frozen=True)
class Names:
    """Tensor names of one encoder layer, after the name of the layer."""

    layer: str
    query: str
    key: str
    value: str
    mixed: str
    mixed_norm: str
    inner: str
    outer: str
    outer_norm: str


BERT = Names(
    "encoder.layer", "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
    "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm",
)  # fmt: skip
DISTIL = Names(
    "transformer.layer", "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm",
    "ffn.lin1", "ffn.lin2", "output_layer_norm",
)  # fmt: skip


@architecture("bert")
def bert(c: Checkpoint, b: Builder) -> None:
    """BERT and MiniLM; see the module docstring."""
    c.choice("position_embedding_type", "absolute", ("absolute",))
    w = Weights(c, b, ("bert.", "model."))
    hidden = c.number("hidden_size")
    net = Layers.from_config(c, w, b)
    x, mask = _encode(c, net, BERT, c.layers("num_hidden_layers"), types=c.number("type_vocab_size", 2))
    w.ignore("position_ids")
    w.skip("pooler.", "cls.")
    if "classifier.weight" in c.tensors:
        pooled = b.scalar("tanh", net.linear(net.step(x, 0), "pooler.dense", hidden, hidden))
        _classify(net, pooled)
    w.finish("BERT with this configuration")
    if _mean_pooling(c.origin):
        _sentence_embedding(b, x, mask)
    add_output(b, "last_hidden", x)


@architecture("distilbert")
def distilbert(c: Checkpoint, b: Builder) -> None:
    """DistilBERT: no token types, its own tensor names."""
    w = Weights(c, b, ("distilbert.",))
    hidden = c.number("dim")
    net = Layers(b, w, hidden, c.number("n_heads"), c.number("hidden_dim"),
                 c.choice("activation", "gelu", ("gelu", "relu")), 1e-12)  # fmt: skip
    x, mask = _encode(c, net, DISTIL, c.layers("n_layers"), types=0)
    w.skip("vocab_")
    if "classifier.weight" in c.tensors:
        w.prefix = ""
        pooled = net.linear(net.step(x, 0), "pre_classifier", hidden, hidden)
        _classify(net, b.scalar("max", pooled, b.fill(pooled, 0.0)))
    w.finish("DistilBERT with this configuration")
    if _mean_pooling(c.origin):
        _sentence_embedding(b, x, mask)
    add_output(b, "last_hidden", x)


def _encode(c: Checkpoint, net: Layers, names: Names, layers: int, *, types: int) -> tuple[str, str]:
    """Embeddings and all layers: (hidden states [N, T, H], the mask [N, T])."""
    b, w, hidden = net.b, net.w, net.hidden
    vocabulary, positions = c.number("vocab_size"), c.number("max_position_embeddings")
    ids = add_input(b, "input_ids", DType.I64, ("N", "T"))
    mask = add_input(b, "attention_mask", DType.I64, ("N", "T"))
    n, t = b.shape(ids)
    b.graph.symbols["T"] = (1, positions)
    b.node_name = "embeddings"
    x = b.one("gather", [w.take("embeddings.word_embeddings.weight", (vocabulary, hidden)), ids], axis=0)
    if types:
        kinds = add_input(b, "token_type_ids", DType.I64, ("N", "T"))
        table = w.take("embeddings.token_type_embeddings.weight", (types, hidden))
        x = b.scalar("add", x, b.one("gather", [table, kinds], axis=0))
    table = w.take("embeddings.position_embeddings.weight", (positions, hidden))
    x = net.norm(b.scalar("add", x, b.one("slice", [table], ranges=((0, 0, t, 1),))), "embeddings.LayerNorm")
    allowed = b.reshape(b.scalar("ne", mask, b.const(np.array(0, np.int64))), (n, 1, 1, t))
    for i in range(layers):
        b.node_name, start = f"layer.{i}", f"{names.layer}.{i}"
        q, k, v = (net.linear(x, f"{start}.{part}", hidden, hidden) for part in (names.query, names.key, names.value))
        mixed = net.linear(net.attention(q, k, v, allowed), f"{start}.{names.mixed}", hidden, hidden)
        x = net.norm(b.scalar("add", mixed, x), f"{start}.{names.mixed_norm}")
        y = net.feed_forward(x, f"{start}.{names.inner}", f"{start}.{names.outer}")
        x = net.norm(b.scalar("add", y, x), f"{start}.{names.outer_norm}")
    b.node_name = "output"
    return x, mask


def _classify(net: Layers, pooled: str) -> None:
    net.w.prefix = ""
    labels = net.w.shape("classifier.bias", (1,))[0]
    add_output(net.b, "logits", net.linear(pooled, "classifier", net.hidden, labels))


def _mean_pooling(origin: Path) -> bool:
    """Whether the folder is a sentence transformer that averages its tokens. Raises ImportFailure for other pooling."""
    path = origin / "1_Pooling" / "config.json"
    if not path.exists():
        return False
    config = read_json(path)
    if config.get("pooling_mode_mean_tokens") is True or config.get("pooling_mode") == "mean":
        return True
    raise ImportFailure(f"{path}: only the mean over tokens is known as pooling", hint="remove the folder 1_Pooling")


def _sentence_embedding(b: Builder, x: str, mask: str) -> None:
    """Mean over the tokens that count, scaled to unit length."""
    n, t = b.shape(mask)
    weights = b.reshape(b.cast(mask, DType.F32), (n, t, 1))
    total = b.one("reduce", [b.scalar("mul", x, weights)], kind="sum", over=(1,), keepdims=False)
    count = b.one("reduce", [weights], kind="sum", over=(1,), keepdims=False)
    mean = b.scalar("div", total, b.scalar("max", count, b.const(np.array(1e-9, np.float32))))
    length = b.one("reduce", [mean], kind="l2", over=(1,), keepdims=True)
    unit = b.scalar("div", mean, b.scalar("max", length, b.const(np.array(1e-12, np.float32))))
    add_output(b, "sentence_embedding", unit)
