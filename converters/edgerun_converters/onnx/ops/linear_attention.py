"""LinearAttention, and the causal convolution that goes with it in models with a recurrent state."""

from __future__ import annotations

from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering
from edgerun_converters.onnx.delegate import delegate
from edgerun_converters.onnx.ops.attention import default_scale, merge_heads, split_heads


@lowering("LinearAttention")
def linear_attention(b: Builder, n: OnnxNode) -> None:
    query, key, value, state, decay, beta = (n.input(k) for k in range(6))
    heads, groups = int(n.attr("q_num_heads")), int(n.attr("kv_num_heads"))
    q, k, v = split_heads(b, query, heads), split_heads(b, key, groups), split_heads(b, value, groups)
    if decay:
        decay = split_heads(b, decay, groups)
    if beta:
        beta = b.transpose(b.reshape(beta, (*b.shape(beta), 1)), (0, 2, 1, 3))
    y, final = b.emit(
        "linear_attention",
        [q, k, v, state, decay, beta],
        rule=str(n.attr("update_rule", "gated_delta")),
        scale=float(n.attr("scale", 0.0)) or default_scale(b, q),
    )
    n.bind(merge_heads(b, y), final)


@lowering("CausalConvWithState")
def causal_conv_with_state(b: Builder, n: OnnxNode) -> None:
    x, w, bias, state = (n.input(k) for k in range(4))
    batch, channels, length = b.shape(x)
    kernel = b.shape(w)[2]
    if not isinstance(kernel, int) or not isinstance(channels, int):
        raise UnsupportedError("CausalConvWithState needs a kernel and channels that are known at conversion")
    kept = kernel - 1
    if not state:
        state = b.one("expand", [b.fill(x, 0)], to=(batch, channels, kept))
    padded = b.one("concat", [state, x], axis=2)
    y = delegate(b, n, "Conv", [padded, w, bias], opset=11, group=channels, kernel_shape=(kernel,))[0]
    activation = str(n.attr("activation", "none"))
    if activation in ("silu", "swish"):
        y = b.scalar("mul", y, b.scalar("sigmoid", y))
    elif activation != "none":
        raise UnsupportedError(f"there is no activation {activation!r} of CausalConvWithState")
    n.bind(y, b.one("slice", [padded], ranges=((2, length, kept, 1),)))
