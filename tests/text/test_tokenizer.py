"""Tokenizers against what Hugging Face's library made of the same texts (tokenizers.json, make_tokenizers.py)."""

import contextlib
import json
import random
from pathlib import Path

import numpy as np
import pytest

from edgerun.errors import FileFormatError, ImportFailure, UnsupportedError
from edgerun.text.tokenizer import Tokenizer
from edgerun.text.vocabulary import from_bytes
from edgerun_converters.checkpoints import chat, tokenizers

REFERENCES = json.loads(Path(__file__).with_name("tokenizers.json").read_text())
TEXTS, KINDS = REFERENCES["texts"], REFERENCES["kinds"]


def converted(folder, name, extra=None):
    (folder / "tokenizer.json").write_text(json.dumps(KINDS[name]["tokenizer"]))
    (folder / "tokenizer_config.json").write_text(json.dumps(extra or {}))
    return tokenizers.from_folder(folder)


@pytest.mark.parametrize("name", KINDS)
def test_encodes_as_the_reference_and_back(tmp_path, name):
    tokenizer = Tokenizer(from_bytes(converted(tmp_path, name)))
    for text, ids in zip(TEXTS, KINDS[name]["ids"], strict=True):
        assert tokenizer.encode(text) == ids
        assert tokenizer.decode(tokenizer.encode(text, specials=False)) == text


