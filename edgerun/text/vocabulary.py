"""The tokenizer as bytes: one format for bundles, plans and the packed program, whose tokenizer.c reads it in place.

    header: magic, then u32: kind, split, flags, tokens, merges, classes, specials, stops, bos, text bytes,
            prefix bytes, suffix bytes
    u32 ends[tokens]           where each token's bytes end in the text
    u32 sorted[tokens]         token numbers in the order of their bytes
    u32 merges[merges][4]      left, right, rank, result; sorted by (left, right)
    u32 classes[classes][2]    first code point, last code point | class << 24; sorted, for splitting
    u32 specials[specials]     tokens that are recognised in text as they stand, longest first
    u32 stops[stops]           tokens that end a text
    u8 roles[tokens]           NORMAL, CONTROL or BYTE; padded to 4 bytes
    u8 text, prefix, suffix    the bytes of all tokens; what a chat puts before and after a message

All integers are little-endian. `from_bytes` checks everything, so that encoding needs no checks.
"""

from __future__ import annotations

import itertools
import struct
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from edgerun.errors import FileFormatError

MAGIC = b"EDGETOK1"
HEADER = struct.Struct("<8s12I")
NONE = 0xFFFFFFFF
MAX_TOKEN = 4096
"""Longest token, bytes."""

KINDS = ("bytes", "pieces")
"""Byte-level BPE: texts start as bytes. SentencePiece BPE: as characters, those without a token as bytes."""
SPLITS = ("none", "gpt2", "digits", "llama3", "qwen2")
"""How a text is cut into words, between which nothing merges (edgerun/text/split.py)."""
ADD_BOS, ADD_SPACE, WHOLE_WORDS = 1, 2, 4
"""Flags: every text starts with the token bos; a space is put before it; words that are tokens are not merged."""
LETTER, NUMBER, SPACE = 1, 2, 3
NORMAL, CONTROL, BYTE = 0, 1, 2
"""Roles of tokens: CONTROL ones are not printed and never come from ordinary text, BYTE ones stand for a byte that no
other token has."""


def _classes() -> np.ndarray:
    return character_classes()


