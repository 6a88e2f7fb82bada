"""A tiny language model with a real tokenizer, as a folder that `edgerun convert` takes."""

import json

import numpy as np
import safetensors.numpy

from tests.text.test_tokenizer import KINDS

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
         "intermediate_size": 64, "max_position_embeddings": 256}  # fmt: skip


def write(folder, kind="digits"):
    """Seeded weights, vocabulary of the tokenizer `kind`."""
    tokens = len(KINDS[kind]["tokenizer"]["model"]["vocab"])
    layer = {"self_attn.q_proj": (32, 32), "self_attn.k_proj": (16, 32), "self_attn.v_proj": (16, 32),
             "self_attn.o_proj": (32, 32), "mlp.gate_proj": (64, 32), "mlp.up_proj": (64, 32),
             "mlp.down_proj": (32, 64), "input_layernorm": (32,), "post_attention_layernorm": (32,)}  # fmt: skip
    shapes = {"model.embed_tokens": (tokens, 32), "model.norm": (32,), "lm_head": (tokens, 32)}
    shapes |= {f"model.layers.{i}.{name}": shape for i in range(2) for name, shape in layer.items()}
    generator = np.random.default_rng(8)
    tensors = {}
    for name, shape in shapes.items():
        array = generator.standard_normal(shape) * (0.4 if len(shape) == 2 else 0.1) + (len(shape) == 1)
        tensors[f"{name}.weight"] = array.astype(np.float32)
    folder.mkdir(exist_ok=True)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": tokens, **SIZES}))
    (folder / "tokenizer.json").write_text(json.dumps(KINDS[kind]["tokenizer"]))
    return folder
