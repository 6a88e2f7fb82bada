"""Early evaluation: what a node's elements are, when its inputs' elements are known while converting.

Shape arithmetic (Shape, Gather, Concat, Mul ...) runs on small integer tensors. With constant inputs the NumPy kernel
is simply called. With symbolic dimensions the same kernel is called on object arrays holding ints and Dims, for the ops
that say `symbolic=True`: NumPy moves objects about like numbers, and Dim supplies the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgerun.dims import Dim
from edgerun.dtypes import DType
from edgerun.errors import EdgerunError
from edgerun.graph import Graph
from edgerun.ops.registry import TensorType, infer, spec, static_value

MAX_ELEMENTS = 4096
"""Values above this size are left to the constant folding pass, which works on the finished graph."""


def infer_values(
    name: str, inputs: Sequence[TensorType | None], attrs: dict[str, Any], node_name: str = ""
) -> list[TensorType]:
    """`infer`, plus the elements of the outputs where they can be told. Same errors."""
    types = infer(name, inputs, attrs, node_name)
    row = spec(name)
    if (
        not row.pure
        or not row.fold
        or any(t.value is not None for t in types)
        or any(isinstance(a, Graph) for a in attrs.values())
    ):
        return types
    if not any(i is not None for i in inputs):
        return types
    if any(i is not None and (i.value is None or i.value.size > MAX_ELEMENTS or i.kind != "tensor") for i in inputs):
        return types
    if any(t.kind != "tensor" or t.shape is None or _too_large(t) for t in types):
        return types
    arrays = [static_value(i) for i in inputs]
    static = all(a is not None or i is None for a, i in zip(arrays, inputs, strict=True))
    if static and not _has_dims(attrs):
        return _evaluate(name, arrays, attrs, types)
    if row.symbolic and all(t.dtype in (DType.I64, DType.I32) for t in types):
        objects = [None if i is None or i.value is None else _as_objects(i.value) for i in inputs]
        return _evaluate(name, objects, attrs, types)
    return types


def _too_large(t: TensorType) -> bool:
    n = 1
    for d in t.dims:
        if isinstance(d, Dim):
            return True
        n *= d
    return n > MAX_ELEMENTS


def _has_dims(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_dims(v) for v in value.values())
    if isinstance(value, tuple | list):
        return any(_has_dims(v) for v in value)
    return isinstance(value, Dim)


def _as_objects(value: np.ndarray) -> np.ndarray:
    """Integers as Python ints, so that Dims can join them; conditions stay as they are."""
    return value if value.dtype == object or value.dtype == bool else value.astype(object)


def _evaluate(name: str, arrays: list[Any], attrs: dict[str, Any], types: list[TensorType]) -> list[TensorType]:
    from edgerun.backends.numpy.registry import find

    try:
        with np.errstate(all="ignore"):
            result = find(name)(*arrays, **attrs)
    except (EdgerunError, TypeError, ValueError):
        # Not decidable now (a comparison of symbols, say): the node stays and is computed at run time.
        return types
    results = list(result) if isinstance(result, tuple) else [result]
    filled = []
    for t, value in zip(types, results, strict=False):
        value = np.asarray(value) if isinstance(value, np.generic) else value
        if not isinstance(value, np.ndarray) or (value.dtype == object and not _only_dims(value, t.dtype)):
            return types
        filled.append(replace(t, value=value, shape=tuple(value.shape)))
    return filled + types[len(filled) :]


def _only_dims(value: np.ndarray, dtype: DType) -> bool:
    return dtype is DType.STRING or all(isinstance(v, int | Dim | np.integer) for v in value.ravel().tolist())
