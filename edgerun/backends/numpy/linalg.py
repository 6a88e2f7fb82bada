"""NumPy kernels of dense linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.backends.numpy.registry import kernel
from edgerun.errors import ShapeError


@kernel("inverse")
def inverse(x: np.ndarray) -> np.ndarray:
    """See edgerun.ops.linalg.inverse. Raises ShapeError for a singular matrix."""
    working: Any = np.float64 if x.dtype == np.float64 else np.float32
    try:
        return np.linalg.inv(x.astype(working)).astype(x.dtype)
    except np.linalg.LinAlgError as e:
        raise ShapeError(f"the matrix cannot be inverted: {e}") from e
