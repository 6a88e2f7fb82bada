"""Activations and residual additions that convolution and matmul apply while storing their result.

    v = sum + bias;   res = "before": act(v + residual);   res = "after": act(v) + residual

The numbers are those of `enum er_act` and `enum er_res` in the C runtime. p0 and p1 are the activation's parameters.
"""

from __future__ import annotations

from edgerun.graph import Shape
from edgerun.ops.registry import TensorType, compatible, may_equal, require

ACTIVATIONS: dict[str, int] = {
    "none": 0,
    "clamp": 1,
    "leaky": 2,
    "sigmoid": 3,
    "silu": 4,
    "hardsigmoid": 5,
    "hardswish": 6,
    "gelu": 7,
    "gelu_tanh": 8,
    "tanh": 9,
    "elu": 10,
    "prelu": 11,
}
"""Name -> number.

clamp: x within [p0, p1]; leaky: p0 * x below zero; silu: x * sigmoid(x); hardsigmoid: p0 * x + p1 within [0, 1];
hardswish: x times x / 6 + 1/2 within [0, 1]; gelu: x/2 * (1 + erf(x / sqrt 2)); gelu_tanh: its tanh form;
elu: p0 * (exp(x) - 1) below zero; prelu: slope * x below zero, with one slope a channel or one for all. NaN stays NaN.
"""

RESIDUALS: dict[str, int] = {"none": 0, "before": 1, "after": 2}
"""Where the residual is added -> number."""


def check_epilogue(
    out: Shape | None,
    bias: TensorType | None,
    residual: TensorType | None,
    slope: TensorType | None,
    act: str,
    res: str,
) -> None:
    """Check the epilogue of a layer with output `out` and channels in its last axis. Raises ShapeError."""
    require(act in ACTIVATIONS, f"there is no activation {act!r}")
    require(res in RESIDUALS, f"a residual enters before or after the activation, not {res!r}")
    require((act == "prelu") == (slope is not None), "prelu, and only prelu, takes a slope")
    require((res == "none") == (residual is None), f"res is {res!r}, but the residual is {residual}")
    if out is None:
        return
    for what, vector, scalar_fits in (("bias", bias, False), ("slope", slope, True)):
        if vector is None or vector.shape is None:
            continue
        require(len(vector.shape) == 1 and len(out) > 0, f"the {what} is a vector over channels, not {vector}")
        size, channels = vector.shape[0], out[-1]
        fits = may_equal(size, channels) or (scalar_fits and size == 1)
        require(fits, f"the {what} has {size} elements for {channels} channels")
    if residual is not None and residual.shape is not None:
        require(compatible(residual.shape, out), f"the residual {residual} has another shape than the output")
