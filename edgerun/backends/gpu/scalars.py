"""The scalar functions of elementwise programs in WGSL. {0}, {1}, {2} are the operands."""

from __future__ import annotations

from edgerun.backends.gpu.wgsl import literal, storage
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError

FLOAT = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "mod": "({0} - {1} * floor({0} / {1}))",
    "fmod": "({0} - {1} * trunc({0} / {1}))",
    "pow": "pow_({0}, {1})",
    "min": "min_({0}, {1})",
    "max": "max_({0}, {1})",
    "neg": "-({0})",
    "abs": "abs({0})",
    "sign": "select(sign({0}), {0}, is_nan_({0}))",
    "reciprocal": "1.0 / {0}",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "round": "round({0})",
    "sqrt": "sqrt({0})",
    "exp": "exp({0})",
    "log": "log({0})",
    "sin": "sin({0})",
    "cos": "cos({0})",
    "tan": "tan({0})",
    "asin": "asin({0})",
    "acos": "acos({0})",
    "atan": "atan({0})",
    "sinh": "sinh({0})",
    "cosh": "cosh({0})",
    "tanh": "tanh_({0})",
    "asinh": "asinh({0})",
    "acosh": "acosh({0})",
    "atanh": "atanh({0})",
    "erf": "erf_({0})",
    "sigmoid": "sigmoid_({0})",
    "softplus": "softplus_({0})",
    "gelu": "0.5 * {0} * (1.0 + erf_({0} * 0.70710678))",
    "gelu_tanh": "0.5 * {0} * (1.0 + tanh_(0.7978845608 * ({0} + 0.044715 * {0} * {0} * {0})))",
}
INTEGER = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "min": "min({0}, {1})",
    "max": "max({0}, {1})",
    "neg": "-({0})",
    "abs": "abs({0})",
    "sign": "sign({0})",
    "floor": "{0}",
    "ceil": "{0}",
    "round": "{0}",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "xor": "({0} ^ {1})",
    "not": "(1 - {0})",
    "bit_and": "({0} & {1})",
    "bit_or": "({0} | {1})",
    "bit_xor": "({0} ^ {1})",
    "bit_not": "(~({0}))",
    "div": "idiv_({0}, {1})",
    "mod": "imod_({0}, {1})",
    "fmod": "ifmod_({0}, {1})",
}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
FUNCTIONS = """
fn pow_(a: f32, b: f32) -> f32 {
  if (b == 0.0) { return 1.0; }
  if (a == 0.0) { return select(0.0, inf_(), b < 0.0); }
  let p = pow(abs(a), b);
  if (a > 0.0) { return p; }
  if (b != floor(b)) { return nan_(); }
  return select(p, -p, abs(b) - 2.0 * floor(abs(b) / 2.0) == 1.0);
}
fn idiv_(a: i32, b: i32) -> i32 { return select(a / select(b, 1, b == 0), 0, b == 0); }
fn ifmod_(a: i32, b: i32) -> i32 { return select(a % select(b, 1, b == 0), 0, b == 0); }
fn imod_(a: i32, b: i32) -> i32 {
  let r = ifmod_(a, b);
  return select(r, r + b, r != 0 && ((r < 0) != (b < 0)));
}
"""
_BITS = {DType.U8: 8, DType.I8: 8, DType.U16: 16, DType.I16: 16}


def apply(function: str, dtype: DType, given: DType, operands: list[str]) -> str:
    """The expression of one instruction: `given` is the type of the operands, `dtype` that of the result.

    Raises UnsupportedError for functions that GPUs do not have on that type.
    """
    kind = storage(given)
    if function == "where":
        return f"select({operands[2]}, {operands[1]}, {operands[0]} != 0)"
    if function in COMPARE:
        return f"select(0, 1, {operands[0]} {COMPARE[function]} {operands[1]})"
    if function in ("is_nan", "is_inf"):
        return f"select(0, 1, {function}_({operands[0]}))" if kind == "f32" else "0"
    if function in ("cast", "cast_wrap"):
        return cast(operands[0], given, dtype, wrap=function == "cast_wrap")
    table = FLOAT if kind == "f32" else INTEGER
    if function not in table or (kind == "u32" and function in ("neg", "abs", "sign", "div", "mod", "fmod")):
        raise UnsupportedError(f"{function} of {given.short} has no GPU kernel")
    expression = table[function].format(*operands)
    return wrapped(expression, dtype) if function in ("add", "sub", "mul", "neg", "bit_not", "abs") else expression


def wrapped(expression: str, dtype: DType) -> str:
    """Integers narrower than 32 bits wrap around."""
    bits = _BITS.get(dtype)
    if bits is None:
        return expression
    if dtype.is_signed:
        return f"((({expression}) << {32 - bits}u) >> {32 - bits}u)"
    return f"(({expression}) & {(1 << bits) - 1})"


def cast(x: str, given: DType, dtype: DType, *, wrap: bool = False) -> str:
    """A conversion; floats saturate, NaN gives 0. Raises UnsupportedError for types of less than a byte."""
    source, target = storage(given), storage(dtype)
    if dtype.bits < 8 and dtype is not DType.BOOL:
        raise UnsupportedError(f"a cast to {dtype.short} has no GPU kernel")
    if target == "f32":
        value = x if source == "f32" else f"f32({x})"
        return f"half_({value})" if dtype is DType.F16 else value
    if dtype is DType.BOOL:
        return f"select(0, 1, {x} != {literal(0, given)})"
    if source == "f32":
        low, high = (0, 2**32 - 1) if dtype is DType.U32 else _range(dtype)
        clamped = f"clamp({x}, {float(low)!r}, {_below(high)!r})"
        return f"select({target}(trunc({clamped})), {literal(0, dtype)}, is_nan_({x}))"
    value = x if source == target else f"{target}({x})"
    if given.bits <= dtype.bits and given.is_signed == dtype.is_signed:
        return value
    if wrap:
        return wrapped(value, dtype)
    if dtype in _BITS:
        low, high = _range(dtype)
        return f"clamp({value}, {low}, {high})"
    return value


def _range(dtype: DType) -> tuple[int, int]:
    bits = min(dtype.bits, 32)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.is_signed else (0, (1 << bits) - 1)


def _below(high: int) -> float:
    """The largest f32 that is not above an integer limit."""
    return float(high) if high < 1 << 24 else {2**31 - 1: 2147483520.0, 2**32 - 1: 4294967040.0}[high]
