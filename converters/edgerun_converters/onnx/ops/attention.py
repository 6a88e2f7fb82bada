"""Attention and RotaryEmbedding of ai.onnx, and the helpers that the com.microsoft attention operators share."""

from __future__ import annotations

import math

from edgerun.dims import DimLike
from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering

SCORES = ("raw", "capped", "biased", "weights")


@lowering("Attention")
def attention(b: Builder, n: OnnxNode) -> None:
    q, k, v, mask, past_k, past_v, nonpad = (n.input(i) for i in range(7))
    flat = b.rank(q) == 3
    if flat:
        heads, groups = int(n.attr("q_num_heads")), int(n.attr("kv_num_heads"))
        q, k, v = split_heads(b, q, heads), split_heads(b, k, groups), split_heads(b, v, groups)
    mode = int(n.attr("qk_matmul_output_mode", 0))
    if not 0 <= mode < len(SCORES):
        raise UnsupportedError(f"there is no qk_matmul_output_mode {mode}")
    outputs = max((i + 1 for i in range(4) if n.wants(i)), default=1)
    y, *rest = b.emit(
        "attention",
        [q, k, v, mask, past_k, past_v, nonpad],
        outputs,
        scale=float(n.attr("scale", 0.0)) or default_scale(b, q),
        causal=bool(n.attr("is_causal", 0)),
        softcap=float(n.attr("softcap", 0.0)),
        left=int(n.attr("left_window_size", -1)),
        right=int(n.attr("right_window_size", -1)),
        scores=SCORES[mode],
    )
    n.bind(merge_heads(b, y) if flat else y, *rest)


@lowering("RotaryEmbedding")
def rotary_embedding(b: Builder, n: OnnxNode) -> None:
    x, cos, sin, positions = (n.input(i) for i in range(4))
    if positions:
        cos, sin = b.one("gather", [cos, positions], axis=0), b.one("gather", [sin, positions], axis=0)
    flat = b.rank(x) == 3
    if flat:
        x = split_heads(b, x, int(n.attr("num_heads")))
    check_rotary_size(b, cos, int(n.attr("rotary_embedding_dim", 0)), b.shape(x)[3])
    y = b.one("rotary", [x, cos, sin], interleaved=bool(n.attr("interleaved", 0)))
    n.bind(merge_heads(b, y) if flat else y)


def check_rotary_size(b: Builder, cos: str, stated: int, head_size: DimLike) -> None:
    """Raise UnsupportedError when the cache holds another number of angles than the attribute or the head size asks."""
    half = b.shape(cos)[-1]
    wanted = stated or head_size
    if isinstance(half, int) and isinstance(wanted, int) and 2 * half != wanted:
        raise UnsupportedError(f"the rotary caches hold {half} angles where {wanted} features rotate")


def default_scale(b: Builder, q: str) -> float:
    """1 / sqrt(head size) for q [B, H, S, D]. Raises UnsupportedError when D is symbolic."""
    size = b.shape(q)[3]
    if not isinstance(size, int):
        raise UnsupportedError(f"the head size {size} is not known", hint="give the attribute scale or bind the input")
    return 1.0 / math.sqrt(size)


def split_heads(b: Builder, x: str, heads: int) -> str:
    """[B, S, heads * D] to [B, heads, S, D]."""
    batch, steps, width = b.shape(x)
    if heads <= 0 or (isinstance(width, int) and width % heads):
        raise UnsupportedError(f"{width} features do not split into {heads} heads")
    return b.transpose(b.reshape(x, (batch, steps, heads, width // heads)), (0, 2, 1, 3))


def merge_heads(b: Builder, x: str) -> str:
    """[B, heads, S, D] to [B, S, heads * D]."""
    batch, heads, steps, width = b.shape(x)
    return b.reshape(b.transpose(x, (0, 2, 1, 3)), (batch, steps, heads * width))
