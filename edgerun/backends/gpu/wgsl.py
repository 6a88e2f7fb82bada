"""Pieces of WGSL. All shapes are constants of the text; equal kernels have equal text and share a pipeline.

Every buffer is bound `storage, read_write`: tensors share one arena, and a buffer may have one usage in a dispatch. No
more than 256 invocations and 16 KiB of workgroup memory are used, so that the default limits of WebGPU suffice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgerun.dtypes import DType

GROUP = 64
"""Invocations of a workgroup in kernels that compute one element each."""
MAX_GROUPS = 65535
"""Workgroups along one dimension of a dispatch."""

PRELUDE = """
var<private> inf_bits: u32 = 0x7f800000u;
var<private> nan_bits: u32 = 0x7fc00000u;
fn inf_() -> f32 { return bitcast<f32>(inf_bits); }
fn nan_() -> f32 { return bitcast<f32>(nan_bits); }
fn is_nan_(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }
fn is_inf_(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }
fn max_(a: f32, b: f32) -> f32 { return select(select(max(a, b), b, is_nan_(b)), a, is_nan_(a)); }
fn min_(a: f32, b: f32) -> f32 { return select(select(min(a, b), b, is_nan_(b)), a, is_nan_(a)); }
fn tanh_(x: f32) -> f32 {
  let e = exp(-2.0 * min(abs(x), 20.0));
  let t = select((1.0 - e) / (1.0 + e), abs(x) - abs(x) * x * x / 3.0, abs(x) < 0.005);
  return select(select(t, -t, x < 0.0), x, is_nan_(x));
}
fn sigmoid_(x: f32) -> f32 {
  let e = exp(-abs(x));
  return select(e / (1.0 + e), 1.0 / (1.0 + e), x >= 0.0);
}
fn erf_(x: f32) -> f32 {
  let t = 1.0 / (1.0 + 0.3275911 * abs(x));
  let p = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  let y = 1.0 - p * exp(-min(x * x, 80.0));
  return select(select(y, -y, x < 0.0), x, is_nan_(x));
}
fn softplus_(x: f32) -> f32 { return max_(x, 0.0) + log(1.0 + exp(-abs(x))); }
fn half_(x: f32) -> f32 {
  let y = unpack2x16float(pack2x16float(vec2<f32>(x, 0.0))).x;
  return select(y, x, is_nan_(x) || is_inf_(x));
}
"""
"""Functions of kernels. NaN and infinities are made from bits at run time: WGSL has no constants of them. erf is
formula 7.1.26 of Abramowitz and Stegun, off by at most 1.5e-7."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compute shader. `buffers`: element type of each binding; `groups`: workgroups of the dispatch."""

    source: str
    groups: tuple[int, int, int]


def storage(dtype: DType) -> str:
    """The WGSL type that holds a tensor's elements: floats up to 32 bits, integers up to 64 that fit into 32."""
    if dtype in (DType.F32, DType.F16, DType.BF16):
        return "f32"
    if dtype is DType.U32:
        return "u32"
    return "i32"


def literal(value: float | int | bool, dtype: DType) -> str:
    """A constant of a tensor's type."""
    kind = storage(dtype)
    if kind == "f32":
        number = float(value)
        if number != number:
            return "nan_()"
        if number in (float("inf"), float("-inf")):
            return "inf_()" if number > 0 else "(-inf_())"
        if abs(number) > 3.4028234e38:
            return "3.4028234e38" if number > 0 else "-3.4028234e38"
        return f"f32({number!r})" if number >= 0 else f"(-f32({-number!r}))"
    if value != value:
        return literal(0, dtype)
    whole = int(max(-(2.0**31), min(value, 2.0**32 - 1)))
    if kind == "u32":
        return f"{whole}u"
    if whole <= -(1 << 31):
        return "(-2147483647 - 1)"
    return f"{min(whole, (1 << 31) - 1)}" if whole >= 0 else f"({whole})"


def strides(shape: Sequence[int]) -> list[int]:
    """Row-major strides in elements."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= size
    return found[::-1]


def coordinates(shape: Sequence[int], flat: str = "i", prefix: str = "c") -> str:
    """Statements that declare c0, c1, ... for the element `flat` of a tensor of this shape."""
    lines, rest = [], flat
    for axis, step in enumerate(strides(shape)):
        if shape[axis] == 1:
            lines.append(f"  let {prefix}{axis} = 0u;")
        elif axis == len(shape) - 1 or step == 1:
            lines.append(f"  let {prefix}{axis} = ({rest}) % {shape[axis]}u;")
        elif axis == 0:
            lines.append(f"  let {prefix}{axis} = ({rest}) / {step}u;")
        else:
            lines.append(f"  let {prefix}{axis} = (({rest}) / {step}u) % {shape[axis]}u;")
    return "\n".join(lines)


def place(shape: Sequence[int], names: Sequence[str]) -> str:
    """The flat index of coordinates (expressions of u32)."""
    terms = [
        name if step == 1 else f"({name}) * {step}u"
        for size, step, name in zip(shape, strides(shape), names, strict=True)
        if size > 1
    ]
    return " + ".join(terms) or "0u"


def broadcast_place(shape: Sequence[int], to: Sequence[int], prefix: str = "c") -> str:
    """The flat index in a tensor that is broadcast to the shape of c0, c1, ..."""
    shift = len(to) - len(shape)
    return place(shape, ["0u" if size == 1 else f"{prefix}{axis + shift}" for axis, size in enumerate(shape)])


def header(types: Sequence[str]) -> str:
    """Declarations of the bindings b0, b1, ..."""
    return "".join(
        f"@group(0) @binding({k}) var<storage, read_write> b{k}: array<{kind}>;\n" for k, kind in enumerate(types)
    )


def spread(groups: int) -> tuple[int, int]:
    """Workgroups along x and y for so many in a row."""
    x = min(groups, MAX_GROUPS)
    return x, -(-groups // x)


def pointwise(types: Sequence[str], count: int, body: str) -> Kernel:
    """A kernel that computes element i < count; `body` stores it. types: of the bindings b0, b1, ..."""
    x, y = spread(-(-count // GROUP))
    source = (
        header(types)
        + PRELUDE
        + f"""
@compute @workgroup_size({GROUP}, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {{
  let i = (wid.y * {x}u + wid.x) * {GROUP}u + lid.x;
  if (i >= {count}u) {{ return; }}
{body}
}}
"""
    )
    return Kernel(source, (x, y, 1))


def per_row(types: Sequence[str], rows: int, body: str, shared: str = "f32") -> Kernel:
    """A kernel whose workgroup `row` < rows works on a row: lane `l` of GROUP, workgroup memory R[GROUP]."""
    x, y = spread(rows)
    source = (
        header(types)
        + PRELUDE
        + f"""
var<workgroup> R: array<{shared}, {GROUP}>;
@compute @workgroup_size({GROUP}, 1, 1)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {{
  let row = wid.y * {x}u + wid.x;
  if (row >= {rows}u) {{ return; }}
  let l = lid.x;
{body}
}}
"""
    )
    return Kernel(source, (x, y, 1))


def tree(combine: str) -> str:
    """Statements that reduce R[0..GROUP) to R[0]; `combine` takes {a} and {b}."""
    lines, step = ["  workgroupBarrier();"], GROUP // 2
    while step:
        joined = combine.format(a="R[l]", b=f"R[l + {step}u]")
        lines += [f"  if (l < {step}u) {{ R[l] = {joined}; }}", "  workgroupBarrier();"]
        step //= 2
    return "\n".join(lines)
