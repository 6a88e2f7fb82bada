"""Attention and rotary embedding against a direct float64 computation and hand values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.backends.numpy.attention import attention as kernel
from edgerun.errors import EdgerunError
from tests.ops.single_node import NodeCase

f32 = np.float32


def heads(batch=2, query=4, groups=2, steps=3, length=5, size=8, value=6, seed=0):
    r = np.random.default_rng(seed)
    shapes = [(batch, query, steps, size), (batch, groups, length, size), (batch, groups, length, value)]
    return [r.standard_normal(s).astype(f32) for s in shapes]


def direct(q, k, v, bias=None, scale=None, softcap=0.0):
    """One query head at a time, in float64; bias [B, H, Sq, T] with -inf for masked keys."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    batch, count, steps, size = q.shape
    ratio = count // k.shape[1]
    y = np.zeros((batch, count, steps, v.shape[3]))
    for b in range(batch):
        for h in range(count):
            for i in range(steps):
                logits = k[b, h // ratio] @ q[b, h, i] * (scale or size**-0.5)
                if softcap:
                    logits = softcap * np.tanh(logits / softcap)
                if bias is not None:
                    logits = logits + bias[b, h, i]
                if np.isneginf(logits).all():
                    continue
                e = np.exp(logits - logits.max())
                y[b, h, i] = e / e.sum() @ v[b, h // ratio]
    return y


def node(q, k, v, mask=None, past_k=None, past_v=None, nonpad=None, *, outputs=1, opset=25, **attributes):
    inputs = {"q": q, "k": k, "v": v, "m": mask, "pk": past_k, "pv": past_v, "n": nonpad}
    return NodeCase("Attention", inputs, attributes, outputs=outputs, opset=opset)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("attributes", [{}, {"scale": 0.3}, {"softcap": 0.5}], ids=str)
def test_grouped_heads(groups, attributes):
    q, k, v = heads(groups=groups)
    (y,) = node(q, k, v, **attributes).edgerun()
    np.testing.assert_allclose(y, direct(q, k, v, **attributes), atol=1e-5)


def test_boolean_float_and_short_masks():
    q, k, v = heads()
    r = np.random.default_rng(1)
    allowed = r.random((2, 1, 3, 5)) < 0.6
    (y,) = node(q, k, v, allowed).edgerun()
    np.testing.assert_allclose(y, direct(q, k, v, np.where(allowed, 0, -np.inf).repeat(4, 1)), atol=1e-5)
    added = r.standard_normal((3, 5)).astype(f32)
    (y,) = node(q, k, v, added).edgerun()
    np.testing.assert_allclose(y, direct(q, k, v, np.broadcast_to(added, (2, 4, 3, 5))), atol=1e-5)
    (y,) = node(q, k, v, added[:, :3]).edgerun()
    padded = np.pad(added[:, :3], [(0, 0), (0, 2)], constant_values=-np.inf)
    np.testing.assert_allclose(y, direct(q, k, v, np.broadcast_to(padded, (2, 4, 3, 5))), atol=1e-5)


def test_fully_masked_query_gives_zeros():
    q, k, v = heads()
    allowed = np.ones((3, 5), bool)
    allowed[1] = False
    q[:, :, 1] = np.inf
    y, _, _, weights = node(q, k, v, allowed, outputs=4, qk_matmul_output_mode=3).edgerun()
    assert not y[:, :, 1].any() and not weights[:, :, 1].any()
    assert np.isfinite(y).all()


def band(offset, steps, total, left=-1, right=-1, causal=False):
    p, j = np.arange(steps)[:, None] + offset, np.arange(total)
    allowed = np.ones((steps, total), bool)
    if causal:
        allowed &= j <= p
    if left >= 0:
        allowed &= j >= p - left
    if right >= 0:
        allowed &= j <= p + right
    return np.where(allowed, 0, -np.inf)


@pytest.mark.parametrize("window", [{}, {"left": 1}, {"left": 2, "right": 1}, {"causal": True, "left": 1}], ids=str)
def test_windows_count_from_the_past(window):
    q, k, v = heads()
    r = np.random.default_rng(2)
    past_k, past_v = r.standard_normal((2, 2, 4, 8)).astype(f32), r.standard_normal((2, 2, 4, 6)).astype(f32)
    attributes = {"left_window_size": window.get("left", -1), "right_window_size": window.get("right", -1)}
    case = node(q, k, v, None, past_k, past_v, outputs=3, is_causal=int(window.get("causal", False)), **attributes)
    y, present_k, present_v = case.edgerun()
    np.testing.assert_array_equal(present_k, np.concatenate([past_k, k], 2))
    np.testing.assert_array_equal(present_v, np.concatenate([past_v, v], 2))
    bias = np.broadcast_to(band(4, 3, 9, **window), (2, 4, 3, 9))
    np.testing.assert_allclose(y, direct(q, present_k, present_v, bias), atol=1e-5)


def test_external_cache_aligns_the_diagonal_with_the_valid_keys():
    q, k, v = heads()
    lengths = np.array([5, 2], np.int64)
    (y,) = node(q, k, v, nonpad=lengths, is_causal=1).edgerun()
    bias = np.zeros((2, 4, 3, 5))
    for b, count in enumerate(lengths):
        bias[b] = band(count - 3, 3, 5, causal=True) + np.where(np.arange(5) < count, 0, -np.inf)
    np.testing.assert_allclose(y, direct(q, k, v, bias), atol=1e-5)
    assert not y[1, :, 0].any()


def test_score_outputs():
    q, k, v = heads(groups=4)
    added = np.random.default_rng(3).standard_normal((3, 5)).astype(f32)
    raw = q @ k.swapaxes(2, 3) / np.sqrt(f32(8))
    capped = 0.7 * np.tanh(raw / 0.7)
    e = np.exp(capped + added)
    for mode, expected in enumerate([raw, capped, capped + added, e / e.sum(-1, keepdims=True)]):
        *_, scores = node(q, k, v, added, outputs=4, softcap=0.7, qk_matmul_output_mode=mode).edgerun()
        np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_rank_three_inputs():
    q, k, v = heads()
    (expected,) = node(q, k, v).edgerun()
    flat = [a.transpose(0, 2, 1, 3).reshape(2, a.shape[2], -1) for a in (q, k, v)]
    (y,) = node(*flat, q_num_heads=4, kv_num_heads=2).edgerun()
    np.testing.assert_array_equal(y, expected.transpose(0, 2, 1, 3).reshape(2, 3, -1))


def test_half_precision():
    q, k, v = heads()
    (y,) = node(*(a.astype(np.float16) for a in (q, k, v)), is_causal=1).edgerun()
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, direct(q, k, v, np.broadcast_to(band(0, 3, 5, causal=True), (2, 4, 3, 5))), atol=5e-3)


def test_sink_takes_part_in_the_denominator_only():
    q, k, v = heads(groups=4)
    sink = np.array([0.5, -1, 2, 0], f32)
    y, *_ = kernel(q, k, v, sink=sink, scale=0.25)
    e = np.exp(q @ k.swapaxes(2, 3) * 0.25)
    weights = e / (e.sum(-1, keepdims=True) + np.exp(sink)[None, :, None, None])
    np.testing.assert_allclose(y, weights @ v, atol=1e-5)


def test_head_counts_that_do_not_divide_are_refused():
    q, k, v = heads(query=3)
    with pytest.raises(EdgerunError, match="no multiple"):
        node(q, k, v).graph()


def rotate(x, angles, interleaved):
    """Complex multiplication by exp(i * angle): x [B, H, S, D], angles [B, S, R/2]."""
    half = angles.shape[-1]
    y = x.astype(np.float64)
    a = slice(0, 2 * half, 2) if interleaved else slice(half)
    b = slice(1, 2 * half, 2) if interleaved else slice(half, 2 * half)
    z = (y[..., a] + 1j * y[..., b]) * np.exp(1j * angles)[:, None]
    y[..., a], y[..., b] = z.real, z.imag
    return y


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("flat", [False, True])
def test_rotary_embedding(interleaved, partial, flat):
    r = np.random.default_rng(4)
    x = r.standard_normal((2, 3, 5, 8)).astype(f32)
    half = 2 if partial else 4
    angles = r.standard_normal((10, half)).astype(f32)
    positions = r.integers(0, 10, (2, 5))
    given = x.transpose(0, 2, 1, 3).reshape(2, 5, 24) if flat else x
    attributes = {
        "interleaved": interleaved,
        "num_heads": 3 if flat else 0,
        "rotary_embedding_dim": 4 if partial else 0,
    }
    inputs = {"x": given, "c": np.cos(angles), "s": np.sin(angles), "p": positions}
    (y,) = NodeCase("RotaryEmbedding", inputs, attributes, opset=23).edgerun()
    if flat:
        y = y.reshape(2, 5, 3, 8).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(y, rotate(x, angles[positions], interleaved), atol=1e-5)
    inputs = {"x": given, "c": np.cos(angles[positions]), "s": np.sin(angles[positions])}
    (z,) = NodeCase("RotaryEmbedding", inputs, attributes, opset=23).edgerun()
    if flat:
        z = z.reshape(2, 5, 3, 8).transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(y, z)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4))
def test_order_of_the_keys_does_not_matter(seed, length, steps):
    q, k, v = heads(steps=steps, length=length, seed=seed)
    order = np.random.default_rng(seed).permutation(length)
    (y,) = node(q, k, v).edgerun()
    (z,) = node(q, k[:, :, order], v[:, :, order]).edgerun()
    np.testing.assert_allclose(y, z, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5))
def test_one_call_equals_two_with_a_cache(seed, first, second):
    q, k, v = heads(steps=first + second, length=first + second, seed=seed)
    (whole,) = node(q, k, v, is_causal=1).edgerun()
    (q0, k0, v0), (q1, k1, v1) = ([a[:, :, part] for a in (q, k, v)] for part in (slice(first), slice(first, None)))
    begin, past_k, past_v = node(q0, k0, v0, outputs=3, is_causal=1).edgerun()
    end, _, _ = node(q1, k1, v1, None, past_k, past_v, outputs=3, is_causal=1).edgerun()
    np.testing.assert_allclose(np.concatenate([begin, end], axis=2), whole, atol=1e-5)
