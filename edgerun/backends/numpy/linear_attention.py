"""NumPy kernel of linear attention: one step after the other, all batches and heads at once."""

from __future__ import annotations

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.ops.linear_attention import RULES

Array = np.ndarray


@kernel("linear_attention")
def linear_attention(
    q: Array,
    k: Array,
    v: Array,
    state: Array | None = None,
    decay: Array | None = None,
    beta: Array | None = None,
    *,
    rule: str,
    scale: float,
) -> tuple[Array, Array]:
    """See edgerun.ops.linear_attention.linear_attention."""
    gated, corrected = RULES[rule]
    batch, heads, steps, size = q.shape
    groups, width = k.shape[1], v.shape[3]
    queries = q.astype(np.float32).reshape(batch, groups, heads // groups, steps, size)
    keys, values = k.astype(np.float32), v.astype(np.float32)
    s = np.zeros((batch, groups, size, width), np.float32) if state is None else state.astype(np.float32)
    y = np.empty((batch, groups, heads // groups, steps, width), np.float32)
    for t in range(steps):
        key, value = keys[:, :, t, :, None], values[:, :, t, None, :]
        if gated and decay is not None:
            s = s * np.exp(decay[:, :, t, :, None].astype(np.float32))
        if corrected and beta is not None:
            value = beta[:, :, t, :, None].astype(np.float32) * (value - key.swapaxes(2, 3) @ s)
        s = s + key * value
        y[:, :, :, t] = queries[:, :, :, t] @ s
    y *= np.float32(scale)
    return y.reshape(batch, heads, steps, width).astype(q.dtype), s.astype(q.dtype if state is None else state.dtype)
