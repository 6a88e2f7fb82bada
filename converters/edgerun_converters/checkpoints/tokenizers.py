"""Tokenizers of checkpoints (tokenizer.json of Hugging Face, metadata of GGUF files) to edgerun's own form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.errors import EdgerunError, ImportFailure, UnsupportedError
from edgerun.text.vocabulary import (
    ADD_BOS,
    ADD_SPACE,
    BYTE,
    CONTROL,
    WHOLE_WORDS,
    Vocabulary,
    from_bytes,
    sorted_merges,
)
from edgerun_converters.checkpoints import chat
from edgerun_converters.checkpoints.checkpoint import read_json

GGUF_SPLITS = {
    "default": "gpt2", "gpt-2": "gpt2", "gpt2": "gpt2", "smollm": "digits", "starcoder": "digits", "refact": "digits",
    "llama-bpe": "llama3", "llama3": "llama3", "llama-v3": "llama3", "smaug-bpe": "llama3", "qwen2": "qwen2",
    "deepseek-r1-qwen": "qwen2",
}  # fmt: skip
"""Values of tokenizer.ggml.pre."""
_GGUF_CONTROL, _GGUF_USER, _GGUF_UNKNOWN, _GGUF_BYTE = 3, 4, 2, 6
_STOPS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>", "<|end|>", "<end_of_turn>")
"""Control tokens that end a text in the models that have them, besides those that a checkpoint names."""


def _byte_characters() -> dict[str, int]:
    """GPT-2's printable characters for bytes: printable Latin-1 stands for itself, the rest for U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


_BYTES = _byte_characters()


def _byte_level(token: str) -> bytes:
    """The bytes of a byte-level token; characters outside the table stand for their UTF-8."""
    return b"".join(bytes([_BYTES[c]]) if c in _BYTES else c.encode("utf-8", "replace") for c in token)


def _piece(token: str) -> tuple[bytes, bool]:
    """(bytes, whether it is a byte token) of a SentencePiece token."""
    match = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token)
    return (bytes([int(match.group(1), 16)]), True) if match else (_spaced(token), False)


def _spaced(token: str) -> bytes:
    """SentencePiece writes spaces as U+2581."""
    return token.replace("▁", " ").encode("utf-8", "replace")


def _pairs(merges: Sequence[tuple[bytes, bytes]], numbers: Mapping[bytes, int]) -> Iterator[tuple[int, int, int, int]]:
    for rank, (left, right) in enumerate(merges):
        a, b, c = numbers.get(left), numbers.get(right), numbers.get(left + right)
        if a is not None and b is not None and c is not None:
            yield a, b, rank, c


def _scored_pairs(
    tokens: Sequence[bytes], scores: Sequence[float], usable: Sequence[bool]
) -> Iterator[tuple[int, int, int, int]]:
    """SentencePiece merges any two tokens that make a token, the one of the best score first."""
    numbers = {token: i for i, token in enumerate(tokens) if usable[i]}
    ranks = {s: r for r, s in enumerate(sorted(set(scores), reverse=True))}
    for token, i in numbers.items():
        for cut in range(1, len(token)):
            a, b = numbers.get(token[:cut]), numbers.get(token[cut:])
            if a is not None and b is not None:
                yield a, b, ranks[scores[i]], i


