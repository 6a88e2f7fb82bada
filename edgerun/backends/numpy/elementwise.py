"""The scalar functions on arrays, and the kernel that runs elementwise programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgerun.backends.numpy.casts import convert
from edgerun.backends.numpy.registry import kernel
from edgerun.dims import Dim, bounds, maximum, minimum
from edgerun.dtypes import DType, from_numpy
from edgerun.errors import ShapeError

Array = np.ndarray


@kernel("elementwise")
def elementwise(*xs: Array, program: tuple[Any, ...]) -> Array:
    """See edgerun.ops.elementwise. Object arrays of ints and Dims go through the functions of `_SYMBOLIC`."""
    values: list[Array] = list(xs)
    symbolic = any(x.dtype == object and _holds_numbers(x) for x in xs)
    for function, dtype, *operands in program:
        if function == "const":
            values.append(np.asarray(operands[0]).astype(dtype.numpy))
            continue
        arguments = [values[k] for k in operands]
        if symbolic and any(a.dtype == object for a in arguments):
            values.append(_apply_symbolic(function, dtype, arguments))
        elif function.startswith("cast"):
            values.append(convert(arguments[0], dtype, function))
        else:
            values.append(_apply(function, dtype, arguments))
    result = values[-1]
    shape = np.broadcast_shapes(*(x.shape for x in xs)) if xs else result.shape
    return result if result.shape == shape else np.broadcast_to(result, shape).copy()


def _apply(function: str, dtype: DType, arguments: list[Array]) -> Array:
    compute = FUNCTIONS[function]
    given = from_numpy(arguments[-1].dtype)
    if given.is_float and given not in (DType.F32, DType.F64, DType.F16):
        wide = [a.astype(np.float32) if a.dtype != bool else a for a in arguments]
        return np.asarray(compute(*wide)).astype(dtype.numpy)
    if given.is_integer and given.bits < 8:
        wide = [a.astype(np.int32) if a.dtype != bool else a for a in arguments]
        return convert(np.asarray(compute(*wide)), dtype, "cast_wrap")
    result = np.asarray(compute(*arguments))
    return result if result.dtype == dtype.numpy else result.astype(dtype.numpy)


# -- functions that NumPy does not have as ONNX wants them


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    zero = b == 0
    divisor = np.where(zero, np.ones_like(b), b)
    quotient = np.floor_divide(a, divisor)
    if a.dtype.kind == "i":
        # Floor to truncation: one up where the signs differ and something is left.
        remainder = a - quotient * divisor
        quotient = quotient + ((remainder != 0) & ((a < 0) != (divisor < 0))).astype(a.dtype)
    return np.where(zero, np.zeros_like(quotient), quotient)


def _modulo(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.mod(a, b)
    zero = b == 0
    return np.where(zero, np.zeros_like(a), np.mod(a, np.where(zero, np.ones_like(b), b)))


def _fmod(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.fmod(a, b)
    zero = b == 0
    return np.where(zero, np.zeros_like(a), np.fmod(a, np.where(zero, np.ones_like(b), b)))


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.power(a, b)
    negative = b < 0
    result = np.power(a, np.where(negative, np.zeros_like(b), b))
    inverse = np.where(np.abs(a) == 1, np.where(b % 2 == 0, np.ones_like(a), a), np.zeros_like(a))
    return np.where(negative, inverse, result)


def _shift_left(a: Array, b: Array) -> Array:
    width = a.dtype.itemsize * 8
    wide = (b < 0) | (b >= width)
    return np.where(wide, np.zeros_like(a), np.left_shift(a, np.where(wide, np.zeros_like(b), b)))


def _shift_right(a: Array, b: Array) -> Array:
    width = a.dtype.itemsize * 8
    wide = (b < 0) | (b >= width)
    if a.dtype.kind == "i":  # all bits of sign
        return np.right_shift(a, np.where(wide, np.asarray(width - 1, b.dtype), b))
    return np.where(wide, np.zeros_like(a), np.right_shift(a, np.where(wide, np.zeros_like(b), b)))


def _reciprocal(x: Array) -> Array:
    return np.divide(np.ones_like(x), x)


def _sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


_ERF_SMALL = (
    (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
     3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)  # fmt: skip
_ERF_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
     3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
)  # fmt: skip
_ERF_LARGE = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
     1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242e0, 1.87295284992346047e0, 5.27905102951428412e-1, 6.05183413124413191e-2,
     2.33520497626869185e-3),
)  # fmt: skip


def erf(x: Array) -> Array:
    """The error function by W. J. Cody's rational approximations (Math. Comp. 23, 1969), about 1e-15."""
    a = np.abs(x.astype(np.float64))
    square = a * a
    small = a * np.polyval(_ERF_SMALL[0], square) / np.polyval(_ERF_SMALL[1], square)
    bounded = np.minimum(a, 30.0)
    middle = np.polyval(_ERF_MIDDLE[0], bounded) / np.polyval(_ERF_MIDDLE[1], bounded)
    inverse = 1.0 / np.maximum(square, 16.0)
    tail = inverse * np.polyval(_ERF_LARGE[0], inverse) / np.polyval(_ERF_LARGE[1], inverse)
    large = (1.0 / np.sqrt(np.pi) - tail) / np.maximum(a, 4.0)
    complement = np.exp(-np.minimum(square, 700.0)) * np.where(a <= 4.0, middle, large)
    result = np.where(a <= 0.46875, small, 1.0 - complement)
    return np.copysign(result, x).astype(x.dtype)


