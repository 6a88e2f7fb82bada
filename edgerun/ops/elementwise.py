"""The elementwise op: a small straight-line program of scalar functions over broadcast inputs.

`program` is a tuple of instructions `(function, dtype, *operands)`. An operand is a number: below the count of inputs
it is that input, above it is the result of instruction `operand - inputs`. `("const", dtype, value)` is an immediate;
it is the only instruction with a non-index operand. The last instruction is the output. The importer writes
one-instruction programs; the fusion pass joins them; every backend compiles the same program.

>>> relu = (("const", DType.F32, 0.0), ("max", DType.F32, 0, 1))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from edgerun.dims import DimLike, broadcast, product
from edgerun.dtypes import DType
from edgerun.ops.registry import TensorType, macs, op, require

Instruction: TypeAlias = "tuple[Any, ...]"
Program: TypeAlias = "tuple[Instruction, ...]"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar function: operand count, kind of result, and what it computes."""

    arity: int
    result: str
    """"same": the operands' dtype; "bool"; "any": the dtype the instruction states (casts)."""
    meaning: str
    cost: float = 1.0
    """Rough work relative to an addition, for cost models."""


SCALARS: dict[str, Scalar] = {
    # arithmetic; integers wrap
    "add": Scalar(2, "same", "a + b"),
    "sub": Scalar(2, "same", "a - b"),
    "mul": Scalar(2, "same", "a * b"),
    "div": Scalar(2, "same", "a / b; integers truncate toward zero, x / 0 = 0", 4),
    "mod": Scalar(2, "same", "a - b * floor(a / b), the sign of b; integers mod 0 = 0", 6),
    "fmod": Scalar(2, "same", "C fmod: the sign of a; integers mod 0 = 0", 6),
    "pow": Scalar(2, "same", "a to the b", 20),
    "min": Scalar(2, "same", "smaller; NaN if either is NaN"),
    "max": Scalar(2, "same", "larger; NaN if either is NaN"),
    "neg": Scalar(1, "same", "-a"),
    "abs": Scalar(1, "same", "|a|"),
    "sign": Scalar(1, "same", "-1, 0 or 1; NaN for NaN"),
    "reciprocal": Scalar(1, "same", "1 / a", 4),
    # rounding
    "floor": Scalar(1, "same", "largest integer not above a"),
    "ceil": Scalar(1, "same", "smallest integer not below a"),
    "round": Scalar(1, "same", "nearest integer, halves to even"),
    # transcendental
    "sqrt": Scalar(1, "same", "square root", 4),
    "exp": Scalar(1, "same", "e to the a", 10),
    "log": Scalar(1, "same", "natural logarithm", 10),
    "sin": Scalar(1, "same", "sine", 15),
    "cos": Scalar(1, "same", "cosine", 15),
    "tan": Scalar(1, "same", "tangent", 20),
    "asin": Scalar(1, "same", "arc sine", 20),
    "acos": Scalar(1, "same", "arc cosine", 20),
    "atan": Scalar(1, "same", "arc tangent", 20),
    "sinh": Scalar(1, "same", "hyperbolic sine", 20),
    "cosh": Scalar(1, "same", "hyperbolic cosine", 20),
    "tanh": Scalar(1, "same", "hyperbolic tangent", 12),
    "asinh": Scalar(1, "same", "inverse hyperbolic sine", 20),
    "acosh": Scalar(1, "same", "inverse hyperbolic cosine", 20),
    "atanh": Scalar(1, "same", "inverse hyperbolic tangent", 20),
    "erf": Scalar(1, "same", "error function", 15),
    "sigmoid": Scalar(1, "same", "1 / (1 + exp(-a)), without overflow", 12),
    "softplus": Scalar(1, "same", "log(1 + exp(a)), without overflow", 20),
    "gelu": Scalar(1, "same", "a/2 * (1 + erf(a / sqrt 2))", 18),
    "gelu_tanh": Scalar(1, "same", "a/2 * (1 + tanh(sqrt(2/pi) * (a + 0.044715 a^3)))", 16),
    # logic and bits
    "and": Scalar(2, "same", "logical and of bools"),
    "or": Scalar(2, "same", "logical or of bools"),
    "xor": Scalar(2, "same", "logical exclusive or of bools"),
    "not": Scalar(1, "same", "logical not of a bool"),
    "bit_and": Scalar(2, "same", "bitwise and of integers"),
    "bit_or": Scalar(2, "same", "bitwise or"),
    "bit_xor": Scalar(2, "same", "bitwise exclusive or"),
    "bit_not": Scalar(1, "same", "bitwise not"),
    "shl": Scalar(2, "same", "a << b; 0 when b is negative, the width or more"),
    "shr": Scalar(
        2, "same", "a >> b (arithmetic when signed); for b negative, the width or more: -1 of negative a, else 0"
    ),
    # comparison
    "eq": Scalar(2, "bool", "a == b"),
    "ne": Scalar(2, "bool", "a != b"),
    "lt": Scalar(2, "bool", "a < b"),
    "le": Scalar(2, "bool", "a <= b"),
    "gt": Scalar(2, "bool", "a > b"),
    "ge": Scalar(2, "bool", "a >= b"),
    "is_nan": Scalar(1, "bool", "whether a is NaN"),
    "is_inf": Scalar(1, "bool", "whether a is an infinity of either sign"),
    # selection and conversion
    "where": Scalar(3, "same", "b where the bool a holds, else c (dtype of b and c)"),
    "cast": Scalar(1, "any", "conversion; float to int truncates and saturates, NaN gives 0; fp8 saturates"),
    "cast_wrap": Scalar(1, "any", "conversion in which integers wrap and fp8 overflows to NaN or infinity"),
    "cast_up": Scalar(1, "any", "conversion to a power-of-two scale type, rounding up"),
    "cast_down": Scalar(1, "any", "conversion to a power-of-two scale type, rounding down"),
}


