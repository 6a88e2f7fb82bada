"""Llama and models of its shape: Mistral, Qwen2, SmolLM; from Hugging Face folders and GGUF files.

Touvron et al. 2023 (arXiv 2302.13971). Inputs and outputs: decoder.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from edgerun.errors import ImportFailure, UnsupportedError
from edgerun_converters.checkpoints.architectures.decoder import Decoder
from edgerun_converters.checkpoints.checkpoint import Checkpoint, architecture
from edgerun_converters.checkpoints.weights import Weights
from edgerun_converters.onnx.builder import Builder


@architecture("llama", "mistral", "qwen2")
def llama(c: Checkpoint, b: Builder) -> None:
    """Build the decoder; see the module docstring."""
    hidden, heads, inner = c.number("hidden_size"), c.number("num_attention_heads"), c.number("intermediate_size")
    groups = c.number("num_key_value_heads", heads)
    size = c.number("head_dim") if c.config.get("head_dim") is not None else hidden // heads
    c.choice("hidden_act", "silu", ("silu",))
    epsilon = c.real("rms_norm_eps", 1e-6)
    w = Weights(c, b)
    net = Decoder(c, b, w, hidden, heads, groups, size, c.number("vocab_size"), c.number("max_position_embeddings"))
    w.ignore("rotary_emb.inv_freq", "rope_freqs.weight")
    cosines, sines = net.angles(*_rotary(c, size))
    interleaved = c.flag("rope_interleaved", False)
    window = _window(c)
    x = net.embed("model.embed_tokens")
    for i in range(c.layers("num_hidden_layers")):
        b.node_name = start = f"model.layers.{i}"
        sizes = (heads * size, groups * size, groups * size)
        names = [f"{start}.self_attn.{part}_proj" for part in "qkv"]
        y = net.rms_norm(x, f"{start}.input_layernorm", epsilon)
        joined = w.product(y, names, sizes, hidden, bias=w.has(f"{names[0]}.bias"))
        q, k, v = (net.heads_of(part, n // size) for part, n in zip(net.split(joined, sizes), sizes, strict=True))
        q, k = (b.one("rotary", [part, cosines, sines], interleaved=interleaved) for part in (q, k))
        y = w.product(net.attention(q, k, v, window), [f"{start}.self_attn.o_proj"], [hidden], heads * size)
        x = b.scalar("add", x, y)
        y = net.rms_norm(x, f"{start}.post_attention_layernorm", epsilon)
        names = [f"{start}.mlp.{part}_proj" for part in ("gate", "up")]
        gate, up = net.split(w.product(y, names, (inner, inner), hidden), (inner, inner))
        y = b.scalar("mul", b.scalar("mul", gate, b.scalar("sigmoid", gate)), up)
        x = b.scalar("add", x, w.product(y, [f"{start}.mlp.down_proj"], [hidden], inner))
    b.node_name = "head"
    x = net.rms_norm(net.last(x), "model.norm", epsilon)
    net.finish(x, "lm_head" if w.has("lm_head.weight") else "model.embed_tokens", "a Llama with this configuration")


def _window(c: Checkpoint) -> int:
    """How many positions back count, -1 for all."""
    if c.config.get("sliding_window") is None or not c.flag("use_sliding_window", True):
        return -1
    if c.config.get("model_type") == "qwen2" and "use_sliding_window" not in c.config:
        return -1
    return c.number("sliding_window")


def _rotary(c: Checkpoint, size: int) -> tuple[float, np.ndarray | None]:
    """(theta, what the frequencies are divided by). Raises UnsupportedError for scalings that are not known."""
    newer = c.config.get("rope_parameters") or {}
    scaling = c.config.get("rope_scaling") or newer
    if not isinstance(newer, dict) or not isinstance(scaling, dict):
        raise ImportFailure(f"the configuration of {c.origin}: rope_scaling is malformed")
    theta = newer.get("rope_theta", c.config.get("rope_theta", 10000.0))
    if isinstance(theta, bool) or not isinstance(theta, int | float) or not theta > 1:
        raise ImportFailure(f"the configuration of {c.origin}: rope_theta is {theta!r}")
    given = c.tensors.get("rope_freqs.weight")
    if given is not None:
        if given.shape != (size // 2,):
            raise ImportFailure(f"{c.origin}: rope_freqs.weight has the shape {list(given.shape)}")
        return float(theta), given.astype(np.float64)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return float(theta), None
    if kind == "linear":
        return float(theta), np.full(size // 2, _positive(c, scaling, "factor"))
    if kind == "llama3":
        return float(theta), _llama3(c, scaling, float(theta), size)
    raise UnsupportedError(f"the configuration of {c.origin}: rotary scaling {kind!r} is not known")


def _positive(c: Checkpoint, table: dict[str, Any], key: str) -> float:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ImportFailure(f"the configuration of {c.origin}: {key} of rope_scaling is {value!r}")
    return float(value)


def _llama3(c: Checkpoint, scaling: dict[str, Any], theta: float, size: int) -> np.ndarray:
    """Low frequencies divided by `factor`, high ones kept, those between blended (Llama 3.1)."""
    factor, low, high, length = (
        _positive(c, scaling, key)
        for key in ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    waves = 2 * math.pi * theta ** (np.arange(size // 2, dtype=np.float64) * 2 / size)
    smooth = np.clip((length / waves - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / factor + smooth)
