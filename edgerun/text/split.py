"""Cutting a text into words, as the regular expressions of known tokenizers do it.

gpt2:    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+
digits:  every \\p{N} alone, then gpt2 on what lies between
llama3:  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|
         \\s*[\\r\\n]+|\\s+(?!\\S)|\\s+
qwen2:   llama3 with \\p{N} alone
none:    the whole text is one word
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from edgerun.text.vocabulary import LETTER, NUMBER, SPACE

CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


class Splitter:
    """One way to split, with the classes of characters that it needs."""

    def __init__(self, split: str, classes: np.ndarray) -> None:
        self.split = split
        self._first: list[int] = classes[:, 0].tolist()
        self._last: list[int] = (classes[:, 1] & 0xFFFFFF).tolist()
        self._kind: list[int] = (classes[:, 1] >> 24).tolist()
        self._known: dict[str, int] = {}

    def kind(self, character: str) -> int:
        """LETTER, NUMBER, SPACE or 0."""
        found = self._known.get(character)
        if found is None:
            code = ord(character)
            at = bisect_right(self._first, code) - 1
            found = self._kind[at] if at >= 0 and code <= self._last[at] else 0
            self._known[character] = found
        return found

    def words(self, text: str) -> Iterator[str]:
        """The words, in order; joined they are the text."""
        if self.split == "none":
            if text:
                yield text
            return
        ends = self._gpt2 if self.split in ("gpt2", "digits") else self._llama3
        for piece in self._pieces(text):
            kinds = [self.kind(c) for c in piece]
            at = 0
            while at < len(piece):
                end = ends(piece, kinds, at)
                yield piece[at:end]
                at = end

    def _pieces(self, text: str) -> Iterator[str]:
        if self.split != "digits":
            yield text
            return
        start = 0
        for i, character in enumerate(text):
            if self.kind(character) == NUMBER:
                if start < i:
                    yield text[start:i]
                yield character
                start = i + 1
        if start < len(text):
            yield text[start:]

    def _gpt2(self, text: str, kinds: list[int], at: int) -> int:
        for ending in CONTRACTIONS:
            if text.startswith(ending, at):
                return at + len(ending)
        start = at + (text[at] == " ")
        if start < len(text) and kinds[start] != SPACE:
            return _run(kinds, start)
        return _white(text, kinds, at)

    def _llama3(self, text: str, kinds: list[int], at: int) -> int:
        for ending in CONTRACTIONS:
            if text[at : at + len(ending)].lower() == ending:
                return at + len(ending)
        if kinds[at] == LETTER:
            return _run(kinds, at)
        if kinds[at] == NUMBER:
            return min(_run(kinds, at), at + (3 if self.split == "llama3" else 1))
        if text[at] not in "\r\n" and at + 1 < len(text) and kinds[at + 1] == LETTER:
            return _run(kinds, at + 1)
        start = at + (text[at] == " ")
        if start < len(text) and kinds[start] == 0:
            end = _run(kinds, start)
            while end < len(text) and text[end] in "\r\n":
                end += 1
            return end
        end = _run(kinds, at)
        newline = max(text.rfind("\r", at, end), text.rfind("\n", at, end))
        return newline + 1 if newline >= 0 else _white(text, kinds, at)


def _run(kinds: list[int], at: int) -> int:
    """The end of the characters of one kind from `at` on."""
    end = at + 1
    while end < len(kinds) and kinds[end] == kinds[at]:
        end += 1
    return end


def _white(text: str, kinds: list[int], at: int) -> int:
    """White space, but for the last character when a word follows."""
    end = _run(kinds, at)
    return end if end == len(text) or end == at + 1 else end - 1
