"""One core op through its shape rule and its NumPy kernel, with the two compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import find
from edgerun.dims import Dim, evaluate, free_symbols, symbol
from edgerun.dtypes import from_numpy
from edgerun.ops.registry import TensorType, infer, static_value
from edgerun.ops.values import infer_values


def apply(name: str, *arrays: np.ndarray | None, **attrs: Any) -> Any:
    """Outputs of the kernel (one array, or a tuple), checked against the rule.

    The rule is asked four times: with the shapes, with the elements too, with symbols for all sizes, with unknown
    ranks. Every dtype, every shape that it can tell and every element that it can tell must be the kernel's.
    """
    with np.errstate(all="ignore"):
        result = find(name)(*arrays, **attrs)
    results = list(result) if isinstance(result, tuple) else [result]
    static = [_typed(a, None if a is None else a.shape) for a in arrays]
    _compare(infer(name, static, attrs), results, {})
    valued = [_typed(a, None if a is None else a.shape, a) for a in arrays]
    _compare(infer_values(name, valued, attrs), results, {})
    sizes = {f"s{i}_{k}": n for i, a in enumerate(arrays) if a is not None for k, n in enumerate(a.shape)}
    symbols = [
        _typed(a, None if a is None else tuple(symbol(f"s{i}_{k}") for k in range(a.ndim)))
        for i, a in enumerate(arrays)
    ]
    _compare(infer(name, symbols, attrs), results, sizes)
    _compare(infer(name, [_typed(a, None) for a in arrays], attrs), results, {})
    return result


def _typed(
    array: np.ndarray | None, shape: tuple[int | Dim, ...] | None, value: np.ndarray | None = None
) -> TensorType | None:
    return None if array is None else TensorType(from_numpy(array.dtype), shape, value)


def _compare(types: list[TensorType], results: list[np.ndarray], sizes: dict[str, int]) -> None:
    assert len(types) == len(results)
    for known, value in zip(types, results, strict=True):
        assert isinstance(value, np.ndarray)
        assert from_numpy(value.dtype) is known.dtype, f"the kernel gives {value.dtype}, the rule {known}"
        if known.shape is None:
            continue
        assert len(known.shape) == value.ndim, f"the kernel gives {value.shape}, the rule {known}"
        for dim, size in zip(known.shape, value.shape, strict=True):
            if free_symbols(dim) <= sizes.keys():
                actual = evaluate(dim, sizes)
                assert actual == size, f"the kernel gives {value.shape}, the rule {known} with {sizes}"
        elements = static_value(known)
        if elements is not None:
            assert elements.tobytes() == value.tobytes() or value.dtype == object
