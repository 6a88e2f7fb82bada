"""How many tokens a tokenizer needs for texts in each script.

A script that was rare in training falls back to single bytes: every letter costs several tokens, so a text costs
several times as much memory and time as an English one of the same length, and less of it fits into the context.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass

from edgerun.text.tokenizer import Tokenizer


@dataclass
class Row:
    """Counts of the words of one script. `fragments`: tokens that are no whole characters."""

    script: str
    words: int = 0
    characters: int = 0
    tokens: int = 0
    fragments: int = 0


def script_of(word: str) -> str:
    """The script of most letters and marks: the first word of their Unicode names; "Other" without letters."""
    names = [unicodedata.name(c, "OTHER").split()[0] for c in word if unicodedata.category(c)[0] in "LM"]
    return Counter(names).most_common(1)[0][0].capitalize() if names else "Other"


def measure(tokenizer: Tokenizer, text: str) -> list[Row]:
    """A row for each script, most words first. Words are what white space separates, each encoded after a space."""
    rows: dict[str, Row] = {}
    for word, count in Counter(text.split()).items():
        row = rows.setdefault(script := script_of(word), Row(script))
        tokens = tokenizer.encode(f" {word}", specials=False)
        row.words += count
        row.characters += count * len(word)
        row.tokens += count * len(tokens)
        row.fragments += count * sum(not _whole(tokenizer.bytes_of(t)) for t in tokens)
    return sorted(rows.values(), key=lambda row: -row.words)


def _whole(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
