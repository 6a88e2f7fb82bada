"""Optionals: the content itself, or None; see edgerun/ops/optional.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.dtypes import DType
from edgerun.errors import ShapeError


@kernel("optional")
def optional(x: Any) -> Any:
    return x


@kernel("optional_none")
def optional_none(*, dtype: DType, sequence: bool = False) -> None:
    return None


@kernel("optional_get_element")
def optional_get_element(x: Any) -> Any:
    if x is None:
        raise ShapeError("the optional is absent")
    return x


@kernel("optional_has_element")
def optional_has_element(x: Any) -> np.ndarray:
    return np.array(x is not None)
