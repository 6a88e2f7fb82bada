"""Element types. `DType.code` is the number used in bundles, plans and the C runtime (enum er_dtype)."""

from __future__ import annotations

import enum
from functools import cache
from typing import Any

import numpy as np


class DType(enum.Enum):
    """An element type: value = (code, bits per element, NumPy or ml_dtypes name, ONNX TensorProto number)."""

    F32 = (1, 32, "float32", 1)
    F64 = (2, 64, "float64", 11)
    F16 = (3, 16, "float16", 10)
    BF16 = (4, 16, "bfloat16", 16)
    I8 = (5, 8, "int8", 3)
    I16 = (6, 16, "int16", 5)
    I32 = (7, 32, "int32", 6)
    I64 = (8, 64, "int64", 7)
    U8 = (9, 8, "uint8", 2)
    U16 = (10, 16, "uint16", 4)
    U32 = (11, 32, "uint32", 12)
    U64 = (12, 64, "uint64", 13)
    BOOL = (13, 8, "bool", 9)
    STRING = (14, 0, "object", 8)
    C64 = (15, 64, "complex64", 14)
    C128 = (16, 128, "complex128", 15)
    F8E4M3FN = (17, 8, "float8_e4m3fn", 17)
    F8E4M3FNUZ = (18, 8, "float8_e4m3fnuz", 18)
    F8E5M2 = (19, 8, "float8_e5m2", 19)
    F8E5M2FNUZ = (20, 8, "float8_e5m2fnuz", 20)
    U4 = (21, 4, "uint4", 21)
    I4 = (22, 4, "int4", 22)
    F4E2M1 = (23, 4, "float4_e2m1fn", 23)
    F8E8M0 = (24, 8, "float8_e8m0fnu", 24)
    U2 = (25, 2, "uint2", 25)
    I2 = (26, 2, "int2", 26)
    F6E2M3 = (27, 6, "float6_e2m3fn", 27)
    F6E3M2 = (28, 6, "float6_e3m2fn", 28)

    @property
    def code(self) -> int:
        return self.value[0]

    @property
    def bits(self) -> int:
        return self.value[1]

    @property
    def onnx(self) -> int:
        return self.value[3]

    @property
    def short(self) -> str:
        """Lower-case name for messages and files, such as `f32`."""
        return self.name.lower()

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; types that NumPy lacks come from ml_dtypes (imported on first use)."""
        return _numpy_dtype(self)

    @property
    def itemsize(self) -> int:
        """Bytes per element in memory (sub-byte types are held one element a byte; see `bundle` for files)."""
        return max(self.bits // 8, 1)

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_signed(self) -> bool:
        return self in _SIGNED

    @property
    def is_unsigned(self) -> bool:
        return self in _UNSIGNED

    @property
    def is_integer(self) -> bool:
        return self in _SIGNED or self in _UNSIGNED


_FLOATS = {
    DType.F32, DType.F64, DType.F16, DType.BF16, DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ,
    DType.F4E2M1, DType.F8E8M0, DType.F6E2M3, DType.F6E3M2,
}  # fmt: skip
_SIGNED = {DType.I8, DType.I16, DType.I32, DType.I64, DType.I4, DType.I2}
_UNSIGNED = {DType.U8, DType.U16, DType.U32, DType.U64, DType.U4, DType.U2}
_BY_CODE = {d.code: d for d in DType}
_BY_ONNX = {d.onnx: d for d in DType}
_BY_SHORT = {d.short: d for d in DType}
_BY_NUMPY_NAME = {d.value[2]: d for d in DType}


@cache
def _numpy_dtype(dtype: DType) -> np.dtype[Any]:
    name = dtype.value[2]
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def from_code(code: int) -> DType:
    """The dtype with this number; KeyError when there is none."""
    return _BY_CODE[code]


def from_onnx(number: int) -> DType:
    """The dtype of an ONNX TensorProto.DataType number; KeyError when there is none."""
    return _BY_ONNX[number]


def from_short(name: str) -> DType:
    """The dtype called `name` in files and messages; KeyError when there is none."""
    return _BY_SHORT[name]


def from_numpy(dtype: Any) -> DType:
    """The dtype of a NumPy dtype (any string type counts as STRING); KeyError when there is none."""
    dtype = np.dtype(dtype)
    if dtype.kind in "OSUT":
        return DType.STRING
    return _BY_NUMPY_NAME[dtype.name]
