"""Matrices of few bits a weight, as GGUF files hold them and the op matmul_nbits takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Packed:
    """W [N, K] = (code - zero) * scale, with one scale and zero for each `block` of K; K is a multiple of `block`."""

    shape: tuple[int, int]
    bits: int
    """4 or 8."""
    block: int
    codes: np.ndarray
    """u8 [N, K * bits / 8], the lower half of a byte first."""
    scales: np.ndarray
    """f16 or f32 [N, K / block]."""
    zeros: np.ndarray | None
    """f32 [N, K / block]; None: 2^(bits - 1) throughout."""

    @property
    def ndim(self) -> int:
        return 2

    @property
    def dtype(self) -> np.dtype:
        """Of the weights that it stands for."""
        return np.dtype(np.float32)

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes + (0 if self.zeros is None else self.zeros.nbytes)

    def rows(self) -> np.ndarray:
        """All weights as f32 [N, K]."""
        n, k = self.shape
        codes = self.codes if self.bits == 8 else np.stack([self.codes & 15, self.codes >> 4], -1)
        blocks = codes.reshape(n, k // self.block, self.block).astype(np.float32)
        zeros = np.float32(1 << (self.bits - 1)) if self.zeros is None else self.zeros[..., None]
        return ((blocks - zeros) * self.scales[..., None].astype(np.float32)).reshape(n, k)


def joined(parts: Sequence[Packed]) -> Packed | None:
    """The matrices one below the other, None when they are packed in different ways."""
    first = parts[0]
    kinds = {(p.shape[1], p.bits, p.block, p.scales.dtype, p.zeros is None) for p in parts}
    if len(kinds) > 1:
        return None
    zeros = [p.zeros for p in parts if p.zeros is not None]
    return Packed(
        (sum(p.shape[0] for p in parts), first.shape[1]),
        first.bits,
        first.block,
        np.concatenate([p.codes for p in parts]),
        np.concatenate([p.scales for p in parts]),
        np.concatenate(zeros) if zeros else None,
    )