def from_gguf(path: Path, metadata: Mapping[str, Any]) -> np.ndarray | None:
    """The tokenizer of a GGUF file, None when it has none. Raises ImportFailure, UnsupportedError."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if tokens is None:
        return None
    model, roles = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.token_type", [])
    pairs, scores = metadata.get("tokenizer.ggml.merges", []), metadata.get("tokenizer.ggml.scores", [])
    if not _texts(tokens) or not _texts(pairs) or not isinstance(roles, list) or not isinstance(scores, list):
        raise ImportFailure(f"{path}: the tokenizer is malformed")
    roles = roles or [1] * len(tokens)
    if len(roles) != len(tokens):
        raise ImportFailure(f"{path}: {len(roles)} types for {len(tokens)} tokens")
    control = [i for i, role in enumerate(roles) if role in (_GGUF_CONTROL, _GGUF_UNKNOWN)]
    special = [i for i, role in enumerate(roles) if role in (_GGUF_CONTROL, _GGUF_USER) and tokens[i]]
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    flags = ADD_BOS if metadata.get("tokenizer.ggml.add_bos_token", model == "llama") is True else 0
    made = np.zeros(len(tokens), np.uint8)
    if model == "gpt2":
        name = metadata.get("tokenizer.ggml.pre", "default")
        if name not in GGUF_SPLITS:
            known = ", ".join(GGUF_SPLITS)
            raise UnsupportedError(f"{path}: the tokenizer splits words by {name!r}", hint=f"known: {known}")
        split = GGUF_SPLITS[name]
        flags |= WHOLE_WORDS if split == "llama3" else 0
        chosen = set(special)
        texts = [t.encode("utf-8", "replace") if i in chosen else _byte_level(t) for i, t in enumerate(tokens)]
        numbers = {t: i for i, t in reversed(list(enumerate(texts)))}
        merges = sorted_merges(_pairs([_halves(p, _byte_level) for p in pairs], numbers))
        kind = "bytes"
    elif model == "llama" and len(scores) == len(tokens):
        pieces = [_piece(t) for t in tokens]
        texts, split, kind = [p for p, _ in pieces], "none", "pieces"
        made[[i for i, (_, byte) in enumerate(pieces) if byte]] = BYTE
        usable = [roles[i] in (1, _GGUF_USER) and not byte for i, (_, byte) in enumerate(pieces)]
        merges = sorted_merges(_scored_pairs(texts, scores, usable))
        flags |= ADD_SPACE if metadata.get("tokenizer.ggml.add_space_prefix", True) is True else 0
    else:
        raise UnsupportedError(f"{path}: the tokenizer {model!r} is not known", hint="gpt2 and llama are")
    made[control] = CONTROL
    stops = [metadata.get("tokenizer.ggml.eos_token_id"), metadata.get("tokenizer.ggml.eot_token_id")]
    template = metadata.get("tokenizer.chat_template")
    names = {k: tokens[v] for k, v in (("bos_token", bos), ("eos_token", stops[0])) if _is_index(v, len(tokens))}
    return _checked(path, kind, split, texts, merges, flags, special, stops, made, bos, chat.around(template, names))


def _halves(pair: str, convert: Any) -> tuple[bytes, bytes]:
    left, _, right = pair.partition(" ")
    return convert(left), convert(right)


def from_folder(folder: Path) -> np.ndarray | None:
    """The tokenizer of a model folder (tokenizer.json), None when it has none. Errors as `from_gguf`."""
    path = folder / "tokenizer.json"
    if not path.exists():
        return None
    document = read_json(path)
    extra = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
    model = document.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict) or model.get("type", "BPE") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else None
        raise UnsupportedError(f"{path}: the tokenizer {kind!r} is not known", hint="BPE is")
    vocabulary, added = dict(model["vocab"]), document.get("added_tokens", [])
    try:
        vocabulary |= {row["content"]: row["id"] for row in added}
        special = [row["id"] for row in added]
        control = [row["id"] for row in added if row.get("special")]
        pairs = [tuple(m) if isinstance(m, list) else tuple(m.split(" ", 1)) for m in model.get("merges", [])]
        size = len(vocabulary)
        tokens: list[str] = [""] * size
        for token, number in vocabulary.items():
            tokens[number] = token
        if not all(isinstance(t, str) for pair in pairs for t in pair) or any(len(p) != 2 for p in pairs):
            raise ValueError
    except (TypeError, KeyError, ValueError, IndexError, AttributeError) as e:
        raise ImportFailure(f"{path} is malformed, or its token numbers have gaps") from e
    flags = WHOLE_WORDS if model.get("ignore_merges") is True else 0
    roles = np.zeros(size, np.uint8)
    _check_normalizer(path, document, model.get("byte_fallback") is True)
    if model.get("byte_fallback") is True:
        pieces = [_piece(t) for t in tokens]
        texts, split, kind = [p for p, _ in pieces], "none", "pieces"
        roles[[i for i, (_, byte) in enumerate(pieces) if byte]] = BYTE
        flags |= ADD_SPACE if _prepends(document) else 0
        convert = _spaced
    else:
        split, kind = _split_of(path, document.get("pre_tokenizer")), "bytes"
        chosen = set(special)
        texts = [t.encode("utf-8", "replace") if i in chosen else _byte_level(t) for i, t in enumerate(tokens)]
        convert = _byte_level
    roles[control] = CONTROL
    numbers = {t: i for i, t in reversed(list(enumerate(texts))) if roles[i] == 0}
    merges = sorted_merges(_pairs([(convert(a), convert(b)) for a, b in pairs], numbers))
    known = {t: i for i, t in enumerate(tokens)}
    first, adds = _first_token(path, document, extra)
    bos, eos = known.get(first), known.get(_content(extra.get("eos_token")))
    flags |= ADD_BOS if adds and bos is not None else 0
    names = {k: _content(extra.get(k)) for k in ("bos_token", "eos_token") if extra.get(k)}
    template = extra.get("chat_template")
    if (folder / "chat_template.jinja").exists():
        template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    return _checked(path, kind, split, texts, merges, flags, special, [eos], roles, bos, chat.around(template, names))


def _content(token: Any) -> str:
    """The text of a token of tokenizer_config.json."""
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else ""


def _first_token(path: Path, document: dict[str, Any], extra: dict[str, Any]) -> tuple[str, bool]:
    """(the token that starts a text, whether the tokenizer puts it there). UnsupportedError for other additions."""
    bos = _content(extra.get("bos_token"))
    rule = document.get("post_processor")
    rows = rule.get("processors", [rule]) if isinstance(rule, dict) else []
    for row in rows:
        single = row.get("single") if isinstance(row, dict) and row.get("type") == "TemplateProcessing" else None
        if not isinstance(single, list):
            continue
        names = [part.get("SpecialToken", {}).get("id") for part in single if isinstance(part, dict)]
        if len(names) != len(single) or any(names[1:]) or len(names) > 2:
            raise UnsupportedError(f"{path}: the tokenizer adds other tokens than one at the start")
        if names[0]:
            return str(names[0]), extra.get("add_bos_token") is not False
    return bos, extra.get("add_bos_token") is True


def _check_normalizer(path: Path, document: dict[str, Any], pieces: bool) -> None:
    """NFC is left to the caller; anything else that changes texts is refused."""
    rule = document.get("normalizer")
    rows = rule.get("normalizers", [rule]) if isinstance(rule, dict) else []
    known = ("Prepend", "Replace") if pieces else ("NFC",)
    kinds = [row.get("type") if isinstance(row, dict) else row for row in rows]
    if any(kind not in known for kind in kinds):
        raise UnsupportedError(f"{path}: texts are normalised in a way that is not known: {kinds}")


def _prepends(document: dict[str, Any]) -> bool:
    """Whether a space is put before the text."""
    text = str(document.get("normalizer")) + str(document.get("pre_tokenizer"))
    return "'Prepend'" in text or "'prepend_scheme': 'first'" in text or "'prepend_scheme': 'always'" in text


def _split_of(path: Path, rule: Any) -> str:
    """The way that a pre-tokenizer cuts words. Raises UnsupportedError for one that is not known."""
    rows = rule.get("pretokenizers", [rule]) if isinstance(rule, dict) else []
    kinds = [row.get("type") for row in rows if isinstance(row, dict)]
    if kinds == ["ByteLevel"] and rows[0].get("use_regex", True):
        return "gpt2"
    if kinds == ["Digits", "ByteLevel"] and rows[0].get("individual_digits") and rows[1].get("use_regex", True):
        return "digits"
    if kinds == ["Split", "ByteLevel"] and not rows[1].get("use_regex", True):
        pattern = str(rows[0].get("pattern"))
        if "(?i:'s|'t|'re|'ve|'m|'ll|'d)" in pattern and "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+" in pattern:
            return "llama3" if "\\\\p{N}{1,3}" in pattern else "qwen2"
    raise UnsupportedError(f"{path}: the words are split in a way that is not known: {str(rule)[:300]}")


def _texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(v, str) for v in values)


def _is_index(value: Any, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count


def _checked(
    path: Path,
    kind: str,
    split: str,
    texts: list[bytes],
    merges: np.ndarray,
    flags: int,
    special: list[int],
    stops: list[Any],
    roles: np.ndarray,
    bos: Any,
    around: tuple[str, str],
) -> np.ndarray:
    """The bytes, read back once: what a file can hold wrong comes out here."""
    n = len(texts)
    named = [i for i in stops if _is_index(i, n)]
    named += [i for i, t in enumerate(texts) if roles[i] == CONTROL and t.decode("utf-8", "replace") in _STOPS]
    first = bos if _is_index(bos, n) else None
    flags &= ~ADD_BOS if first is None else ~0
    special = [i for i in special if texts[i]]
    made = Vocabulary(kind, split, texts, merges, flags, special, sorted(set(named)), roles, first, *around).to_bytes()
    try:
        from_bytes(made)
    except EdgerunError as e:
        raise ImportFailure(f"{path}: {e.message}") from e
    return made
