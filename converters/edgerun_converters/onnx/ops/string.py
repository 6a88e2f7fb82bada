"""String operators and TfIdfVectorizer."""

from __future__ import annotations

from edgerun.errors import UnsupportedError
from edgerun.regex import compile_re2
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering


@lowering("StringConcat")
def string_concat(b: Builder, n: OnnxNode) -> None:
    n.bind(b.one("string_concat", [n.input(0), n.input(1)]))


@lowering("StringSplit")
def string_split(b: Builder, n: OnnxNode) -> None:
    maxsplit = n.attr("maxsplit", None)
    n.bind(*b.emit("string_split", [n.input(0)], delimiter=str(n.attr("delimiter", "") or ""), maxsplit=maxsplit))


@lowering("StringNormalizer")
def string_normalizer(b: Builder, n: OnnxNode) -> None:
    """The locale is not needed: case is changed by the Unicode rules, which depend on none."""
    n.bind(
        b.one(
            "string_normalize",
            [n.input(0)],
            case=str(n.attr("case_change_action", "NONE")).lower(),
            case_sensitive=bool(n.attr("is_case_sensitive", 0)),
            stopwords=tuple(n.attr("stopwords", ())),
        )
    )


@lowering("RegexFullMatch")
def regex_full_match(b: Builder, n: OnnxNode) -> None:
    pattern = n.attr("pattern", "")
    compile_re2(pattern)
    n.bind(b.one("regex_full_match", [n.input(0)], pattern=pattern))


@lowering("TfIdfVectorizer")
def tfidf_vectorizer(b: Builder, n: OnnxNode) -> None:
    numbers, words = n.attr("pool_int64s", ()), n.attr("pool_strings", ())
    if bool(numbers) == bool(words):
        raise UnsupportedError("TfIdfVectorizer needs either pool_int64s or pool_strings")
    n.bind(
        b.one(
            "tfidf",
            [n.input(0)],
            pool=tuple(numbers or words),
            counts=tuple(n.attr("ngram_counts")),
            indexes=tuple(n.attr("ngram_indexes")),
            weights=tuple(float(w) for w in n.attr("weights", ())),
            mode=str(n.attr("mode")).lower(),
            shortest=int(n.attr("min_gram_length")),
            longest=int(n.attr("max_gram_length")),
            skip=int(n.attr("max_skip_count")),
        )
    )
