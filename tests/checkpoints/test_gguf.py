"""GGUF: every block type against the formulas of ggml-quants.c written out, a whole model, damaged files."""

import contextlib
import random
import struct

import numpy as np
import pytest

from edgerun.errors import EdgerunError, ImportFailure, UnsupportedError
from edgerun.session import from_graph, load_graph
from edgerun_converters.checkpoints import gguf
from edgerun_converters.checkpoints.packed import joined
from tests.checkpoints.gguf_writer import f32
from tests.checkpoints.gguf_writer import gguf as file_of
from tests.checkpoints.seeded import token_ids, weight
from tests.checkpoints.test_architectures import REFERENCES


def half(raw, at):
    return float(np.frombuffer(raw[at : at + 2], "<f2")[0])


def q4_0(raw):
    d = half(raw, 0)
    return [d * ((b & 15) - 8) for b in raw[2:18]] + [d * ((b >> 4) - 8) for b in raw[2:18]]


def q4_1(raw):
    d, m = half(raw, 0), half(raw, 2)
    return [d * (b & 15) + m for b in raw[4:20]] + [d * (b >> 4) + m for b in raw[4:20]]


def q8_0(raw):
    return [half(raw, 0) * q for q in struct.unpack("32b", raw[2:34])]


def q4_k(raw):
    d, dmin, packed, codes, out = half(raw, 0), half(raw, 2), raw[4:16], raw[16:], []
    for j in range(8):
        if j < 4:
            scale, minimum = packed[j] & 63, packed[j + 4] & 63
        else:
            scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4
            minimum = (packed[j + 4] >> 4) | (packed[j] >> 6) << 4
        group = codes[j // 2 * 32 : j // 2 * 32 + 32]
        out += [d * scale * (b >> 4 if j % 2 else b & 15) - dmin * minimum for b in group]
    return out


def q6_k(raw):
    low, high, scales, d, out = raw[:128], raw[128:192], struct.unpack("16b", raw[192:208]), half(raw, 208), [0.0] * 256
    for h in range(2):
        for i in range(32):
            a, b, c = low[64 * h + i], low[64 * h + i + 32], high[32 * h + i]
            codes = [
                a & 15 | (c & 3) << 4,
                b & 15 | (c >> 2 & 3) << 4,
                a >> 4 | (c >> 4 & 3) << 4,
                b >> 4 | c >> 6 << 4,
            ]
            for j, code in enumerate(codes):
                out[128 * h + 32 * j + i] = d * scales[8 * h + 2 * j + i // 16] * (code - 32)
    return out


BLOCKS = {
    "Q4_0": (q4_0, [0]),
    "Q4_1": (q4_1, [0, 2]),
    "Q8_0": (q8_0, [0]),
    "Q4_K": (q4_k, [0, 2]),
    "Q6_K": (q6_k, [208]),
}
KINDS = {layout.name: kind for kind, layout in gguf.LAYOUTS.items()}


def blocks(name, rows, columns, seed=0):
    """Random raw blocks with sensible scales, one of them zero: (bytes, the matrix they stand for)."""
    layout, (decode, halves) = gguf.LAYOUTS[KINDS[name]], BLOCKS[name]
    generator = np.random.default_rng(seed)
    raw = generator.integers(0, 256, (rows * columns // layout.block, layout.bytes), np.uint8)
    for at in halves:
        raw[:, at : at + 2] = generator.normal(0, 0.02, (len(raw), 1)).astype("<f2").view(np.uint8)
    raw[0, halves[0] : halves[0] + 2] = 0
    matrix = np.array([decode(block.tobytes()) for block in raw]).reshape(rows, columns)
    return raw.tobytes(), matrix.astype(np.float32)


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(tmp_path, name):
    raw, expected = blocks(name, 3, 512)
    path = tmp_path / "x.gguf"
    path.write_bytes(file_of({"general.architecture": "x"}, {"w": (KINDS[name], (3, 512), raw)}))
    found = gguf.read_file(path).tensors["w"]
    assert found.nbytes < expected.nbytes / 2
    np.testing.assert_allclose(found.rows(), expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    both = joined([found, found])
    np.testing.assert_array_equal(both.rows(), np.concatenate([found.rows(), found.rows()]))


def test_plain_types_and_metadata(tmp_path):
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    halves = {
        "h": (1, (2, 3), a.astype("<f2").tobytes()),
        "b": (30, (6,), (a.view(np.uint32) >> 16).astype("<u2").tobytes()),
    }
    metadata = {"k": 7, "t": "héllo", "list": ["a", "bc"], "numbers": [1, 2, 3], "yes": True, "real": 0.5}
    path = tmp_path / "x.gguf"
    path.write_bytes(file_of(metadata, {"a": f32(a), **halves}))
    found = gguf.read_file(path)
    assert found.metadata == metadata
    np.testing.assert_array_equal(found.tensors["a"], a)
    np.testing.assert_array_equal(found.tensors["h"], a)
    np.testing.assert_array_equal(found.tensors["b"], a.reshape(6))


NAMES = {
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v",
    "o_proj": "attn_output", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
}  # fmt: skip
METADATA = {
    "general.architecture": "llama", "llama.block_count": 2, "llama.context_length": 32, "llama.embedding_length": 48,
    "llama.feed_forward_length": 80, "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2,
    "llama.attention.key_length": 16, "llama.rope.freq_base": 10000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-6,
}  # fmt: skip


def llama_file(path, pack=lambda name, a: f32(a)):
    """The reference "llama" as a GGUF file, its queries and keys in the interleaved order of that format."""
    tensors = {}
    for name, shape in REFERENCES["llama"]["tensors"].items():
        a = weight(name, tuple(shape))
        parts = name.split(".")
        if parts[-2] in ("q_proj", "k_proj"):
            a = a.reshape(-1, 2, 8, 48).transpose(0, 2, 1, 3).reshape(a.shape)
        start = f"blk.{parts[2]}." if parts[1] == "layers" else ""
        tensors[f"{start}{NAMES[parts[-2]]}.weight"] = pack(name, a)
    path.write_bytes(file_of(METADATA, tensors))
    return path


def test_a_llama_equals_pytorch(tmp_path):
    graph = load_graph(llama_file(tmp_path / "m.gguf"))
    tokens = token_ids(97, 9)
    found = from_graph(graph, "numpy").run({"tokens": tokens, "position": np.array([0])})["logits"][0]
    expected = np.array(REFERENCES["llama"]["outputs"]["logits"])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_a_qwen_with_biases_equals_pytorch(tmp_path):
    """Its queries and keys lie as Hugging Face has them: rotated in halves."""
    tensors = {}
    for name, shape in REFERENCES["qwen2"]["tensors"].items():
        parts = name.split(".")
        start = f"blk.{parts[2]}." if parts[1] == "layers" else ""
        tensors[f"{start}{NAMES[parts[-2]]}.{parts[-1]}"] = f32(weight(name, tuple(shape)))
    config = REFERENCES["qwen2"]["config"]
    metadata = {k.replace("llama", "qwen2"): "qwen2" if v == "llama" else v for k, v in METADATA.items()}
    del metadata["qwen2.attention.key_length"]
    metadata["qwen2.attention.layer_norm_rms_epsilon"] = float(config["rms_norm_eps"])
    path = tmp_path / "m.gguf"
    path.write_bytes(file_of(metadata, tensors))
    found = from_graph(load_graph(path), "native").run({"tokens": token_ids(97, 9), "position": np.array([0])})[
        "logits"
    ][0]
    expected = np.array(REFERENCES["qwen2"]["outputs"]["logits"])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q4_1"])
def test_packed_weights_stay_packed_and_mean_the_same(tmp_path, name):
    """Every matrix whose rows divide into blocks is packed; the same values unpacked give the same logits."""
    metadata = {
        **METADATA, "llama.embedding_length": 64, "llama.feed_forward_length": 96, "llama.attention.key_length": 16,
        "llama.block_count": 1,
    }  # fmt: skip
    shapes = {"token_embd": (97, 64), "blk.0.attn_q": (64, 64), "blk.0.attn_k": (32, 64), "blk.0.attn_v": (32, 64),
              "blk.0.attn_output": (64, 64), "blk.0.ffn_gate": (96, 64), "blk.0.ffn_up": (96, 64),
              "blk.0.ffn_down": (64, 96)}  # fmt: skip
    norms = {f"{n}.weight": f32(np.ones(64)) for n in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")}
    made = {k: blocks(name, *shape, seed=i) for i, (k, shape) in enumerate(shapes.items())}
    packed = {f"{k}.weight": (KINDS[name], shapes[k], raw) for k, (raw, _) in made.items()}
    plain = {f"{k}.weight": f32(matrix) for k, (_, matrix) in made.items()}
    results, sizes = [], []
    for tensors in (packed, plain):
        path = tmp_path / "m.gguf"
        path.write_bytes(file_of(metadata, {**norms, **tensors}))
        graph = load_graph(path, context=8)
        sizes.append(graph.weight_bytes())
        for backend in ("numpy", "native"):
            feeds = {"tokens": token_ids(97, 5), "position": np.array([0])}
            results.append(from_graph(graph, backend).run(feeds)["logits"])
    assert sizes[0] < 0.45 * sizes[1]
    exact = results[2]  # packed products round their activations to 8 bits
    for found, tolerance in zip(results, (0.05, 0.05, 0, 1e-4), strict=True):
        np.testing.assert_allclose(found, exact, rtol=0, atol=tolerance * np.abs(exact).max())


def test_refusals(tmp_path):
    path = tmp_path / "m.gguf"
    embedding = {"token_embd.weight": f32(np.zeros((97, 48)))}
    cases = [
        (b"GGUF" + bytes(8), ImportFailure, "12 bytes"),
        (b"GGUX" + bytes(40), ImportFailure, "no GGUF"),
        (b"GGUF" + struct.pack("<I", 9) + bytes(40), ImportFailure, "version 9"),
        (file_of({"general.architecture": "mamba"}, {}), UnsupportedError, "'mamba'"),
        (file_of(METADATA, {}), ImportFailure, "token_embd"),
        (file_of(METADATA, {"token_embd.weight": (2, (1, 33), bytes(64))}), ImportFailure, "does not fit"),
        (file_of(METADATA, {"token_embd.weight": (99, (1, 32), bytes(64))}), UnsupportedError, "types \\[99\\]"),
        (file_of(METADATA, {"token_embd.weight": (0, (1 << 40, 1 << 40), bytes(64))}), ImportFailure, "does not fit"),
        (file_of({**METADATA, "llama.block_count": 1}, embedding), ImportFailure, "is missing"),
        (file_of({**METADATA, "llama.rope.scaling.type": "yarn"}, embedding), UnsupportedError, "yarn"),
    ]  # fmt: skip
    for data, error, message in cases:
        path.write_bytes(data)
        with pytest.raises(error, match=message):
            load_graph(path)


def test_mutated_files_never_crash(tmp_path):
    data = llama_file(tmp_path / "m.gguf").read_bytes()
    generator = random.Random(2)
    head = data.index(b"blk.1") + 2000
    for i in range(250):
        mutant = bytearray(data)
        for _ in range(generator.randint(1, 3)):
            at = generator.randrange(head)
            if generator.random() < 0.2:
                del mutant[at:]
                mutant = mutant or bytearray(b"x")
                break
            mutant[at] = generator.randrange(256)
        path = tmp_path / f"{i % 2}.gguf"
        path.unlink(missing_ok=True)
        path.write_bytes(mutant)
        with contextlib.suppress(EdgerunError):
            load_graph(path, optimize=False)