@dataclass(frozen=True)
class Vocabulary:
    """What a tokenizer knows; see the module docstring."""

    kind: str
    split: str
    tokens: list[bytes]
    merges: np.ndarray
    """u32 [n, 4], sorted: left, right, rank, result."""
    flags: int = 0
    specials: list[int] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    roles: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))
    """u8 [tokens]; empty: all NORMAL."""
    bos: int | None = None
    prefix: str = ""
    suffix: str = ""
    classes: np.ndarray = field(default_factory=_classes)

    def to_bytes(self) -> np.ndarray:
        """The tokenizer as u8 [n]."""
        text = b"".join(self.tokens)
        prefix, suffix = self.prefix.encode(), self.suffix.encode()
        head = HEADER.pack(
            MAGIC, KINDS.index(self.kind), SPLITS.index(self.split), self.flags, len(self.tokens), len(self.merges),
            len(self.classes), len(self.specials), len(self.stops), NONE if self.bos is None else self.bos, len(text),
            len(prefix), len(suffix),
        )  # fmt: skip
        ends = np.cumsum([len(t) for t in self.tokens]).astype("<u4")
        order = np.array(sorted(range(len(self.tokens)), key=lambda i: (self.tokens[i], i)), "<u4")
        roles = np.zeros(-(-len(self.tokens) // 4) * 4, np.uint8)
        roles[: len(self.roles)] = self.roles
        longest_first = sorted(self.specials, key=lambda i: (-len(self.tokens[i]), i))
        tables = [ends, order, self.merges, self.classes, longest_first, self.stops]
        parts = [head, *(np.asarray(t, "<u4").tobytes() for t in tables), roles.tobytes(), text, prefix, suffix]
        return np.frombuffer(b"".join(parts), np.uint8)


def from_bytes(data: np.ndarray | bytes | memoryview) -> Vocabulary:
    """Read a tokenizer. Raises FileFormatError for anything else, however hostile."""
    raw = bytes(data)
    if len(raw) < HEADER.size or raw[:8] != MAGIC:
        raise FileFormatError("this is no tokenizer")
    (_, kind, split, flags, n, n_merges, n_classes, n_specials, n_stops, bos, n_text, n_prefix, n_suffix) = (
        HEADER.unpack_from(raw)
    )
    at = HEADER.size
    total = at + 4 * (2 * n + 4 * n_merges + 2 * n_classes + n_specials + n_stops) + -(-n // 4) * 4
    _require(total + n_text + n_prefix + n_suffix == len(raw), "its size is wrong")
    _require(kind < len(KINDS) and split < len(SPLITS) and 0 < n < 1 << 24, "its header is malformed")

    def take(count: int) -> np.ndarray:
        nonlocal at
        at += 4 * count
        return np.frombuffer(raw, "<u4", count, at - 4 * count)

    ends, order, merges = take(n).astype(np.int64), take(n), take(4 * n_merges).reshape(-1, 4)
    classes, specials, stops = take(2 * n_classes).reshape(-1, 2), take(n_specials), take(n_stops)
    lengths = np.diff(ends, prepend=0)
    _require(lengths.min() >= 0 and lengths.max() <= MAX_TOKEN and ends[-1] == n_text, "its tokens are malformed")
    numbers = [order, merges[:, [0, 1, 3]], specials, stops]
    _require(all(a.size == 0 or a.max() < n for a in numbers) and (bos < n or bos == NONE), "it names unknown tokens")
    roles = np.frombuffer(raw, np.uint8, n, at)
    _require(bool((roles <= BYTE).all()), "a token has an unknown role")
    text = raw[at + -(-n // 4) * 4 :]
    tokens = [text[e - c : e] for e, c in zip(ends.tolist(), lengths.tolist(), strict=True)]
    keys = [(tokens[i], i) for i in order.tolist()]
    _require(all(a < b for a, b in itertools.pairwise(keys)), "its index is not sorted")
    pairs = merges[:, 0].astype(np.uint64) << np.uint64(32) | merges[:, 1]
    _require(bool((pairs[1:] > pairs[:-1]).all()), "its merges are not sorted")
    joined = all(tokens[c] == tokens[a] + tokens[b] for a, b, _, c in merges.tolist())
    _require(joined, "a merge gives another text than its parts")
    _require(all(tokens[i] for i in specials.tolist()), "a special token is empty")
    last = classes[:, 1] & 0xFFFFFF
    _require(bool((classes[:, 0] <= last).all() and (classes[1:, 0] > last[:-1]).all()), "its classes are not sorted")
    return Vocabulary(
        KINDS[kind],
        SPLITS[split],
        tokens,
        merges,
        flags,
        specials.tolist(),
        stops.tolist(),
        roles,
        None if bos == NONE else bos,
        text[n_text : n_text + n_prefix].decode("utf-8", "replace"),
        text[n_text + n_prefix :].decode("utf-8", "replace"),
        classes,
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise FileFormatError(f"the tokenizer is damaged: {message}")


def sorted_merges(rows: Iterator[tuple[int, int, int, int]]) -> np.ndarray:
    """(left, right, rank, result) as the table u32 [n, 4]; of rows with one pair the first stays."""
    table: dict[tuple[int, int], tuple[int, int]] = {}
    for left, right, rank, result in rows:
        table.setdefault((left, right), (rank, result))
    return np.array([(a, b, *table[a, b]) for a, b in sorted(table)], "<u4").reshape(-1, 4)


@cache
def character_classes() -> np.ndarray:
    """Letters, numbers and white space as ranges u32 [n, 2], from this Python's Unicode tables."""
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        category = unicodedata.category(character)[0]
        white = character.isspace() and not 0x1C <= code <= 0x1F
        kind = SPACE if white else {"L": LETTER, "N": NUMBER}.get(category, 0)
        if not kind:
            continue
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == kind:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, kind])
    return np.array([(first, last | kind << 24) for first, last, kind in ranges], "<u4")
