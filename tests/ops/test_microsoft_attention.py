"""Attention operators of com.microsoft against onnxruntime."""

import numpy as np
import pytest

from edgerun.errors import EdgerunError
from tests.ops.single_node import NodeCase, assert_same

f32 = np.float32
MS = "com.microsoft"


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(f32)


def node(op_type, inputs, outputs=1, constant=(), wanted=(), **attributes):
    return NodeCase(op_type, inputs, attributes, outputs=outputs, opset=1, domain=MS, constant=constant, wanted=wanted)


def qkv(batch=2, steps=3, length=5, width=8, value=8):
    return {
        "q": normal(batch, steps, width, seed=1), "k": normal(batch, length, width, seed=2),
        "v": normal(batch, length, value, seed=3),
    }  # fmt: skip


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention(biased, causal):
    inputs = qkv(length=3) | {"b": normal(24, seed=4) if biased else None}
    node("MultiHeadAttention", inputs, num_heads=2, unidirectional=causal).check()


def test_multi_head_attention_with_scale_and_other_value_size():
    node("MultiHeadAttention", qkv(value=12), num_heads=2, scale=0.3).check()


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_multi_head_attention_masks(rank):
    mask = {
        1: np.array([4, 2], np.int32),
        2: np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], np.int32),
        3: np.tril(np.ones((2, 3, 5), np.int32), 1),
    }[rank]
    inputs = qkv() | {"b": None, "m": mask}
    node("MultiHeadAttention", inputs, num_heads=2).check()


def test_multi_head_attention_with_a_bias_and_a_past():
    inputs = qkv(length=3) | {
        "b": None, "m": None, "a": normal(1, 2, 3, 7, seed=5), "pk": normal(2, 2, 4, 4, seed=6),
        "pv": normal(2, 2, 4, 4, seed=7),
    }  # fmt: skip
    node("MultiHeadAttention", inputs, outputs=3, num_heads=2).check()


def test_multi_head_attention_with_packed_inputs():
    separate = qkv(length=3)
    q, k, v = (a.reshape(2, 3, 2, 4) for a in separate.values())
    expected = node("MultiHeadAttention", separate, num_heads=2).edgerun()
    packed = node("MultiHeadAttention", {"q": np.stack([q, k, v], axis=3)}, num_heads=2)
    assert_same(packed.edgerun(), expected)
    halves = {"q": separate["q"], "kv": np.stack([k, v], axis=3)}
    assert_same(node("MultiHeadAttention", halves, num_heads=2).edgerun(), expected)
    split = {"q": separate["q"], "k": k.transpose(0, 2, 1, 3), "v": v.transpose(0, 2, 1, 3)}
    assert_same(node("MultiHeadAttention", split, num_heads=2).edgerun(), expected)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", [None, np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32), np.array([3, 4], np.int32)])
def test_attention_with_its_projection(causal, mask):
    inputs = {"x": normal(2, 4, 8), "w": normal(8, 24, seed=1), "b": normal(24, seed=2), "m": mask}
    node("Attention", inputs, num_heads=2, unidirectional=causal).check()


def test_attention_with_a_past():
    inputs = {
        "x": normal(2, 3, 8), "w": normal(8, 24, seed=1), "b": normal(24, seed=2), "m": None,
        "p": normal(2, 2, 2, 5, 4, seed=3),
    }  # fmt: skip
    node("Attention", inputs, outputs=2, num_heads=2, unidirectional=1).check()


@pytest.mark.parametrize("past", [False, True])
def test_attention_with_a_quantised_projection(past):
    r = np.random.default_rng(0)
    inputs = {
        "x": r.integers(0, 256, (2, 3, 8)).astype(np.uint8), "w": r.integers(-128, 128, (8, 24)).astype(np.int8),
        "b": normal(24), "xs": np.array(0.02, f32), "ws": np.array(0.01, f32),
        "m": np.array([[1, 1, 0], [1, 1, 1]], np.int32) if not past else None, "xz": np.array(120, np.uint8),
        "wz": np.array(0, np.int8), "p": normal(2, 2, 2, 5, 4, seed=3) if past else None,
    }  # fmt: skip
    attributes = {"num_heads": 2, "unidirectional": int(past)}
    node("QAttention", inputs, 1 + past, ("w", "wz"), **attributes).check(rtol=1e-3, atol=1e-4)