def gguf_metadata(name):
    """The same tokenizer as a GGUF file describes it."""
    document = KINDS[name]["tokenizer"]
    tokens = [t for t, _ in sorted(document["model"]["vocab"].items(), key=lambda row: row[1])]
    special = {row["content"] for row in document["added_tokens"]}
    merges = [m if isinstance(m, str) else " ".join(m) for m in document["model"]["merges"]]
    rows = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.add_bos_token": False}
    if name != "pieces":
        kinds = [3 if t in special else 1 for t in tokens]
        return rows | {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.merges": merges,
                       "tokenizer.ggml.token_type": kinds}  # fmt: skip
    ranks = {m.replace(" ", ""): i for i, m in enumerate(merges)}
    kinds = [3 if t in special else 6 if t.startswith("<0x") else 1 for t in tokens]
    scores = [-float(ranks.get(t, -1)) for t in tokens]
    return rows | {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": kinds}


PRE = {"gpt2": "gpt-2", "digits": "smollm", "whole": "llama-bpe", "qwen2": "qwen2", "pieces": ""}


@pytest.mark.parametrize("name", PRE)
def test_gguf_metadata_give_the_same_tokens(name):
    metadata = {**gguf_metadata(name), "tokenizer.ggml.pre": PRE[name]}
    tokenizer = Tokenizer(from_bytes(tokenizers.from_gguf(Path("x"), metadata)))
    for text, ids in zip(TEXTS, KINDS[name]["ids"], strict=True):
        assert tokenizer.encode(text) == ids


def test_streaming_holds_back_incomplete_characters(tmp_path):
    tokenizer = Tokenizer(from_bytes(converted(tmp_path, "gpt2")))
    tokens = tokenizer.encode("é😀!")
    pieces = list(tokenizer.stream(tokens))
    assert "".join(pieces) == "é😀!" and len(tokens) > 3 and "\ufffd" not in "".join(pieces)
    assert tokenizer.decode(tokenizer.encode("😀")[:2]) == "\ufffd"


def test_a_text_starts_with_bos_where_the_checkpoint_says_so(tmp_path):
    raw = converted(tmp_path, "pieces", {"add_bos_token": True, "bos_token": "<s>", "eos_token": {"content": "</s>"}})
    tokenizer = Tokenizer(from_bytes(raw))
    assert tokenizer.encode("the")[0] == 1 and tokenizer.vocabulary.stops == [2]
    assert tokenizer.decode(tokenizer.encode("the")) == "the"


def test_what_a_tokenizer_adds_around_a_text(tmp_path):
    document = json.loads(json.dumps(KINDS["llama3"]["tokenizer"]))
    start, text = {"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}

    def tokens(single, **extra):
        document["post_processor"] = {"type": "Sequence", "processors": [
            {"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": single}]}  # fmt: skip
        (tmp_path / "tokenizer.json").write_text(json.dumps(document))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(extra))
        return Tokenizer(from_bytes(tokenizers.from_folder(tmp_path))).encode("the")

    plain = tokens([text])
    special = document["model"]["vocab"]["<|end|>"]
    assert tokens([start, text]) == [special, *plain] and tokens([start, text], add_bos_token=False) == plain
    for single in ([text, start], [start, text, start], [start, start]):
        with pytest.raises(UnsupportedError, match="adds other tokens"):
            tokens(single)
    document["normalizer"] = {"type": "NFC"}
    assert tokens([text]) == plain
    document["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}
    with pytest.raises(UnsupportedError, match="Lowercase"):
        tokens([text])


def test_chat_templates_are_rendered_once():
    turn = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    template = turn + "<|im_start|>assistant\n"
    expected = ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
    assert chat.around(template, {}) == expected
    assert chat.around("{{ ''.__class__.__mro__[1].__subclasses__() }} <|im_start|> <|im_end|>", {}) == expected
    assert chat.around("{{ 1 / 0 }}", {}) == ("", "")
    assert chat.around(None, {}) == ("", "")


def test_unknown_kinds_are_refused(tmp_path):
    document = json.loads(json.dumps(KINDS["gpt2"]["tokenizer"]))
    path = tmp_path / "tokenizer.json"
    for change, error in (
        ({"model": {"type": "WordPiece", "vocab": {}}}, UnsupportedError),
        ({"pre_tokenizer": {"type": "Whitespace"}}, UnsupportedError),
        ({"pre_tokenizer": None}, UnsupportedError),
        ({"added_tokens": [{"content": "x", "id": 10**9}]}, ImportFailure),
        ({"added_tokens": 5}, ImportFailure),
        ({"model": {**document["model"], "merges": [["a"]]}}, ImportFailure),
        ({"model": {**document["model"], "merges": [5]}}, ImportFailure),
    ):
        path.write_text(json.dumps({**document, **change}))
        with pytest.raises(error):
            tokenizers.from_folder(tmp_path)
    base = gguf_metadata("gpt2")
    for change, error in (
        ({"tokenizer.ggml.model": "t5"}, UnsupportedError),
        ({"tokenizer.ggml.pre": "mystery"}, UnsupportedError),
        ({"tokenizer.ggml.tokens": [1]}, ImportFailure),
        ({"tokenizer.ggml.token_type": [1]}, ImportFailure),
        ({"tokenizer.ggml.merges": 4}, ImportFailure),
    ):
        with pytest.raises(error):
            tokenizers.from_gguf(Path("x"), {**base, **change})
    assert tokenizers.from_gguf(Path("x"), {}) is None and tokenizers.from_folder(tmp_path / "none") is None


def test_mutated_bytes_are_refused_or_work(tmp_path):
    data = converted(tmp_path, "digits")
    generator = random.Random(9)
    refused = 0
    for _ in range(300):
        mutant = data.copy()
        for _ in range(generator.randint(1, 2)):
            mutant[generator.randrange(mutant.size)] = generator.randrange(256)
        mutant = mutant[: generator.randrange(mutant.size)] if generator.random() < 0.2 else mutant
        try:
            tokenizer = Tokenizer(from_bytes(mutant))
        except FileFormatError:
            refused += 1
            continue
        with contextlib.suppress(UnicodeDecodeError):
            tokenizer.decode(tokenizer.encode("It's 12 <|end|> ভাষা"))
    assert refused > 50
    with pytest.raises(FileFormatError):
        from_bytes(np.zeros(0, np.uint8))
