"""GGUF files as checkpoints: their metadata as a config.json would say it, their tensors by Hugging Face's names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from edgerun.errors import ImportFailure, UnsupportedError
from edgerun_converters.checkpoints import gguf, tokenizers
from edgerun_converters.checkpoints.checkpoint import Checkpoint

ARCHITECTURES = ("llama", "qwen2")
_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "rope_freqs.weight": "rope_freqs.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_NUMBERS = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim",
    "rope.freq_base": "rope_theta", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
}  # fmt: skip


def read_gguf(path: Path) -> Checkpoint:
    """The file as a checkpoint. Raises ImportFailure, and UnsupportedError for an architecture that is not known."""
    file = gguf.read_file(path)
    kind = file.metadata.get("general.architecture")
    if kind not in ARCHITECTURES:
        raise UnsupportedError(f"the architecture {kind!r} of {path} is not supported",
                               hint="known in GGUF files: " + ", ".join(ARCHITECTURES))  # fmt: skip
    config: dict[str, Any] = {"model_type": kind, "rope_interleaved": kind == "llama"}
    for key, name in _NUMBERS.items():
        if (value := file.metadata.get(f"{kind}.{key}")) is not None:
            config[name] = value
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or embedding.ndim != 2:
        raise ImportFailure(f"{path} has no matrix token_embd.weight")
    config["vocab_size"] = embedding.shape[0]
    if (scaling := file.metadata.get(f"{kind}.rope.scaling.type")) not in (None, "none"):
        raise UnsupportedError(f"{path}: rotary scaling {scaling!r} is not known")
    tensors = {_renamed(name): value for name, value in file.tensors.items()}
    return Checkpoint(path, config, tensors, tokenizer=tokenizers.from_gguf(path, file.metadata))


def _renamed(name: str) -> str:
    """Hugging Face's name of a tensor; its own when it has none, so that it is reported as not used."""
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match and match.group(2) in _LAYER:
        return f"model.layers.{match.group(1)}.{_LAYER[match.group(2)]}.{match.group(3)}"
    return _WHOLE.get(name, name)