def _gelu(x: Array) -> Array:
    scaled = x.astype(np.float64) * np.sqrt(0.5)
    y = (0.5 * x * (1.0 + erf(scaled))).astype(x.dtype)
    return np.where(np.isneginf(x), np.zeros_like(x), y)


def _gelu_tanh(x: Array) -> Array:
    wide = x.astype(np.float64)
    y = (0.5 * wide * (1.0 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))).astype(x.dtype)
    return np.where(np.isneginf(x), np.zeros_like(x), y)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide, "mod": _modulo, "fmod": _fmod,
    "pow": _power, "min": np.minimum, "max": np.maximum, "neg": np.negative, "abs": np.abs, "sign": np.sign,
    "reciprocal": _reciprocal, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "sqrt": np.sqrt, "exp": np.exp,
    "log": np.log, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": erf, "sigmoid": _sigmoid, "softplus": _softplus, "gelu": _gelu,
    "gelu_tanh": _gelu_tanh, "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
    "not": np.logical_not, "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor,
    "bit_not": np.invert, "shl": _shift_left, "shr": _shift_right, "eq": np.equal, "ne": np.not_equal,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "is_nan": np.isnan,
    "is_inf": np.isinf, "where": np.where,
}  # fmt: skip


# -- shape arithmetic on ints and Dims


def _holds_numbers(x: Array) -> bool:
    """False for no elements: an empty array of strings looks like one of dimensions."""
    return x.size > 0 and all(isinstance(v, int | Dim) for v in x.ravel().tolist())


def _truncated_division(a: Any, b: Any) -> Any:
    if isinstance(b, int) and b == 0:
        return 0
    low_a, low_b = bounds(a)[0], bounds(b)[0]
    if low_a is not None and low_b is not None and low_a >= 0 and low_b > 0:
        return a // b
    if isinstance(a, int) and isinstance(b, int):
        return int(a / b) if abs(a) < 1 << 50 else -(-a // b) if (a < 0) != (b < 0) else a // b
    raise ShapeError(f"the sign of {a} / {b} is not known")


def _compare(test: Callable[[int, int | None], bool | None]) -> Callable[[Any, Any], bool]:
    """A comparison of a - b with 0 that fails where the bounds do not decide it."""

    def compare(a: Any, b: Any) -> bool:
        difference = a - b
        low, high = bounds(difference)
        decided = test(-(1 << 62) if low is None else low, high)
        if decided is None:
            raise ShapeError(f"whether {a} and {b} differ is not known")
        return decided

    return compare


def _is_zero(low: int, high: int | None) -> bool | None:
    if low == high == 0:
        return True
    return False if low > 0 or (high is not None and high < 0) else None


def _is_negative(low: int, high: int | None) -> bool | None:
    if high is not None and high < 0:
        return True
    return False if low >= 0 else None


_eq, _lt = _compare(_is_zero), _compare(_is_negative)
_SYMBOLIC: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "neg": lambda a: -a,
    "div": _truncated_division, "min": minimum, "max": maximum, "cast": lambda a: a, "cast_wrap": lambda a: a,
    "eq": _eq, "ne": lambda a, b: not _eq(a, b), "lt": _lt, "gt": lambda a, b: _lt(b, a),
    "le": lambda a, b: not _lt(b, a), "ge": lambda a, b: not _lt(a, b),
    "where": lambda c, a, b: a if c else b,
}  # fmt: skip


def _apply_symbolic(function: str, dtype: DType, arguments: list[Array]) -> Array:
    compute = _SYMBOLIC.get(function)
    if compute is None or not (dtype is DType.BOOL or dtype in (DType.I32, DType.I64)):
        raise ShapeError(f"{function} of symbolic dimensions")
    plain = [a if a.dtype in (object, bool) else a.astype(object) for a in arguments]
    shape = np.broadcast_shapes(*(a.shape for a in plain))
    columns = [np.broadcast_to(a, shape).ravel().tolist() for a in plain]
    result = np.empty(int(np.prod(shape)), bool if dtype is DType.BOOL else object)
    for i, values in enumerate(zip(*columns, strict=True)):
        result[i] = compute(*values)
    return result.reshape(shape)