def test_unsupported_inputs_are_refused():
    inputs = qkv() | {"b": None, "m": None, "a": None, "pk": None, "pv": None, "pl": np.array([1], np.int32)}
    with pytest.raises(EdgerunError, match="past_sequence_length"):
        node("MultiHeadAttention", inputs, num_heads=2).graph()


def grouped(steps, past, lengths, total, heads=4, groups=2, size=16, rotary=0, capacity=None):
    """Inputs of GroupQueryAttention: `past` valid entries in a cache of `capacity`."""
    batch = len(lengths)
    capacity = past if capacity is None else capacity
    inputs = {
        "q": normal(batch, steps, heads * size, seed=1), "k": normal(batch, steps, groups * size, seed=2),
        "v": normal(batch, steps, groups * size, seed=3),
        "pk": normal(batch, groups, capacity, size, seed=4), "pv": normal(batch, groups, capacity, size, seed=5),
        "sl": np.array([n - 1 for n in lengths], np.int32), "t": np.array(total, np.int32),
    }  # fmt: skip
    if rotary:
        angles = normal(32, size // 2, seed=6)
        inputs |= {"c": np.cos(angles), "s": np.sin(angles)}
    return inputs


@pytest.mark.parametrize("rotary", [0, 1])
@pytest.mark.parametrize("attributes", [{}, {"local_window_size": 2}, {"softcap": 0.7, "scale": 0.2}], ids=str)
@pytest.mark.parametrize("shape", [(4, 0, [4], 4), (1, 5, [6], 6), (3, 5, [8], 8), (1, 5, [6, 6], 6)], ids=str)
def test_group_query_attention(rotary, attributes, shape):
    steps, past, lengths, total = shape
    inputs = grouped(steps, past, lengths, total, rotary=rotary)
    case = node("GroupQueryAttention", inputs, 3, num_heads=4, kv_num_heads=2, do_rotary=rotary, **attributes)
    case.check(rtol=1e-3, atol=1e-4)


def test_group_query_attention_with_interleaved_rotation():
    inputs = grouped(3, 2, [5], 5, rotary=1)
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": 1}
    node("GroupQueryAttention", inputs, 3, **attributes).check(rtol=1e-3, atol=1e-4)


def test_group_query_attention_with_different_lengths():
    inputs = grouped(1, 5, [6, 4], 6)
    case = node("GroupQueryAttention", inputs, 3, num_heads=4, kv_num_heads=2)
    (y, k, v), (ey, ek, ev) = case.edgerun(), case.reference()
    np.testing.assert_allclose(y, ey, atol=1e-4)
    for b, count in enumerate([6, 4]):
        np.testing.assert_allclose(k[b, :, :count], ek[b, :, :count], atol=1e-5)
        np.testing.assert_allclose(v[b, :, :count], ev[b, :, :count], atol=1e-5)


def test_group_query_attention_with_packed_inputs():
    inputs = grouped(3, 2, [5], 5, rotary=1)
    attributes = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    expected = node("GroupQueryAttention", inputs, 3, **attributes).edgerun()
    packed = inputs | {"q": np.concatenate([inputs["q"], inputs["k"], inputs["v"]], axis=2), "k": None, "v": None}
    assert_same(node("GroupQueryAttention", packed, 3, **attributes).edgerun(), expected)


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("offset", [False, True])
def test_rotary_embedding(rank, interleaved, offset):
    x = normal(2, 3, 24) if rank == 3 else normal(2, 3, 5, 8)
    steps = 3 if rank == 3 else 5
    angles = normal(16, 4, seed=1)
    positions = np.array([4]) if offset else np.random.default_rng(2).integers(0, 16, (2, steps))
    inputs = {"x": x, "p": positions, "c": np.cos(angles), "s": np.sin(angles)}
    node("RotaryEmbedding", inputs, interleaved=interleaved).check()


def test_partial_rotary_embedding():
    angles = normal(16, 2, seed=1)
    inputs = {"x": normal(2, 3, 24), "p": np.array([1]), "c": np.cos(angles), "s": np.sin(angles)}
    node("RotaryEmbedding", inputs, num_heads=3, rotary_embedding_dim=4).check()
