"""From a prompt to text: the prompt in chunks, then token by token."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgerun.errors import FileFormatError, UsageError
from edgerun.session import Session
from edgerun.text.sampling import Sampler
from edgerun.text.tokenizer import Tokenizer
from edgerun.text.vocabulary import from_bytes


@dataclass
class Statistics:
    """Counts and seconds of one text."""

    prompt_tokens: int = 0
    prompt_seconds: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    """Of all tokens but the first, which the prompt's run gives."""
    finish: str = ""
    """"stop": the model ended the text; "length": the limit or the end of the context came first."""

    def as_dict(self) -> dict[str, Any]:
        """With tokens a second."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "prompt_seconds": self.prompt_seconds,
            "prompt_tokens_per_second": _rate(self.prompt_tokens, self.prompt_seconds),
            "tokens": self.tokens,
            "seconds": self.seconds,
            "tokens_per_second": _rate(self.tokens - 1, self.seconds),
            "finish": self.finish,
        }


def _rate(count: int, seconds: float) -> float | None:
    return count / seconds if count > 0 and seconds > 0 else None


class Generator:
    """A language model with its tokenizer. `session` is of a graph with the inputs tokens and position."""

    def __init__(self, session: Session) -> None:
        raw = session.assets.get("tokenizer")
        names = [port.name for port in session.inputs]
        if names != ["tokens", "position"]:
            raise UsageError("this model does not generate text: its inputs are " + ", ".join(names))
        if raw is None:
            raise UsageError("this model has no tokenizer", hint="convert it from a folder with tokenizer.json")
        self.session = session
        self.tokenizer = Tokenizer(from_bytes(raw))
        text = session.meta.get("text")
        if not isinstance(text, dict) or not all(_is_size(text.get(k)) for k in ("context", "chunk", "vocabulary")):
            raise FileFormatError("the model does not say how long its context is", hint="convert it again")
        self.context, self.chunk = int(text["context"]), int(text["chunk"])
        if text["vocabulary"] < len(self.tokenizer.vocabulary.tokens):
            raise FileFormatError("the tokenizer has more tokens than the model")
        self.statistics = Statistics()
        """Of the last text."""

    def chat(self, message: str) -> str:
        """The prompt for a first message, as the model was trained. UsageError for a model without chat template."""
        vocabulary = self.tokenizer.vocabulary
        if not vocabulary.prefix and not vocabulary.suffix:
            raise UsageError("this model has no chat template", hint="leave --chat out")
        return vocabulary.prefix + message + vocabulary.suffix

    def tokens(self, prompt: Sequence[int], sampler: Sampler, limit: int) -> Iterator[int]:
        """At most `limit` tokens after the prompt; the one that ends the text is not among them."""
        if not prompt:
            raise UsageError("the prompt is empty")
        if len(prompt) >= self.context:
            raise UsageError(
                f"the prompt has {len(prompt)} tokens, the context {self.context}",
                hint="convert with a longer --context",
            )
        stops, s = set(self.tokenizer.vocabulary.stops), Statistics(len(prompt))
        self.statistics = s
        start = time.perf_counter()
        for at in range(0, len(prompt), self.chunk):
            logits = self.logits(prompt[at : at + self.chunk], at)
        s.prompt_seconds = time.perf_counter() - start
        position = len(prompt)
        start = time.perf_counter()
        while True:
            token = sampler.choose(logits)
            if token in stops:
                s.finish = "stop"
                return
            s.tokens += 1
            yield token
            if s.tokens >= limit or position >= self.context:
                s.finish = "length"
                return
            logits = self.logits([token], position)
            position += 1
            s.seconds = time.perf_counter() - start

    def logits(self, tokens: Sequence[int], position: int) -> np.ndarray:
        """Logits f32 [vocabulary] after at most `chunk` tokens, the first of which stands at `position`."""
        feeds = {"tokens": np.array(tokens, np.int64), "position": np.array([position], np.int64)}
        return self.session.run(feeds)["logits"][0]

    def text(self, prompt: str, sampler: Sampler | None = None, limit: int = 128) -> Iterator[str]:
        """Pieces of text as they come."""
        return self.tokenizer.stream(self.tokens(self.tokenizer.encode(prompt), sampler or Sampler(), limit))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
