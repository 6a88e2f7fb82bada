"""Choosing the next token. The packed program's sampling.c draws the same tokens from the same logits and seed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgerun.errors import UsageError

_MASK = (1 << 64) - 1


@dataclass
class Sampler:
    """Temperature 0 takes the largest logit, the first of equals. Otherwise a token is drawn from
    softmax(logits / temperature), of the `top_k` most likely (0: all), and of those the fewest that together have a
    probability of at least `top_p`."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    _state: int = field(init=False)

    def __post_init__(self) -> None:
        if not (0 <= self.temperature < 1e6 and self.top_k >= 0 and 0 < self.top_p <= 1):
            raise UsageError(
                f"temperature {self.temperature}, top-k {self.top_k}, top-p {self.top_p}",
                hint="temperature and top-k are at least 0, top-p is above 0 and at most 1",
            )
        self._state = self.seed & _MASK

    def choose(self, logits: np.ndarray) -> int:
        """A token number from logits f32 [vocabulary]."""
        if self.temperature == 0:
            return int(np.argmax(logits))
        x = logits.astype(np.float64) / self.temperature
        order = np.argsort(-x, kind="stable")
        order = order[: self.top_k] if self.top_k else order
        weights = np.exp(x[order] - x[order[0]])
        total = np.cumsum(weights)
        if self.top_p < 1:
            kept = int(np.searchsorted(total, self.top_p * total[-1])) + 1
            order, total = order[:kept], total[:kept]
        at = int(np.searchsorted(total, self._uniform() * total[-1], side="right"))
        return int(order[min(at, len(order) - 1)])

    def _uniform(self) -> float:
        """The next number in [0, 1): splitmix64, upper 53 bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return float((z ^ (z >> 31)) >> 11) * 2.0**-53
