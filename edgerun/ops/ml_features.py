"""Feature operators of classic machine learning: tables, maps and support vectors."""

from __future__ import annotations

from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, compatible, op, require

KERNELS = frozenset({"linear", "poly", "rbf", "sigmoid"})


@op("ml")
def lookup(x: TensorType, keys: TensorType, values: TensorType, default: TensorType | None = None) -> TensorType:
    """values[i] where x equals keys[i], else `default` (one element); same shape as x.

    NaN equals NaN; of equal keys the last counts. Without a default an unknown element is an error at run time.
    """
    require(x.dtype is keys.dtype, f"keys of {keys.dtype.short} for elements of {x.dtype.short}")
    require(default is None or default.dtype is values.dtype, "the default has another type than the values")
    if keys.shape is not None and values.shape is not None:
        fits = len(keys.shape) == 1 and compatible(keys.shape, values.shape)
        require(fits, f"{keys} keys for {values} values")
    return x.like(dtype=values.dtype)


@op("ml")
def svm_kernel(
    x: TensorType,
    vectors: TensorType,
    *,
    kind: str = "linear",
    gamma: float = 0.0,
    coef0: float = 0.0,
    degree: float = 0.0,
) -> TensorType:
    """Kernel values k(x, v) [N, V] of x [N, F] and support vectors [V, F].

    linear: x.v; poly: (gamma x.v + coef0)^degree; sigmoid: tanh(gamma x.v + coef0); rbf: exp(-gamma |x - v|^2).
    """
    require(kind in KERNELS, f"there is no kernel {kind!r}")
    require(x.dtype.is_float and x.dtype is vectors.dtype, "support vectors have the type of the input")
    if x.shape is None or vectors.shape is None:
        return x.like()
    require(len(x.shape) == 2 and len(vectors.shape) == 2, f"{vectors} support vectors for {x}")
    return x.like((x.shape[0], vectors.shape[0]))


@op("ml")
def pairwise_probability(scores: TensorType, prob_a: TensorType, prob_b: TensorType, *, classes: int) -> TensorType:
    """Class probabilities [N, classes] out of one-against-one scores [N, classes * (classes - 1) / 2].

    Each score becomes 1 / (1 + exp(a s + b)), and the pairs are coupled by the iteration of Wu, Lin and Weng (2004),
    second method, as libsvm does it.
    """
    pairs = classes * (classes - 1) // 2
    for name, t in (("scores", scores), ("prob_a", prob_a), ("prob_b", prob_b)):
        last = None if t.shape is None else t.shape[-1]
        require(not isinstance(last, int) or last == pairs, f"{name} are {t}, expected {pairs} pairs")
    return scores.like(None if scores.shape is None else (scores.shape[0], classes))


@op("ml")
def zip_map(x: TensorType, labels: TensorType) -> TensorType:
    """One map a row of x [N, C], from labels [C] (i64 or strings) to the row's values."""
    return TensorType(x.dtype, None, kind="sequence")


@op("ml")
def map_to_tensor(
    x: TensorType, keys: TensorType | None = None, *, dtype: DType, size: int | None = None
) -> TensorType:
    """The values of a map as [1, n] of `dtype`, in the order of `keys` (absent ones 0 or ""), else sorted by key.

    With `size` the map's integer keys are positions in a row of `size` elements.
    """
    require(x.kind == "map", f"expected a map, got a {x.kind}")
    if keys is not None and keys.shape is not None:
        return TensorType(dtype, (1, keys.shape[0]))
    if size is not None:
        return TensorType(dtype, (1, size))
    from edgerun.ops.registry import fresh_symbol

    return TensorType(dtype, (1, fresh_symbol("map")))
