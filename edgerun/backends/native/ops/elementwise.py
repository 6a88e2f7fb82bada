"""Elementwise programs: compiled to the register machine of csrc/kernels/elementwise.c."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgerun.backends.native.lowering import Lowering, lowers
from edgerun.backends.native.ops.requantize import code_table, quantised_sum
from edgerun.dims import product
from edgerun.dtypes import DType, from_numpy
from edgerun.errors import UnsupportedError
from edgerun.graph import Node
from edgerun.ops.elementwise import Program

OPS = (
    "move", "add", "sub", "mul", "div", "mod", "fmod", "pow", "min", "max", "neg", "abs", "sign", "reciprocal",
    "floor", "ceil", "round", "sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "erf", "sigmoid", "softplus", "gelu", "gelu_tanh",
    "bit_and", "bit_or", "bit_xor", "bit_not", "shl", "shr", "eq", "ne", "lt", "le", "gt", "ge", "is_nan", "is_inf",
    "where", "cast", "cast_wrap",
)  # fmt: skip
"""Opcodes by position: the list EW_OPS of elementwise_ops.h."""
F32, F64, I32, I64, U32, U64 = range(6)
"""Register classes: enum ew_class."""
CLASSES = {
    DType.F32: F32, DType.F16: F32, DType.BF16: F32, DType.F64: F64,
    DType.I8: I32, DType.U8: I32, DType.I16: I32, DType.U16: I32, DType.I32: I32, DType.BOOL: I32,
    DType.I64: I64, DType.U32: U32, DType.U64: U64,
    DType.I4: I32, DType.U4: I32, DType.I2: I32, DType.U2: I32,
    DType.F8E4M3FN: F32, DType.F8E4M3FNUZ: F32, DType.F8E5M2: F32, DType.F8E5M2FNUZ: F32, DType.F4E2M1: F32,
    DType.F8E8M0: F32, DType.F6E2M3: F32, DType.F6E3M2: F32,
}  # fmt: skip
MAX_INPUTS = 24
MAX_REGISTERS = 127
_NARROW = CLASSES.keys() - {DType.F32, DType.F64, DType.I32, DType.I64, DType.U32, DType.U64, DType.BOOL}
_ROUNDING = {"cast": 0, "cast_wrap": 0, "cast_up": 32, "cast_down": 64}
"""Conversions, and what they add to the number of the target type: the way in which f8e8m0 rounds."""
_EXACT = {
    "min",
    "max",
    "where",
    "bit_and",
    "bit_or",
    "bit_xor",
    "floor",
    "ceil",
    "round",
    "sign",
    "mod",
    "fmod",
    "move",
}
"""Functions whose results fit the operands' dtype, so that they need no wrap or rounding."""
_FLOAT_ONLY = frozenset(OPS[OPS.index("floor") : OPS.index("bit_and")]) | {"is_nan", "is_inf"}
_LOGIC = {"and": "bit_and", "or": "bit_or", "xor": "bit_xor"}


@dataclass(slots=True)
class _Code:
    """A program while it is compiled: values are numbered, registers are given to them last."""

    inputs: list[str]
    classes: list[int] = field(default_factory=list)
    constants: dict[tuple[int, bytes], int] = field(default_factory=dict)
    code: list[tuple[int, int, int, int, tuple[int, ...]]] = field(default_factory=list)
    """(opcode, class, aux, result value, operand values)."""

    def value(self, cls: int) -> int:
        self.classes.append(cls)
        return len(self.classes) - 1

    def constant(self, dtype: DType, number: Any) -> int:
        cls = _class(dtype)
        number = np.asarray(number).astype(dtype.numpy)
        if dtype.code > DType.BOOL.code:
            number = number.astype(np.int64 if dtype.is_integer else np.float32)
        number = number.item()
        data = struct.pack("<fdiqIQ"[0] + "fdiqIQ"[cls], number)
        key = (cls, data.ljust(8, b"\0"))
        if key not in self.constants:
            self.constants[key] = self.value(cls)
        return self.constants[key]

    def emit(self, name: str, cls: int, result: int, operands: tuple[int, ...], aux: int = 0) -> int:
        value = self.value(result)
        self.code.append((OPS.index(name), cls, aux, value, operands))
        return value


def _class(dtype: DType) -> int:
    if dtype not in CLASSES:
        raise UnsupportedError(f"the native elementwise kernel does not compute in {dtype.short}")
    return CLASSES[dtype]


@lowers("elementwise")
def elementwise(node: Node, cx: Lowering) -> None:
    """One kernel call for the whole program."""
    if code_table(node, cx) or quantised_sum(node, cx):
        return
    program: Program = node.attrs["program"]
    names, operands = list(dict.fromkeys(node.inputs)), []
    scalars = {n: s for n in names if (s := _scalar(cx, n, node.outputs[0])) is not None}
    names = [n for n in names if n not in scalars]
    if len(names) > MAX_INPUTS:
        raise UnsupportedError(f"{len(names)} inputs; the native elementwise kernel takes {MAX_INPUTS}")
    code = _Code(names, [_class(cx.dtype(n)) for n in names])
    types: list[DType] = []
    for name in node.inputs:
        if name in scalars:
            operands.append(code.constant(cx.dtype(name), scalars[name]))
        else:
            operands.append(names.index(name))
        types.append(cx.dtype(name))
    _translate(code, program, operands, types)
    emit_program(cx, code, names, node.outputs[0])


