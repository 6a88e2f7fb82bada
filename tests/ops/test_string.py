"""String operators against hand values and onnxruntime."""

import numpy as np
import pytest

from edgerun.errors import UnsupportedError
from edgerun.regex import compile_re2
from tests.ops.single_node import NodeCase


def strings(values):
    return np.array(values, dtype=object)


def test_concatenation_broadcasts():
    x, y = strings([["a", "b"], ["ü", ""]]), strings(["1", "2"])
    NodeCase("StringConcat", {"x": x, "y": y}, opset=20).check()


@pytest.mark.parametrize("delimiter", [None, "", ",", "--"])
@pytest.mark.parametrize("maxsplit", [None, 1])
def test_split(delimiter, maxsplit):
    x = strings([["a,b  c", "  lead, and trail "], ["", "x--y--z,,"]])
    attributes = {k: v for k, v in (("delimiter", delimiter), ("maxsplit", maxsplit)) if v is not None}
    y, counts = NodeCase("StringSplit", {"x": x}, attributes, outputs=2, opset=20).edgerun()
    for index in np.ndindex(x.shape):
        expected = x[index].split(delimiter or None, -1 if maxsplit is None else maxsplit)
        assert y[index].tolist() == expected + [""] * (y.shape[-1] - len(expected))
        assert counts[index] == len(expected)


def test_split_of_nothing():
    y, counts = NodeCase("StringSplit", {"x": strings([]).reshape(0, 2)}, outputs=2, opset=20).edgerun()
    assert y.shape == (0, 2, 0) and counts.shape == (0, 2)


@pytest.mark.parametrize("case", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("rank", [1, 2])
def test_normalizer(case, sensitive, rank):
    x = strings(["monday", "Tuesday", "MONDAY", "x"])
    attributes = {
        "case_change_action": case,
        "is_case_sensitive": sensitive,
        "stopwords": ["monday", "X"],
        "locale": "C",
    }
    NodeCase("StringNormalizer", {"x": x if rank == 1 else x[None]}, attributes, opset=10).check()


def test_normalizer_leaves_one_empty_string():
    attributes = {"stopwords": ["a"], "is_case_sensitive": 1}
    (y,) = NodeCase("StringNormalizer", {"x": strings(["a", "a"])}, attributes, opset=10).edgerun()
    assert y.tolist() == [""]


@pytest.mark.parametrize(
    ("pattern", "accepted", "refused"),
    [
        (r"www\.[\w.-]+\.com", ["www.a-b.com"], ["www.x.org", "http://www.a.com"]),
        (r"a$", ["a"], ["a\n"]),
        (r"a$\n", [], ["a\n"]),
        (r"\d+", ["123"], ["\u0663", ""]),
        (r"[[:alpha:]_]+", ["ab_C"], ["a1"]),
        (r"(?i)abc|d", ["ABC", "D"], ["e"]),
        (r"x(?i:y)z", ["xYz"], ["XYz"]),
        (r"\Qa.b\E+", ["a.b", "a.bb"], ["axb"]),
        (r"\x{41}\x42\103", ["ABC"], ["abc"]),
        (r"(?P<n>a|b){2,3}", ["ab", "bab"], ["a", "abab"]),
        (r"(?<n>a)", ["a"], ["b"]),
        (r"[]a]+", ["]a"], ["b"]),
        (r"[^\]]", ["a"], ["]"]),
        (r"a{,2}", ["a{,2}"], ["aa"]),
        (r"[a&&b]+", ["&ab"], ["c"]),
        (r"\s\S", ["\ta"], ["\va"]),
        (r"", [""], ["a"]),
    ],
)
def test_regular_expressions(pattern, accepted, refused):
    x = strings([*accepted, *refused])
    (y,) = NodeCase("RegexFullMatch", {"x": x}, {"pattern": pattern}, opset=20).edgerun()
    assert y.tolist() == [True] * len(accepted) + [False] * len(refused)


@pytest.mark.parametrize(
    "pattern",
    [r"(a)\1", "(?=a)", "(?<!a)b", "(?P<x>a)(?P=x)", "a*+", "(?>a)", r"\pL", "a(?i)b|c", "(", "a)", "[a", "\\", r"\Z"],
)
def test_what_re2_lacks_is_refused(pattern):
    with pytest.raises(UnsupportedError, match="regular expression"):
        compile_re2(pattern)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skip", [0, 1, 5])
@pytest.mark.parametrize("lengths", [(1, 1), (2, 2), (1, 2)])
@pytest.mark.parametrize("words", [False, True])
def test_ngram_counts(mode, skip, lengths, words):
    numbers = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]
    x = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], np.int64)
    pool = {"pool_strings": [str(v) for v in numbers]} if words else {"pool_int64s": numbers}
    attributes = pool | {
        "mode": mode, "ngram_counts": [0, 4], "ngram_indexes": [0, 1, 2, 3, 4, 6, 5], "max_skip_count": skip,
        "weights": [2.0, 3.0, 1.0, 5.0, 0.5, 4.0, 7.0], "min_gram_length": lengths[0], "max_gram_length": lengths[1],
    }  # fmt: skip
    given = strings([[str(v) for v in row] for row in x]) if words else x
    NodeCase("TfIdfVectorizer", {"x": given}, attributes, opset=9).check()
    NodeCase("TfIdfVectorizer", {"x": given[0]}, attributes, opset=9).check()