@op("elementwise", symbolic=True)
def elementwise(*xs: TensorType, program: Program) -> TensorType:
    """Apply a scalar program to broadcast inputs; the result of the last instruction is the output."""
    check_program(program, [x.dtype for x in xs])
    if any(x.shape is None for x in xs):
        return TensorType(program[-1][1], None)
    return TensorType(program[-1][1], broadcast(*(x.dims for x in xs)))


@macs("elementwise")
def _macs(*xs: TensorType, program: Program, out: TensorType) -> DimLike:
    return 0 if out.shape is None else product(out.shape) * 0


def check_program(program: Program, inputs: list[DType]) -> None:
    """Check functions, operand numbers and dtypes. Raises ShapeError."""
    require(len(program) > 0, "an elementwise program needs an instruction")
    types = list(inputs)
    for i, (function, dtype, *operands) in enumerate(program):
        if function == "const":
            require(len(operands) == 1, "a constant has one value")
            types.append(dtype)
            continue
        scalar = SCALARS.get(function)
        require(scalar is not None, f"there is no scalar function {function!r}")
        assert scalar is not None
        require(len(operands) == scalar.arity, f"{function} takes {scalar.arity} operands, not {len(operands)}")
        require(
            all(isinstance(k, int) and 0 <= k < len(inputs) + i for k in operands),
            f"instruction {i} ({function}) reads a value that does not exist yet",
        )
        given = [types[k] for k in operands]
        if function == "where":
            require(given[0] is DType.BOOL, f"the condition of where is {given[0].short}, not bool")
            given = given[1:]
        if function not in ("cast", "cast_wrap", "cast_up", "cast_down"):
            names = " and ".join(g.short for g in given)
            require(len(set(given)) == 1, f"the operands of {function} differ in type: {names}")
        expected = {"same": given[-1], "bool": DType.BOOL, "any": dtype}[scalar.result]
        require(dtype is expected, f"{function} of {given[-1].short} gives {expected.short}, not {dtype.short}")
        types.append(dtype)


def single(function: str, dtype: DType, arity: int | None = None) -> Program:
    """The one-instruction program that applies `function` to the inputs in order; `dtype` is the result's."""
    count = SCALARS[function].arity if arity is None else arity
    return ((function, dtype, *range(count)),)
