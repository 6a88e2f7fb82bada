"""What causal language models share: inputs, key/value cache, attention over it, logits of the last token.

Inputs tokens i64 [T] (T from 1 to `CHUNK`, the next tokens) and position i64 [1] (how many tokens came before); output
logits [1, vocabulary] after the last of them. The caches are states of the graph: [1, G, L, D] for each layer, where
entry p belongs to position p. A prompt goes through in chunks, then token by token: both are this one graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgerun.dims import DimLike
from edgerun.dtypes import DType
from edgerun.errors import ImportFailure, UnsupportedError, UsageError
from edgerun_converters.checkpoints import tokenizers
from edgerun_converters.checkpoints.checkpoint import Checkpoint, add_input, add_output
from edgerun_converters.checkpoints.weights import Weights
from edgerun_converters.onnx.builder import Builder

CHUNK = 64
"""Most tokens in one run: more would make the arena larger without making prompts much faster."""
CONTEXT = 2048
"""Default length of the cache, where the model can do more."""


@dataclass
class Decoder:
    """One model under construction; x is [T, H] throughout."""

    c: Checkpoint
    b: Builder
    w: Weights
    hidden: int
    heads: int
    groups: int
    """Heads of keys and values."""
    size: int
    """Features of a head."""
    vocabulary: int
    positions: int
    """The longest text that the model was made for."""

    def __post_init__(self) -> None:
        if self.heads % self.groups:
            raise ImportFailure(f"{self.c.origin}: {self.heads} heads do not divide into {self.groups} groups")
        if self.size > 1024 or self.size % 2:
            raise UnsupportedError(
                f"{self.c.origin}: heads of {self.size} features; even numbers up to 1024 are possible"
            )
        wanted = self.c.options.get("context")
        if wanted is not None and wanted > self.positions:
            raise UsageError(f"--context {wanted}: the model was made for at most {self.positions} tokens")
        self.context = wanted or min(CONTEXT, self.positions)
        chunk = min(CHUNK, self.context)
        b = self.b
        self.tokens = add_input(b, "tokens", DType.I64, ("T",))
        self.position = add_input(b, "position", DType.I64, (1,))
        self.steps: DimLike = b.shape(self.tokens)[0]
        b.graph.symbols["T"] = (1, chunk)
        b.node_name = "positions"
        numbers = b.one("slice", [b.const(np.arange(chunk), DType.I64)], ranges=((0, 0, self.steps, 1),))
        self.places = b.scalar("add", numbers, self.position)
        """i64 [T]: the position of each token."""
        self.caches: list[tuple[str, str]] = []
        """Inputs and next values of all caches."""
        b.graph.meta["text"] = {"context": self.context, "chunk": chunk, "vocabulary": self.vocabulary}

    def embed(self, name: str) -> str:
        self.b.node_name = "embedding"
        return self.w.rows(name, (self.vocabulary, self.hidden), self.tokens)

    def rms_norm(self, x: str, name: str, epsilon: float) -> str:
        return self.b.one("rms_norm", [x, self.w.take(f"{name}.weight", (self.hidden,))], axis=1, epsilon=epsilon)

    def heads_of(self, x: str, heads: int) -> str:
        """[T, heads * D] to [1, heads, T, D]."""
        return self.b.transpose(self.b.reshape(x, (1, self.steps, heads, self.size)), (0, 2, 1, 3))

    def split(self, x: str, sizes: Sequence[int]) -> list[str]:
        """Consecutive columns of [T, sum of sizes]."""
        ends = np.cumsum(sizes).tolist()
        return [
            self.b.one("slice", [x], ranges=((1, end - n, n, 1),)) for end, n in zip(ends, sizes, strict=True)
        ]  # fmt: skip

    def angles(self, theta: float, factors: np.ndarray | None = None) -> tuple[str, str]:
        """Cosines and sines of the rotary embedding [1, T, D / 2] (Su et al. 2021, arXiv 2104.09864).

        Frequencies theta^(-2 i / D), divided by `factors` [D / 2].
        """
        b, half = self.b, self.size // 2
        frequencies = theta ** (-np.arange(half, dtype=np.float64) / half)
        if factors is not None:
            frequencies = frequencies / factors
        turns = np.outer(np.arange(self.context), frequencies)
        b.node_name = "angles"
        tables = [b.const(f(turns), DType.F32, name) for f, name in ((np.cos, "cosines"), (np.sin, "sines"))]
        cosines, sines = (b.reshape(b.one("gather", [t, self.places], axis=0), (1, self.steps, half)) for t in tables)
        return cosines, sines

    def attention(self, q: str, k: str, v: str, window: int = -1) -> str:
        """Mix q [1, heads, T, D] with all keys and values up to each token's position: [T, heads * D].

        k and v [1, G, T, D] go into the caches first. `window`: only that many positions back count.
        """
        b = self.b
        present = [self._cached(new, f"cache.{len(self.caches) // 2}.{part}") for new, part in ((k, "k"), (v, "v"))]
        inputs = [q, *present, "", "", "", "", self.position]
        left = {"left": window - 1} if window > 0 else {}
        y = b.emit("attention", inputs, 1, scale=self.size**-0.5, causal=True, **left)[0]
        return b.reshape(b.transpose(y, (0, 2, 1, 3)), (self.steps, self.heads * self.size))

    def _cached(self, new: str, name: str) -> str:
        past = add_input(self.b, name, DType.F32, (1, self.groups, self.context, self.size))
        total = self.b.const(np.array([self.context]), DType.I64)
        after = self.b.one("cache_update", [past, new, self.position, total])
        self.caches.append((past, after))
        return after

    def finish(self, x: str, head: str, what: str) -> None:
        """Logits of the last token of the normalised x [T, H] by the matrix `head`; outputs and states."""
        b, w = self.b, self.w
        b.node_name = "logits"
        logits = w.product(x, [head], [self.vocabulary], self.hidden)
        w.finish(what)
        add_output(b, "logits", logits)
        for past, after in self.caches:
            b.graph.states[past] = len(b.graph.outputs)
            b.graph.outputs.append(after)
        tokenizer = self.c.tokenizer
        if tokenizer is None and self.c.origin.is_dir():
            tokenizer = tokenizers.from_folder(self.c.origin)
        if tokenizer is not None:
            b.graph.assets["tokenizer"] = tokenizer

    def last(self, x: str) -> str:
        """The last row of [T, H]: [1, H]."""
        return self.b.one("slice", [x], ranges=((0, self.steps - 1, 1, 1),))
