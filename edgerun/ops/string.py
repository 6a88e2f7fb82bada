"""Strings: Unicode text in tensors of dtype STRING. Only the NumPy backend runs these ops."""

from __future__ import annotations

from edgerun.dims import broadcast
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, fresh_symbol, op, require


@op("string")
def string_concat(x: TensorType, y: TensorType) -> TensorType:
    """x followed by y, element by element, broadcast."""
    _strings(x, y)
    if x.shape is None or y.shape is None:
        return TensorType(DType.STRING, None)
    return x.like(broadcast(x.shape, y.shape))


@op("string")
def string_split(x: TensorType, *, delimiter: str = "", maxsplit: int | None = None) -> tuple[TensorType, TensorType]:
    """Substrings [*x, most] padded with "", and how many there are of each element (i64, shape of x).

    An empty delimiter splits on runs of whitespace, dropping those at the ends; at most `maxsplit` splits are made.
    """
    _strings(x)
    shape = None if x.shape is None else (*x.shape, fresh_symbol("split"))
    return TensorType(DType.STRING, shape), x.like(dtype=DType.I64)


@op("string")
def string_normalize(
    x: TensorType, *, case: str = "none", case_sensitive: bool = False, stopwords: tuple[str, ...] = ()
) -> TensorType:
    """x [C] or [1, C] without `stopwords`, in "lower", "upper" or unchanged ("none") case; [""] if none is left."""
    _strings(x)
    require(case in ("none", "lower", "upper"), f"there is no change of case {case!r}")
    if x.shape is None or not stopwords:
        return x.like()
    require(len(x.shape) in (1, 2), f"a string normalizer takes [C] or [1, C], not {x}")
    return x.like((*x.shape[:-1], fresh_symbol("words")))


@op("string")
def regex_full_match(x: TensorType, *, pattern: str) -> TensorType:
    """Whether each string as a whole matches the RE2 pattern: bool, shape of x."""
    _strings(x)
    return x.like(dtype=DType.BOOL)


@op("string")
def tfidf(
    x: TensorType,
    *,
    pool: tuple[int, ...] | tuple[str, ...],
    counts: tuple[int, ...],
    indexes: tuple[int, ...],
    weights: tuple[float, ...] = (),
    mode: str = "tf",
    shortest: int,
    longest: int,
    skip: int = 0,
) -> TensorType:
    """Counts of known n-grams in x [C] or [N, C] (integers or strings): f32 [max(indexes) + 1], per row.

    `pool` lists the 1-grams, then the 2-grams and so on; counts[n - 1] is where the n-grams start. N-gram i counts in
    output indexes[i]. N-grams of `shortest` to `longest` items are taken with 0 to `skip` items left out between
    neighbours. Mode "tf" gives counts, "idf" weights[i] where the count is not 0, "tfidf" count * weights[i].
    """
    require(x.dtype in (DType.I32, DType.I64, DType.STRING), f"n-grams of {x.dtype.short} are not supported")
    require(mode in ("tf", "idf", "tfidf"), f"there is no weighting {mode!r}")
    require(1 <= shortest <= longest <= len(counts), f"n-grams of {shortest} to {longest} items do not fit the pool")
    require(not weights or len(weights) == len(indexes), "there is one weight per n-gram")
    size = max(indexes, default=-1) + 1
    if x.shape is None:
        return TensorType(DType.F32, None)
    require(len(x.shape) in (1, 2), f"n-grams are counted in [C] or [N, C], not {x}")
    return TensorType(DType.F32, (*x.shape[:-1], size))


def _strings(*xs: TensorType) -> None:
    for x in xs:
        require(x.dtype is DType.STRING, f"expected strings, not {x.dtype.short}")
