"""Ensembles of decision trees in flat arrays."""

from __future__ import annotations

from edgerun.dims import DimLike
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, op, require

MODES = ("<=", "<", ">=", ">", "==", "!=")
"""Comparison of feature (left) with threshold (right), by mode number."""
AGGREGATES = frozenset({"sum", "average", "min", "max"})


@op("ml")
def tree_ensemble(
    x: TensorType,
    roots: TensorType,
    features: TensorType,
    modes: TensorType,
    thresholds: TensorType,
    yes: TensorType,
    no: TensorType,
    missing: TensorType,
    offsets: TensorType,
    targets: TensorType,
    weights: TensorType,
    *,
    width: int,
    aggregate: str = "sum",
) -> TensorType:
    """Aggregated leaf weights [N, width] of every tree for x [N, F] (f32 or f64); the result has the type of x.

    Node i compares x[features[i]] (i32) with thresholds[i] (type of x) by MODES[modes[i]] (u8) and goes on to yes[i]
    or no[i] (i32); NaN goes to yes[i] where missing[i] (bool) holds. A reference r >= 0 is a node, r < 0 the leaf
    -1 - r. `roots` [T] i32 refers to the start of each tree. Leaf j adds weights[k] to output targets[k] (i32) for
    offsets[j] <= k < offsets[j + 1]. "average" divides the sum by T; "min" and "max" give 0 where no leaf contributes.
    """
    require(x.dtype in (DType.F32, DType.F64), f"trees take f32 or f64, not {x.dtype.short}")
    require(thresholds.dtype is x.dtype and weights.dtype is x.dtype, "thresholds and weights have the type of x")
    require(aggregate in AGGREGATES, f"there is no aggregate {aggregate!r}")
    require(modes.dtype is DType.U8 and missing.dtype is DType.BOOL, "modes are u8, missing flags bool")
    for name, t in (("roots", roots), ("features", features), ("yes", yes), ("no", no), ("targets", targets)):
        require(t.dtype is DType.I32, f"{name} are i32, not {t.dtype.short}")
    if x.shape is None:
        return x.like()
    require(len(x.shape) == 2, f"trees take [samples, features], not {x}")
    rows: DimLike = x.shape[0]
    return x.like((rows, width))
