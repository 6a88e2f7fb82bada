"""Text to tokens and back: byte pair encoding (Sennrich et al. 2015, arXiv 1508.07909) over a Vocabulary."""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterable, Iterator
from functools import cached_property

from edgerun.text.split import Splitter
from edgerun.text.vocabulary import ADD_BOS, ADD_SPACE, BYTE, CONTROL, NORMAL, WHOLE_WORDS, Vocabulary


class Tokenizer:
    """Encodes and decodes. The packed program's tokenizer.c does the same, byte for byte."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.roles: list[int] = vocabulary.roles.tolist() or [NORMAL] * len(vocabulary.tokens)
        self._splitter = Splitter(vocabulary.split, vocabulary.classes)
        self._specials = [(vocabulary.tokens[i], i) for i in vocabulary.specials]

    @cached_property
    def _merges(self) -> dict[tuple[int, int], tuple[int, int]]:
        return {(a, b): (rank, result) for a, b, rank, result in self.vocabulary.merges.tolist()}

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        """Token by its bytes: control tokens left out, of equal ones the first that is NORMAL."""
        table: dict[bytes, int] = {}
        for role in (NORMAL, BYTE):
            for number, token in enumerate(self.vocabulary.tokens):
                if self.roles[number] == role:
                    table.setdefault(token, number)
        return table

    def encode(self, text: str, *, specials: bool = True) -> list[int]:
        """Token numbers. `specials`: whether tokens such as <|im_start|> are recognised in the text.

        Characters that no token stands for are left out (byte-level vocabularies have none).
        """
        flags = self.vocabulary.flags
        found = [self.vocabulary.bos] if flags & ADD_BOS and self.vocabulary.bos is not None else []
        first = True
        for part in self._parts(text.encode("utf-8", "surrogatepass"), specials):
            if isinstance(part, int):
                found.append(part)
            else:
                piece = part.decode("utf-8", "replace")
                if first and flags & ADD_SPACE:
                    piece = " " + piece
                for word in self._splitter.words(piece):
                    found += self._word(word)
            first = False
        return found

    def _parts(self, text: bytes, specials: bool) -> Iterator[bytes | int]:
        """The text around special tokens, and their numbers."""
        start = at = 0
        while specials and self._specials and at < len(text):
            hit = next(((t, n) for t, n in self._specials if text.startswith(t, at)), None)
            if hit is None:
                at += 1
                continue
            if start < at:
                yield text[start:at]
            yield hit[1]
            start = at = at + len(hit[0])
        if start < len(text):
            yield text[start:]

    def _word(self, word: str) -> list[int]:
        if self.vocabulary.flags & WHOLE_WORDS:
            whole = self._numbers.get(word.encode())
            if whole is not None:
                return [whole]
        return self._merged(self._symbols(word))

    def _symbols(self, word: str) -> list[int]:
        numbers = self._numbers
        found: list[int] = []
        for unit in word if self.vocabulary.kind == "pieces" else (word,):
            raw = unit.encode("utf-8", "replace")
            if self.vocabulary.kind == "pieces" and raw in numbers:
                found.append(numbers[raw])
            else:
                found += [self._byte(b) for b in raw if self._byte(b) >= 0]
        return found

    def _byte(self, byte: int) -> int:
        """The token of a single byte, -1 when there is none."""
        return self._numbers.get(bytes([byte]), -1)

    def _merged(self, symbols: list[int]) -> list[int]:
        """Merge the pair of least rank, the leftmost of equals, until there is none."""
        merges = self._merges
        while len(symbols) > 1:
            pairs = enumerate(itertools.pairwise(symbols))
            best = min(((merges[pair][0], i) for i, pair in pairs if pair in merges), default=None)
            if best is None:
                break
            i = best[1]
            symbols[i : i + 2] = [merges[symbols[i], symbols[i + 1]][1]]
        return symbols

    def bytes_of(self, token: int) -> bytes:
        """What a token prints: nothing for control tokens."""
        return b"" if self.roles[token] == CONTROL else self.vocabulary.tokens[token]

    def decode(self, tokens: Iterable[int]) -> str:
        """The text. Bytes that are no UTF-8 become U+FFFD."""
        return "".join(self.stream(tokens))

    def stream(self, tokens: Iterable[int]) -> Iterator[str]:
        """Text as soon as its characters are complete."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        strip = bool(self.vocabulary.flags & ADD_SPACE)
        for token in tokens:
            raw = self.bytes_of(token)
            if strip and raw:
                raw, strip = raw.removeprefix(b" "), False
            yield decoder.decode(raw)
        yield decoder.decode(b"", True)
