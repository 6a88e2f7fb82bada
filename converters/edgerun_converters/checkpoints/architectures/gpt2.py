"""GPT-2 with the tensor names of Hugging Face. Radford et al. 2019. Inputs and outputs: decoder.py."""

from __future__ import annotations

from edgerun_converters.checkpoints.architectures.decoder import Decoder
from edgerun_converters.checkpoints.architectures.transformer import Layers
from edgerun_converters.checkpoints.checkpoint import Checkpoint, architecture
from edgerun_converters.checkpoints.weights import Weights
from edgerun_converters.onnx.builder import Builder


@architecture("gpt2")
def gpt2(c: Checkpoint, b: Builder) -> None:
    """Build the decoder; its linear layers hold [inputs, outputs] (Conv1D)."""
    hidden, heads = c.number("n_embd"), c.number("n_head")
    inner = c.number("n_inner") if c.config.get("n_inner") is not None else 4 * hidden
    c.choice("activation_function", "gelu_new", ("gelu_new",))
    w = Weights(c, b, ("transformer.",))
    w.ignore(".attn.bias", ".attn.masked_bias")
    positions = c.number("n_positions", 1024)
    net = Decoder(c, b, w, hidden, heads, heads, hidden // heads, c.number("vocab_size"), positions)
    norms = Layers(b, w, hidden, heads, inner, "gelu_new", c.real("layer_norm_epsilon", 1e-5))

    def linear(x: str, name: str, inputs: int, outputs: int) -> str:
        return b.one("matmul", [x, w.take(f"{name}.weight", (inputs, outputs)), w.take(f"{name}.bias", (outputs,))])

    x = net.embed("wte")
    x = b.scalar("add", x, b.one("gather", [w.take("wpe.weight", (positions, hidden)), net.places], axis=0))
    for i in range(c.layers("n_layer")):
        b.node_name = start = f"h.{i}"
        joined = linear(norms.norm(x, f"{start}.ln_1"), f"{start}.attn.c_attn", hidden, 3 * hidden)
        q, k, v = (net.heads_of(part, heads) for part in net.split(joined, (hidden,) * 3))
        x = b.scalar("add", x, linear(net.attention(q, k, v), f"{start}.attn.c_proj", hidden, hidden))
        y = b.scalar("gelu_tanh", linear(norms.norm(x, f"{start}.ln_2"), f"{start}.mlp.c_fc", hidden, inner))
        x = b.scalar("add", x, linear(y, f"{start}.mlp.c_proj", inner, hidden))
    b.node_name = "head"
    x = norms.norm(net.last(x), "ln_f")
    if "lm_head.weight" in c.tensors:
        w.used.add("lm_head.weight")  # tied: the same matrix, stored twice
    net.finish(x, "wte", "a GPT-2 with this configuration")