def emit_program(cx: Lowering, code: _Code, names: list[str], output: str) -> None:
    shape = cx.shape(output)
    in_place = [
        (0, k)
        for k, n in enumerate(names)
        if cx.shape(n) == shape and cx.dtype(n).itemsize == cx.dtype(output).itemsize and cx.constant(n) is None
    ]
    cx.emit(
        "elementwise", names, [output], _assemble(code, len(names)), in_place=in_place,
        strided_inputs=range(len(names)), strided_outputs=[0], why=f"{len(code.code)} instructions in one pass",
    )  # fmt: skip


def apply(cx: Lowering, program: Program, inputs: list[str], output: str) -> None:
    """Emit a program over `inputs`, for lowerings of other ops that need a conversion before or after their kernel."""
    code = _Code(inputs, [_class(cx.dtype(n)) for n in inputs])
    _translate(code, program, list(range(len(inputs))), [cx.dtype(n) for n in inputs])
    emit_program(cx, code, inputs, output)


def cast(cx: Lowering, name: str, dtype: DType) -> str:
    """`name` itself, or a temporary with its elements as `dtype`."""
    if cx.dtype(name) is dtype:
        return name
    data = cx.constant(name)
    if data is not None:
        return cx.weight(data.astype(dtype.numpy), hint=name, key=(name, dtype.short))
    temp = cx.temp(dtype, cx.shape(name), hint=f"{name}.{dtype.short}")
    apply(cx, (("cast", dtype, 0),), [name], temp)
    return temp


def _scalar(cx: Lowering, name: str, output: str) -> Any:
    """The number, when the input is a constant of one element."""
    data = cx.constant(name)
    if data is None or data.size != 1 or from_numpy(data.dtype) not in CLASSES:
        return None
    return data.reshape(-1)[0]


def _translate(code: _Code, program: Program, operands: list[int], types: list[DType]) -> None:
    """Append the program's instructions, with a cast after each result that may leave its narrow dtype."""
    values, known = list(operands), {}
    for function, dtype, *args in program:
        types.append(dtype)
        if function == "const":
            known[len(values)] = args[0]
            values.append(code.constant(dtype, args[0]))
            continue
        source = types[args[-1]]
        given = tuple(values[k] for k in args)
        values.append(_instruction(code, function, dtype, source, given, known.get(args[-1])))
    if not code.code or code.code[-1][3] != values[-1]:
        cls = code.classes[values[-1]]
        code.emit("move", cls, cls, (values[-1],))


def _instruction(code: _Code, function: str, dtype: DType, source: DType, given: tuple[int, ...], constant: Any) -> int:
    cls, result = _class(source), _class(dtype)
    if function in _ROUNDING:
        name = "cast_wrap" if function == "cast_wrap" else "cast"
        up_or_down = _ROUNDING[function] if dtype is DType.F8E8M0 else 0
        return code.emit(name, cls, result, given, dtype.code + up_or_down)
    if function in ("and", "or", "xor", "not") and source is not DType.BOOL:
        raise UnsupportedError(f"logical {function} of {source.short}; it takes bools")
    if function == "not":
        return code.emit("bit_xor", I32, I32, (given[0], code.constant(DType.BOOL, True)))
    name = _LOGIC.get(function, function)
    if name not in OPS:
        raise UnsupportedError(f"the native elementwise kernel has no function {function!r}")
    rounding = name in ("floor", "ceil", "round")
    if name in _FLOAT_ONLY and not source.is_float and not rounding:
        raise UnsupportedError(f"the native elementwise kernel has no {name} of {source.short}")
    if name == "pow" and constant in (2, 3) and source.is_float:
        # Exact for integers' sake too: a product is what pow rounds to.
        value = code.emit("mul", cls, cls, (given[0], given[0]))
        if constant == 3:
            value = code.emit("mul", cls, cls, (value, given[0]))
    elif rounding and not source.is_float:
        value = code.emit("move", cls, cls, given)
    else:
        value = code.emit(name, cls, result, given, source.bits if name in ("shl", "shr") else 0)
    if dtype in _NARROW and name not in _EXACT:
        value = code.emit("cast", cls, cls, (value,), dtype.code)
    return value


def _assemble(code: _Code, inputs: int) -> list[int]:
    """The parameter words. Inputs and constants keep their registers, others are reused after their last reading."""
    last_use: dict[int, int] = {}
    for i, (*_, operands) in enumerate(code.code):
        last_use.update(dict.fromkeys(operands, i))
    used = {k for *_, operands in code.code for k in operands}
    constants = {k: v for k, v in code.constants.items() if v in used}
    register = {k: k for k in range(inputs)}
    for k in constants.values():
        register[k] = len(register)
    fixed = set(register)
    count, free = len(register), list[int]()
    words: list[int] = []
    for i, (op, cls, aux, value, operands) in enumerate(code.code):
        # The result never shares a register with an operand: classes may differ in width.
        if free:
            register[value] = free.pop()
        else:
            register[value] = count
            count += 1
        packed = register[value]
        for k, operand in enumerate(operands):
            packed |= register[operand] << (8 * (k + 1))
        words += [op | cls << 8 | aux << 16, _signed(packed)]
        free += [register[k] for k in dict.fromkeys(operands) if k not in fixed and last_use[k] == i]
        if value not in last_use:
            free.append(register[value])
    if count > MAX_REGISTERS:
        raise UnsupportedError(f"the fused elementwise program needs {count} registers; there are {MAX_REGISTERS}")
    table = []
    for (cls, data), value in constants.items():
        table += [register[value], cls, *struct.unpack("<2i", data)]
    return [count, len(constants), len(code.code), *table, *words]


def _signed(word: int) -> int:
    """A 32-bit word as the signed number that plans store."""
    return word - (1 << 32) if word >= 1 << 31 else word


def elements(cx: Lowering, name: str) -> Any:
    """Number of elements of a tensor, symbolic where its shape is."""
    return product(cx.shape(name))
