"""NumPy kernels of attention, rotary embedding and cache update."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import kernel

Array = np.ndarray


@kernel("attention")
def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None = None,
    past_k: Array | None = None,
    past_v: Array | None = None,
    nonpad: Array | None = None,
    offset: Array | None = None,
    sink: Array | None = None,
    *,
    scale: float,
    causal: bool = False,
    softcap: float = 0.0,
    left: int = -1,
    right: int = -1,
    scores: str = "raw",
) -> tuple[Array, Array, Array, Array]:
    """See edgerun.ops.attention.attention."""
    working: Any = np.float64 if q.dtype == np.float64 else np.float32
    past = 0 if past_k is None else past_k.shape[2]
    if past_k is not None and past_v is not None:
        k, v = np.concatenate([past_k, k], axis=2), np.concatenate([past_v, v], axis=2)
    batch, heads, steps, _ = q.shape
    groups, total = k.shape[1], k.shape[2]

    # The query heads that share a key head are stacked along the sequence, so keys are never repeated.
    stacked = q.astype(working, copy=False).reshape(batch, groups, -1, q.shape[3])
    logits = stacked @ k.astype(working, copy=False).swapaxes(2, 3)
    logits *= working(scale)
    logits = logits.reshape(batch, heads, steps, total)
    reported = logits
    if softcap:
        logits = working(softcap) * np.tanh(logits / working(softcap))
    if scores == "capped":
        reported = logits

    allowed = _allowed(batch, steps, total, past, nonpad, offset, causal, left, right)
    if mask is not None:
        if mask.shape[-1] < total and mask.shape[-1] != 1:
            padding = [(0, 0)] * (mask.ndim - 1) + [(0, total - mask.shape[-1])]
            mask = np.pad(mask, padding, constant_values=False if mask.dtype == bool else -np.inf)
        if mask.dtype == bool:
            allowed = mask if allowed is None else allowed & mask
        else:
            bias = mask.astype(working, copy=False)
            logits = logits + bias
            closed = np.isneginf(bias)
            if closed.any():
                allowed = ~closed if allowed is None else allowed & ~closed
    if allowed is not None:
        # Selected, not added: a masked logit stays out even when it is infinite or NaN.
        logits = np.where(allowed, logits, working(-np.inf))
    if scores == "biased":
        reported = logits

    weights = _softmax(logits, None if sink is None else sink.astype(working).reshape(1, heads, 1, 1))
    if scores == "weights":
        reported = weights
    y = weights.reshape(batch, groups, -1, total) @ v.astype(working, copy=False)
    y = y.reshape(batch, heads, steps, v.shape[3])
    return y.astype(q.dtype, copy=False), k, v, reported.astype(q.dtype, copy=False)


def _allowed(
    batch: int,
    steps: int,
    total: int,
    past: int,
    nonpad: Array | None,
    offset: Array | None,
    causal: bool,
    left: int,
    right: int,
) -> Array | None:
    """Which keys each query may attend, [B or 1, 1, Sq or 1, T], or None for all."""
    keys = np.arange(total)
    allowed: Array | None = None
    if nonpad is not None:
        allowed = (keys < nonpad.reshape(-1, 1)).reshape(batch, 1, 1, total)
    if causal or left >= 0 or right >= 0:
        if offset is not None:
            first = offset.reshape(-1, 1, 1, 1).astype(np.int64)
        elif nonpad is not None and not past:
            first = nonpad.reshape(-1, 1, 1, 1).astype(np.int64) - steps
        else:
            first = np.full((1, 1, 1, 1), past)
        distance = keys - (first + np.arange(steps)[:, None])
        band = np.ones(distance.shape, bool)
        if causal:
            band &= distance <= 0
        if left >= 0:
            band &= distance >= -left
        if right >= 0:
            band &= distance <= right
        allowed = band if allowed is None else allowed & band
    return allowed


def _softmax(logits: Array, sink: Array | None) -> Array:
    """Softmax over the last axis; rows of -inf give zeros; `sink` joins the denominator only."""
    largest = logits.max(axis=-1, keepdims=True, initial=-np.inf)
    if sink is not None:
        largest = np.maximum(largest, sink)
    largest = np.where(np.isneginf(largest), 0, largest).astype(logits.dtype)
    weights = np.exp(logits - largest)
    total = weights.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + np.exp(sink - largest)
    weights /= np.where(total == 0, 1, total)
    return weights


@kernel("rotary")
def rotary(x: Array, cos: Array, sin: Array, *, interleaved: bool = False) -> Array:
    """See edgerun.ops.attention.rotary."""
    working: Any = np.float64 if x.dtype == np.float64 else np.float32
    half = cos.shape[-1]
    cos, sin = cos[:, None].astype(working), sin[:, None].astype(working)
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(half), slice(half, 2 * half))
    )
    a, b = x[..., first].astype(working), x[..., second].astype(working)
    result = x.copy()
    result[..., first] = cos * a - sin * b
    result[..., second] = sin * a + cos * b
    return result


@kernel("cache_update")
def cache_update(past: Array, new: Array, offset: Array, total: Array) -> Array:
    """See edgerun.ops.attention.cache_update."""
    length = max(past.shape[2], int(total.reshape(-1)[0]))
    result = np.zeros((*past.shape[:2], length, past.shape[3]), past.dtype)
    result[:, :, : past.shape[2]] = past
    for b, start in enumerate(offset.reshape(-1).tolist()):
        count = max(min(new.shape[2], length - start), 0)
        result[b, :, start : start + count] = new[b, :, :count]
    return result
