"""Scaled dot-product attention and rotary position embedding, on [batch, heads, sequence, head size]."""

from __future__ import annotations

from edgerun.dims import DimLike, product
from edgerun.dtypes import DType
from edgerun.graph import Shape
from edgerun.ops.registry import TensorType, macs, op, require


@op("attention")
def attention(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    mask: TensorType | None = None,
    past_k: TensorType | None = None,
    past_v: TensorType | None = None,
    nonpad: TensorType | None = None,
    offset: TensorType | None = None,
    sink: TensorType | None = None,
    *,
    scale: float,
    causal: bool = False,
    softcap: float = 0.0,
    left: int = -1,
    right: int = -1,
    scores: str = "raw",
) -> tuple[TensorType, TensorType, TensorType, TensorType]:
    """softmax(scale * q k^T + bias) v with key/value cache: (y, present_k, present_v, scores).

    q [B, H, Sq, D], k [B, G, Sk, D], v [B, G, Sk, Dv]; query head h reads key head h * G // H. past_k and past_v
    [B, G, P, .] go before k and v; T = P + Sk. Logits become softcap * tanh(logits / softcap) when softcap is not 0.
    `mask` broadcasts to [B, H, Sq, T]: bool (true = attend) or float (added); a shorter last axis is padded with "do
    not attend". `nonpad` [B] says how many keys are valid.

    Query i stands at position p = offset + i, where `offset` [B] defaults to P with a past, nonpad - Sq with nonpad,
    else 0. `causal` allows keys j <= p, `left` and `right` (unless -1) keys p - left <= j <= p + right. A query without
    any allowed key gives zeros. `sink` [H] adds one logit without a value to every softmax.

    `scores` [B, H, Sq, T] are "raw" (scaled products), "capped", "biased" (masked ones -inf) or "weights" (softmax).
    Computed in f32 (f64 for f64 inputs). Raises ShapeError when sizes differ.
    """
    require(q.dtype.is_float and q.dtype is k.dtype, f"attention of {q.dtype.short} and {k.dtype.short}")
    require(scores in ("raw", "capped", "biased", "weights"), f"there are no scores {scores!r}")
    require((past_k is None) == (past_v is None), "past keys and past values come together")
    require(mask is None or mask.dtype is DType.BOOL or mask.dtype.is_float, "a mask is bool or float")
    types = [t for t in (q, k, v, past_k, past_v) if t is not None]
    if any(t.shape is None for t in types):
        return q.like(), k.like(), v.like(), q.like()
    for t in types:
        require(t.rank == 4, f"attention takes tensors of rank 4, not {t}")
    batch, heads, steps, _ = q.dims
    _, groups, length, _ = k.dims
    _same("head sizes", q.dims[3], k.dims[3])
    _same("key and value lengths", length, v.dims[2])
    _same("key and value heads", groups, v.dims[1])
    if isinstance(heads, int) and isinstance(groups, int):
        require(groups > 0 and heads % groups == 0, f"{heads} query heads are no multiple of {groups} key heads")
    total = length if past_k is None else past_k.dims[2] + length
    present_k: Shape = (*k.dims[:2], total, k.dims[3])
    present_v: Shape = (*v.dims[:2], total, v.dims[3])
    return (
        q.like((batch, heads, steps, v.dims[3])),
        k.like(present_k),
        v.like(present_v),
        q.like((batch, heads, steps, total)),
    )


@op("attention")
def rotary(x: TensorType, cos: TensorType, sin: TensorType, *, interleaved: bool = False) -> TensorType:
    """Rotate pairs of the first R features of x [B, H, S, D] by the angles of cos and sin [B or 1, S, R/2].

    Pairs are (i, i + R/2), or (2i, 2i + 1) when `interleaved`. The remaining features stay.
    """
    require(x.dtype.is_float and cos.dtype.is_float and sin.dtype.is_float, "rotary embedding takes floats")
    if x.shape is not None and cos.shape is not None:
        require(len(x.shape) == 4 and len(cos.shape) == 3, f"rotary embedding of {x} by {cos}")
        size, half = x.shape[3], cos.shape[2]
        if isinstance(size, int) and isinstance(half, int):
            require(2 * half <= size, f"{half} angles for heads of {size}")
    return x.like()


@op("attention")
def cache_update(past: TensorType, new: TensorType, offset: TensorType, total: TensorType) -> TensorType:
    """A key or value cache with new entries: past [B, G, P, D], new [B, G, S, D] written at offset[b].

    The result has max(P, total) entries, zeros where neither was written; `total` is an integer of one element.
    """
    require(past.dtype is new.dtype, f"a cache of {past.dtype.short} cannot take {new.dtype.short}")
    if past.shape is None or new.shape is None:
        return past.like()
    require(len(past.shape) == 4 and len(new.shape) == 4, f"cannot write {new} into the cache {past}")
    return TensorType(past.dtype, (*past.shape[:2], _cache_length(past, new, total), past.shape[3]))


def _cache_length(past: TensorType, new: TensorType, total: TensorType) -> DimLike:
    from edgerun.dims import maximum
    from edgerun.ops.registry import fresh_symbol

    if total.value is not None:
        return maximum(past.dims[2], total.value.reshape(-1).tolist()[0])
    if past.dims[2] == 0:
        return new.dims[2]
    return fresh_symbol("cache")


def _same(what: str, a: DimLike, b: DimLike) -> None:
    require(not (isinstance(a, int) and isinstance(b, int)) or a == b, f"the {what} {a} and {b} differ")


@macs("attention")
def _attention_macs(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    mask: TensorType | None = None,
    past_k: TensorType | None = None,
    *rest: object,
    out: TensorType,
    **attrs: object,
) -> DimLike:
    if q.shape is None or k.shape is None or v.shape is None:
        return 0
    total = k.shape[2] if past_k is None or past_k.shape is None else k.shape[2] + past_k.shape[2]
    return product(q.shape[:3]) * total * (q.shape[3] + v.shape[3])
