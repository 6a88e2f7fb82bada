"""Linear attention against a step-by-step computation in float64, causal convolution against a direct sum."""

from typing import Any

import numpy as np
import pytest

from edgerun.errors import EdgerunError
from tests.ops.single_node import NodeCase

f32 = np.float32


def case(rule, heads=4, groups=2, steps=5, size=3, width=2, per_key=False, state=True, **attributes):
    r = np.random.default_rng(0)
    gated, corrected = "gated" in rule, "delta" in rule

    def normal(*shape):
        return r.standard_normal(shape).astype(f32)

    inputs = {
        "q": normal(2, steps, heads * size), "k": normal(2, steps, groups * size),
        "v": normal(2, steps, groups * width), "s": normal(2, groups, size, width) if state else None,
        "d": -np.abs(normal(2, steps, groups * (size if per_key else 1))) if gated else None,
        "b": r.random((2, steps, groups)).astype(f32) if corrected else None,
    }  # fmt: skip
    attributes |= {"q_num_heads": heads, "kv_num_heads": groups, "update_rule": rule}
    return NodeCase("LinearAttention", inputs, attributes, outputs=2, opset=27)


def direct(inputs, rule, heads, groups, scale):
    """One batch, head and step at a time."""
    arrays: dict[str, Any] = {k: None if a is None else a.astype(np.float64) for k, a in inputs.items()}
    q, k, v = (arrays[n] for n in "qkv")
    size, width, steps = q.shape[2] // heads, v.shape[2] // groups, q.shape[1]
    y = np.zeros((len(q), steps, heads * width))
    final = np.zeros((len(q), groups, size, width)) if arrays["s"] is None else arrays["s"].copy()
    for b in range(len(q)):
        for g in range(groups):
            s = final[b, g]
            for t in range(steps):
                key, value = k[b, t, g * size : (g + 1) * size], v[b, t, g * width : (g + 1) * width]
                if arrays["d"] is not None:
                    decay = arrays["d"][b, t].reshape(groups, -1)[g]
                    s = s * np.exp(decay)[:, None]
                if arrays["b"] is not None:
                    value = arrays["b"][b, t, g] * (value - s.T @ key)
                s = s + np.outer(key, value)
                for h in range(g * heads // groups, (g + 1) * heads // groups):
                    y[b, t, h * width : (h + 1) * width] = scale * s.T @ q[b, t, h * size : (h + 1) * size]
            final[b, g] = s
    return y, final


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("per_key", [False, True])
@pytest.mark.parametrize("state", [False, True])
def test_update_rules(rule, per_key, state):
    node = case(rule, per_key=per_key, state=state)
    y, final = node.edgerun()
    expected, last = direct(node.inputs, rule, 4, 2, 3**-0.5)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(final, last, rtol=1e-4, atol=1e-5)


def test_scale_and_equal_head_counts():
    node = case("gated_delta", heads=2, scale=0.25)
    expected, _ = direct(node.inputs, "gated_delta", 2, 2, 0.25)
    np.testing.assert_allclose(node.edgerun()[0], expected, rtol=1e-4, atol=1e-5)


def test_missing_decay_is_refused():
    node = case("linear")
    node.attributes = {**node.attributes, "update_rule": "gated"}
    with pytest.raises(EdgerunError, match="decay"):
        node.graph()


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("length", [1, 6])
@pytest.mark.parametrize("state", [False, True])
def test_causal_convolution(activation, length, state):
    r = np.random.default_rng(1)
    x, w, bias = (r.standard_normal(s).astype(f32) for s in ((2, 3, length), (3, 1, 4), (3,)))
    past = r.standard_normal((2, 3, 3)).astype(f32) if state else None
    node = NodeCase(
        "CausalConvWithState", {"x": x, "w": w, "b": bias, "s": past}, {"activation": activation}, outputs=2, opset=27
    )
    y, final = node.edgerun()
    padded = np.concatenate([np.zeros((2, 3, 3), f32) if past is None else past, x], axis=2)
    expected = np.stack([(padded[:, :, t : t + 4] * w[:, 0]).sum(2) + bias for t in range(length)], axis=2)
    if activation == "silu":
        expected = expected / (1 + np.exp(-expected))
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_array_equal(final, padded[:, :, length:])
