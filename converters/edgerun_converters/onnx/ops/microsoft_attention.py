"""Attention operators of com.microsoft: Attention, MultiHeadAttention, GroupQueryAttention, RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Sequence

from edgerun.dims import DimLike
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering
from edgerun_converters.onnx.delegate import absent_unless, refuse_attributes
from edgerun_converters.onnx.ops.attention import check_rotary_size, default_scale, merge_heads, split_heads
from edgerun_converters.onnx.ops.microsoft_quant import scaled_product
from edgerun_converters.onnx.ops.quant import scalar

MICROSOFT = "com.microsoft"
_MHA_INPUTS = (
    "query", "key", "value", "bias", "key_padding_mask", "attention_bias", "past_key", "past_value",
    "past_sequence_length", "cache_indirection",
)  # fmt: skip
_GQA_INPUTS = (
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos_cache", "sin_cache",
    "position_ids", "attention_bias", "head_sink", "k_scale", "v_scale", "q_norm_weight", "k_norm_weight",
    "query_seqlens",
)  # fmt: skip


@lowering("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(b: Builder, n: OnnxNode) -> None:
    absent_unless(n, range(8), _MHA_INPUTS)
    heads = int(n.attr("num_heads"))
    q, k, v = _projections(b, n, heads)
    past_k, past_v = n.input(6), n.input(7)
    _attend(b, n, q, k, v, n.input(4), n.input(5), past_k, past_v)


def _projections(b: Builder, n: OnnxNode, heads: int) -> tuple[str, str, str]:
    """q, k and v [B, N, S, D] from separate or packed inputs, biases added."""
    query, key, value, bias = (n.input(i) for i in range(4))
    if b.rank(query) == 5:
        parts = _unpacked(b, query, 3)
        if bias:
            raise UnsupportedError("MultiHeadAttention with packed inputs and a bias is not supported")
        return parts[0], parts[1], parts[2]
    flat = [query]
    if not key:
        raise UnsupportedError("MultiHeadAttention needs a key or packed inputs")
    separate = b.rank(key) == 3
    if separate:
        flat += [key, value]
    if bias:
        start: DimLike = 0
        if not separate:
            raise UnsupportedError("MultiHeadAttention with a bias and packed or split keys is not supported")
        for i, x in enumerate(flat):
            width = b.shape(x)[2]
            flat[i] = b.scalar("add", x, b.one("slice", [bias], ranges=((0, start, width, 1),)))
            start = start + width
    q = split_heads(b, flat[0], heads)
    if separate:
        return q, split_heads(b, flat[1], heads), split_heads(b, flat[2], heads)
    if b.rank(key) == 5:
        k, v = _unpacked(b, key, 2)
        return q, k, v
    return q, key, value


def _unpacked(b: Builder, x: str, count: int) -> list[str]:
    """[B, S, N, count, D] to `count` tensors [B, N, S, D]."""
    batch, steps, heads, _, size = b.shape(x)
    parts = []
    for i in range(count):
        part = b.one("slice", [x], ranges=((3, i, 1, 1),))
        parts.append(b.transpose(b.reshape(part, (batch, steps, heads, size)), (0, 2, 1, 3)))
    return parts


@lowering("Attention", domain=MICROSOFT)
def attention(b: Builder, n: OnnxNode) -> None:
    refuse_attributes(n, do_rotary=0, past_present_share_buffer=0)
    absent_unless(n, range(6), ("", "", "", "", "", "", "past_sequence_length"))
    x, weights, bias, mask, past, added = (n.input(i) for i in range(6))
    product = b.one("matmul", [x, weights])
    if bias:
        product = b.scalar("add", product, bias)
    total = b.shape(weights)[1]
    sizes = [int(s) for s in n.attr("qkv_hidden_sizes", ())] or [total // 3] * 3
    _attend_to_itself(b, n, product, sizes, mask, added, past)


@lowering("QAttention", domain=MICROSOFT)
def quantised_attention(b: Builder, n: OnnxNode) -> None:
    """Attention whose projection is a product of integers."""
    refuse_attributes(n, do_rotary=0, past_present_share_buffer=0)
    x, weights, bias, x_scale, w_scale, mask, x_zero, w_zero, past = (n.input(i) for i in range(9))
    x_scale, w_scale, x_zero, w_zero = (scalar(b, p) for p in (x_scale, w_scale, x_zero, w_zero))
    product = scaled_product(b, x, weights, x_scale, w_scale, x_zero, w_zero, bias)
    _attend_to_itself(b, n, product, [b.shape(weights)[1] // 3] * 3, mask, "", past)


def _attend_to_itself(
    b: Builder, n: OnnxNode, product: str, sizes: Sequence[DimLike], mask: str, added: str, past: str
) -> None:
    """Attention of a joint projection [B, S, sum of sizes] with a joint past [2, B, N, P, D]."""
    heads = int(n.attr("num_heads"))
    start: DimLike = 0
    parts: list[str] = []
    for size in sizes:
        parts.append(split_heads(b, b.one("slice", [product], ranges=((2, start, size, 1),)), heads))
        start = start + size
    q, k, v = parts
    past_k = past_v = ""
    if past:
        shape = b.shape(past)[1:]
        past_k, past_v = (b.reshape(b.one("slice", [past], ranges=((0, i, 1, 1),)), shape) for i in range(2))
    _attend(b, n, q, k, v, mask, added, past_k, past_v, joined=True)


def _attend(
    b: Builder,
    n: OnnxNode,
    q: str,
    k: str,
    v: str,
    padding: str,
    added: str,
    past_k: str,
    past_v: str,
    *,
    joined: bool = False,
) -> None:
    """Bind the outputs of an attention node; `padding` is a mask of lengths or of zeros and ones, `added` a bias.

    `joined` asks for the present keys and values in one tensor [2, B, N, T, D].
    """
    causal = bool(n.attr("unidirectional", 0))
    nonpad = offset = ""
    mask = added
    if padding:
        rank = b.rank(padding)
        if rank == 1:
            _require_lengths(b, q, padding)
            nonpad = padding
        elif rank in (2, 3):
            bias = _mask_bias(b, padding, float(n.attr("mask_filter_value", -10000.0)), b.dtype(q))
            mask = b.scalar("add", mask, bias) if mask else bias
        else:
            raise UnsupportedError(f"{n.op_type} with a mask of rank {rank} is not supported")
    if causal and nonpad:
        offset = b.one("shape", [past_k], start=2, end=3) if past_k else b.const([0], DType.I64)
    if n.wants(3):
        raise UnsupportedError(f"{n.op_type} with the output 'qk' is not supported")
    y, present_k, present_v = b.emit(
        "attention",
        [q, k, v, mask, past_k, past_v, nonpad, offset],
        3,
        scale=float(n.attr("scale", 0.0)) or default_scale(b, q),
        causal=causal,
    )
    y = merge_heads(b, y)
    if not joined:
        n.bind(y, present_k, present_v)
    elif n.wants(1):
        parts = [b.reshape(p, (1, *b.shape(p))) for p in (present_k, present_v)]
        n.bind(y, b.one("concat", parts, axis=0))
    else:
        n.bind(y)


def _require_lengths(b: Builder, q: str, padding: str) -> None:
    """A rank-1 mask holds one length a sequence, or also start positions, which are not supported."""
    count, batch = b.shape(padding)[0], b.shape(q)[0]
    if isinstance(count, int) and isinstance(batch, int) and count != batch:
        raise UnsupportedError(f"a mask with {count} numbers for {batch} sequences (start positions) is not supported")


def _mask_bias(b: Builder, mask: str, closed: float, dtype: DType) -> str:
    """Zeros and ones [B, T] or [B, S, T] to 0 where one, else `closed`, [B, 1, 1 or S, T]."""
    shape = b.shape(mask)
    wide = (shape[0], 1, 1, shape[1]) if len(shape) == 2 else (shape[0], 1, shape[1], shape[2])
    opened = b.cast(b.reshape(mask, wide), DType.BOOL)
    return b.scalar("where", opened, b.const(0.0, dtype), b.const(closed, dtype))


@lowering("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(b: Builder, n: OnnxNode) -> None:
    absent_unless(n, range(12), _GQA_INPUTS)
    refuse_attributes(
        n, k_quant_type="NONE", v_quant_type="NONE", kv_cache_bit_width=0, qk_output=0, sliding_window_cache=0
    )
    heads, groups = int(n.attr("num_heads")), int(n.attr("kv_num_heads"))
    query, key, value, past_k, past_v, last, total = (n.input(i) for i in range(7))
    if not key:
        query, key, value = _split_packed(b, query, heads, groups)
    q, k, v = split_heads(b, query, heads), split_heads(b, key, groups), split_heads(b, value, groups)
    batch, _, steps, _ = b.shape(q)

    lengths = b.scalar("add", b.cast(b.reshape(last, (batch,)), DType.I64), b.const(1, DType.I64))
    added = _dimension(b, q, 2, steps)
    before = b.scalar("max", b.scalar("sub", lengths, added), b.const(0, DType.I64))
    if n.attr("do_rotary", 0):
        cos, sin, positions = n.input(7), n.input(8), n.input(9)
        if not positions:
            positions = b.scalar("add", b.reshape(before, (batch, 1)), _range(b, added))
        cos, sin = b.one("gather", [cos, positions], axis=0), b.one("gather", [sin, positions], axis=0)
        interleaved = bool(n.attr("rotary_interleaved", 0))
        q, k = (b.one("rotary", [t, cos, sin], interleaved=interleaved) for t in (q, k))
    if past_k:
        k = b.one("cache_update", [past_k, k, before, total])
        v = b.one("cache_update", [past_v, v, before, total])
    sink = n.input(11)
    if not sink and n.attr("smooth_softmax", 0) == 1:
        sink = b.const([0.0] * heads, b.dtype(q))
    window = int(n.attr("local_window_size", -1))
    y = b.one(
        "attention",
        [q, k, v, n.input(10), "", "", lengths, before, sink],
        scale=float(n.attr("scale", 0.0)) or default_scale(b, q),
        causal=bool(n.attr("causal", 1)),
        softcap=float(n.attr("softcap", 0.0)),
        left=window - 1 if window > 0 else -1,
    )
    n.bind(merge_heads(b, y), k, v)


def _split_packed(b: Builder, packed: str, heads: int, groups: int) -> tuple[str, str, str]:
    """[B, S, (heads + 2 * groups) * D] to queries, keys and values."""
    size = b.shape(packed)[2] // (heads + 2 * groups)
    start: DimLike = 0
    parts = []
    for count in (heads, groups, groups):
        parts.append(b.one("slice", [packed], ranges=((2, start, size * count, 1),)))
        start = start + size * count
    return parts[0], parts[1], parts[2]


def _dimension(b: Builder, x: str, axis: int, size: DimLike) -> str:
    """A dimension of x as a rank-0 i64 tensor."""
    if isinstance(size, int):
        return b.const(size, DType.I64)
    return b.reshape(b.one("shape", [x], start=axis, end=axis + 1), ())


def _range(b: Builder, count: str) -> str:
    """0, 1, ... count - 1 as i64."""
    return b.one("range", [b.const(0, DType.I64), count, b.const(1, DType.I64)])


@lowering("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(b: Builder, n: OnnxNode) -> None:
    refuse_attributes(n, is_packed_batching=0, scale=1.0)
    x, positions, cos, sin = (n.input(i) for i in range(4))
    flat = b.rank(x) == 3
    rotated = int(n.attr("rotary_embedding_dim", 0))
    if flat:
        heads = int(n.attr("num_heads", 0))
        if not heads:
            width, half = b.shape(x)[2], b.shape(cos)[1]
            if not isinstance(width, int) or not isinstance(half, int) or rotated:
                raise UnsupportedError("RotaryEmbedding needs the attribute num_heads here")
            heads = width // (2 * half)
        x = split_heads(b, x, heads)
    positions = b.cast(positions, DType.I64)
    if b.rank(positions) == 1:
        steps = _dimension(b, x, 2, b.shape(x)[2])
        positions = b.scalar("add", b.reshape(positions, (1, 1)), _range(b, steps))
    cos, sin = b.one("gather", [cos, positions], axis=0), b.one("gather", [sin, positions], axis=0)
    check_rotary_size(b, cos, rotated, b.shape(x)[3])
    y = b.one("rotary", [x, cos, sin], interleaved=bool(n.attr("interleaved", 0)))
    n.bind(merge_heads(b, y) if flat else y)
