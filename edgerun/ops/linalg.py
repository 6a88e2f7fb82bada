"""Dense linear algebra on stacks of small matrices."""

from __future__ import annotations

from edgerun.ops.registry import TensorType, op, require


@op("linalg")
def inverse(x: TensorType) -> TensorType:
    """Inverses of the square matrices in the last two axes. A singular matrix is an error at run time."""
    require(x.dtype.is_float, f"the inverse of {x.dtype.short} is not defined")
    if x.shape is not None:
        require(len(x.shape) >= 2, f"the inverse needs matrices, not {x}")
        rows, columns = x.shape[-2:]
        require(not isinstance(rows, int) or not isinstance(columns, int) or rows == columns, f"{x} is not square")
    return x.like()
