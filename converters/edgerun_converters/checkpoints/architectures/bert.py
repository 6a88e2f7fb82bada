"""BERT and its relatives (MiniLM, sentence transformers): encoder with learned positions, post-norm.

Devlin et al. 2018 (arXiv 1810.04805). Inputs input_ids, attention_mask, token_type_ids [N, T]; output last_hidden
[N, T, H], and for sentence transformers with mean pooling sentence_embedding [N, H].
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgerun.dims import DimLike
from edgerun.dtypes import DType
from edgerun.errors import ImportFailure
from edgerun_converters.checkpoints.folder import Checkpoint, add_input, add_output, architecture
from edgerun_converters.checkpoints.weights import Weights
from edgerun_converters.onnx.builder import Builder


@architecture("bert")
def bert(c: Checkpoint, b: Builder) -> None:
    """Build the encoder; see the module docstring."""
    hidden, layers = c.number("hidden_size"), c.number("num_hidden_layers")
    heads, inner = c.number("num_attention_heads"), c.number("intermediate_size")
    vocabulary, positions = c.number("vocab_size"), c.number("max_position_embeddings")
    types = c.number("type_vocab_size", 2)
    activation = c.choice("hidden_act", "gelu", ("gelu", "gelu_new", "relu"))
    c.choice("position_embedding_type", "absolute", ("absolute",))
    epsilon = c.real("layer_norm_eps", 1e-12)
    if hidden % heads:
        raise ImportFailure(f"{hidden} features do not divide into {heads} heads")
    w = Weights(c.tensors, b, ("bert.", "model."))
    ids = add_input(b, "input_ids", DType.I64, ("N", "T"))
    mask = add_input(b, "attention_mask", DType.I64, ("N", "T"))
    kinds = add_input(b, "token_type_ids", DType.I64, ("N", "T"))
    n, t = b.shape(ids)
    b.graph.symbols["T"] = (1, positions)

    def norm(x: str, name: str) -> str:
        scale, bias = w.take(f"{name}.weight", (hidden,)), w.take(f"{name}.bias", (hidden,))
        return b.emit("layer_norm", [x, scale, bias], 1, axis=2, epsilon=epsilon)[0]

    def linear(x: str, name: str, inputs: int, outputs: int) -> str:
        matrix = w.take(f"{name}.weight", (outputs, inputs), transposed=True)
        return b.one("matmul", [x, matrix, w.take(f"{name}.bias", (outputs,))])

    b.node_name = "embeddings"
    words = b.one("gather", [w.take("embeddings.word_embeddings.weight", (vocabulary, hidden)), ids], axis=0)
    table = w.take("embeddings.position_embeddings.weight", (positions, hidden))
    places = b.one("slice", [table], ranges=((0, 0, t, 1),))
    segments = b.one("gather", [w.take("embeddings.token_type_embeddings.weight", (types, hidden)), kinds], axis=0)
    x = norm(b.scalar("add", b.scalar("add", words, segments), places), "embeddings.LayerNorm")
    allowed = b.reshape(b.scalar("ne", mask, b.const(np.array(0, np.int64))), (n, 1, 1, t))
    for i in range(layers):
        b.node_name = f"layer.{i}"
        x = _layer(b, x, allowed, f"encoder.layer.{i}", linear, norm, (n, t, heads, hidden, inner), activation)
    w.ignore("position_ids")
    w.used.update(k for k in c.tensors if k.startswith((w.prefix + "pooler.", "cls.")))
    w.finish("BERT with this configuration")
    b.node_name = "output"
    if _mean_pooling(c.folder):
        _sentence_embedding(b, x, mask, (n, t))
    add_output(b, "last_hidden", x)
    b.graph.outputs.reverse()


def _layer(
    b: Builder,
    x: str,
    allowed: str,
    prefix: str,
    linear: Callable[[str, str, int, int], str],
    norm: Callable[[str, str], str],
    sizes: tuple[DimLike, DimLike, int, int, int],
    activation: str,
) -> str:
    """One encoder layer. `sizes`: batch, length, heads, hidden and intermediate size."""
    n, t, heads, hidden, inner = sizes

    def split(name: str) -> str:
        y = linear(x, f"{prefix}.attention.self.{name}", hidden, hidden)
        return b.transpose(b.reshape(y, (n, t, heads, hidden // heads)), (0, 2, 1, 3))

    q, k, v = split("query"), split("key"), split("value")
    mixed = b.emit("attention", [q, k, v, allowed], 1, scale=(hidden // heads) ** -0.5)[0]
    mixed = b.reshape(b.transpose(mixed, (0, 2, 1, 3)), (n, t, hidden))
    mixed = linear(mixed, f"{prefix}.attention.output.dense", hidden, hidden)
    x = norm(b.scalar("add", mixed, x), f"{prefix}.attention.output.LayerNorm")
    y = linear(x, f"{prefix}.intermediate.dense", hidden, inner)
    if activation == "relu":
        y = b.scalar("max", y, b.fill(y, 0.0))
    else:
        y = b.scalar("gelu" if activation == "gelu" else "gelu_tanh", y)
    y = linear(y, f"{prefix}.output.dense", inner, hidden)
    return norm(b.scalar("add", y, x), f"{prefix}.output.LayerNorm")


def _mean_pooling(folder: Path) -> bool:
    """Whether the folder is a sentence transformer that averages its tokens."""
    path = folder / "1_Pooling" / "config.json"
    if not path.exists():
        return False
    try:
        return bool(json.loads(path.read_text()).get("pooling_mode_mean_tokens"))
    except (ValueError, AttributeError) as e:
        raise ImportFailure(f"{path} is malformed") from e


def _sentence_embedding(b: Builder, x: str, mask: str, sizes: tuple[DimLike, DimLike]) -> None:
    """Mean over the tokens that count, scaled to unit length."""
    n, t = sizes
    weights = b.reshape(b.cast(mask, DType.F32), (n, t, 1))
    total = b.one("reduce", [b.scalar("mul", x, weights)], kind="sum", over=(1,), keepdims=False)
    count = b.one("reduce", [weights], kind="sum", over=(1,), keepdims=False)
    mean = b.scalar("div", total, b.scalar("max", count, b.const(np.array(1e-9, np.float32))))
    length = b.one("reduce", [mean], kind="l2", over=(1,), keepdims=True)
    unit = b.scalar("div", mean, b.scalar("max", length, b.const(np.array(1e-12, np.float32))))
    add_output(b, "sentence_embedding", unit)
