"""Layers that transformer encoders share, by tensor name; x is [N, T, H] throughout."""

from __future__ import annotations

from dataclasses import dataclass

from edgerun.errors import ImportFailure
from edgerun_converters.checkpoints.checkpoint import Checkpoint
from edgerun_converters.checkpoints.weights import Weights
from edgerun_converters.onnx.builder import Builder


@dataclass
class Layers:
    """Sizes and activation of one model; methods append layers to the graph."""

    b: Builder
    w: Weights
    hidden: int
    heads: int
    inner: int
    activation: str
    """gelu, gelu_new (its tanh form), relu."""
    epsilon: float

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ImportFailure(f"{self.hidden} features do not divide into {self.heads} heads")

    @classmethod
    def from_config(cls, c: Checkpoint, w: Weights, b: Builder) -> Layers:
        """With the sizes of a config.json of Hugging Face."""
        return cls(
            b,
            w,
            c.number("hidden_size"),
            c.number("num_attention_heads"),
            c.number("intermediate_size"),
            c.choice("hidden_act", "gelu", ("gelu", "gelu_new", "relu")),
            c.real("layer_norm_eps", 1e-12),
        )

    def norm(self, x: str, name: str) -> str:
        """Layer normalisation over the features."""
        scale, bias = self.w.take(f"{name}.weight", (self.hidden,)), self.w.take(f"{name}.bias", (self.hidden,))
        axis = self.b.rank(x) - 1
        return self.b.emit("layer_norm", [x, scale, bias], 1, axis=axis, epsilon=self.epsilon)[0]

    def linear(self, x: str, name: str, inputs: int, outputs: int, *, bias: bool = True) -> str:
        """x W^T + b with W [outputs, inputs]."""
        matrix = self.w.take(f"{name}.weight", (outputs, inputs), transposed=True)
        return self.b.one("matmul", [x, matrix, *([self.w.take(f"{name}.bias", (outputs,))] if bias else [])])

    def heads_of(self, x: str) -> str:
        """[N, T, H] to [N, heads, T, H / heads]."""
        n, t, _ = self.b.shape(x)
        return self.b.transpose(self.b.reshape(x, (n, t, self.heads, self.hidden // self.heads)), (0, 2, 1, 3))

    def attention(self, q: str, k: str, v: str, mask: str = "") -> str:
        """Mix [N, T, H] by scaled dot products; `mask` broadcasts to [N, heads, T, T]."""
        inputs = [self.heads_of(x) for x in (q, k, v)]
        mixed = self.b.emit("attention", [*inputs, mask], 1, scale=(self.hidden // self.heads) ** -0.5)[0]
        return self.b.reshape(self.b.transpose(mixed, (0, 2, 1, 3)), self.b.shape(q))

    def feed_forward(self, x: str, first: str, second: str) -> str:
        y = self.linear(x, first, self.hidden, self.inner)
        if self.activation == "relu":
            y = self.b.scalar("max", y, self.b.fill(y, 0.0))
        else:
            y = self.b.scalar("gelu" if self.activation == "gelu" else "gelu_tanh", y)
        return self.linear(y, second, self.inner, self.hidden)

    def step(self, x: str, index: int) -> str:
        """One step: [N, T, H] to [N, H]."""
        taken = self.b.one("slice", [x], ranges=((1, index, 1, 1),))
        return self.b.reshape(taken, (self.b.shape(x)[0], self.hidden))
