"""Attention with a recurrent state instead of a growing cache."""

from __future__ import annotations

from edgerun.dims import DimLike, product
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, macs, op, require

RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
"""Update rule -> whether it takes decay, whether it takes beta."""


@op("attention")
def linear_attention(
    q: TensorType,
    k: TensorType,
    v: TensorType,
    state: TensorType | None = None,
    decay: TensorType | None = None,
    beta: TensorType | None = None,
    *,
    rule: str,
    scale: float,
) -> tuple[TensorType, TensorType]:
    """Linear attention of q [B, H, T, D], k [B, G, T, D], v [B, G, T, Dv]: (y [B, H, T, Dv], state [B, G, D, Dv]).

    For every step in turn: S = exp(decay) S; v' = beta (v - S^T k) for the delta rules, else v; S = S + k v'^T;
    y = scale * S^T q, where query head h reads state h * G // H. decay is [B, G, T, D or 1], beta [B, G or 1, T, 1].
    Computed in f32.
    """
    require(rule in RULES, f"there is no update rule {rule!r}")
    gated, corrected = RULES[rule]
    require(gated == (decay is not None), f"the rule {rule!r} takes {'a' if gated else 'no'} decay")
    require(corrected == (beta is not None), f"the rule {rule!r} takes {'a' if corrected else 'no'} beta")
    require(q.dtype.is_float, f"attention takes floats, not {q.dtype.short}")
    kept: DType = state.dtype if state is not None else q.dtype
    if q.shape is None or k.shape is None or v.shape is None:
        return q.like(), TensorType(kept, None)
    for t in (q, k, v):
        require(len(t.shape or ()) == 4, f"attention takes tensors of rank 4, not {t}")
    heads, groups = q.shape[1], k.shape[1]
    if isinstance(heads, int) and isinstance(groups, int):
        require(groups > 0 and heads % groups == 0, f"{heads} query heads are no multiple of {groups} key heads")
    final = (*k.shape[:2], k.shape[3], v.shape[3])
    return q.like((*q.shape[:3], v.shape[3])), TensorType(kept, final)


@macs("linear_attention")
def _macs(q: TensorType, k: TensorType, v: TensorType, *rest: object, out: TensorType, **attrs: object) -> DimLike:
    if q.shape is None or k.shape is None or v.shape is None:
        return 0
    return product(q.shape) * v.shape[3] + product(k.shape) * v.shape[3]
