"""The records of plan_format.h. A test compares every size and field offset with the C header."""

from __future__ import annotations

import enum
import struct

MAGIC = b"EDGEPLAN"
VERSION = 1
ALIGNMENT = 64
MAX_RANK = 8
MAX_NODE_INPUTS = 4096
MAX_NODE_OUTPUTS = 256
MAX_KERNELS = 1024
NATIVE_DTYPES = (*range(1, 14), *range(17, 29))
"""DType codes that the runtime has (enum er_dtype)."""
GOLDEN_LAYER = 0x80000000

ARCHES = {"x86_64": 1, "aarch64": 2, "armv7": 3, "riscv64": 4, "wasm32": 5}

HEADER = struct.Struct("<8sIIQQQIIQQII56x")
SECTION = struct.Struct("<IIQQ")
DIM = struct.Struct("<IiiIq")
TENSOR = struct.Struct("<BBBBIIIQQ")
NODE = struct.Struct("<HHHHIIIIIIQQ")
IO = struct.Struct("<II")
GOLDEN = struct.Struct("<IIQQff")


class Section(enum.IntEnum):
    """enum er_section."""

    DIMS = 1
    WORDS = 2
    STRINGS = 3
    TENSORS = 4
    NODES = 5
    KERNELS = 6
    IO = 7
    GOLDEN = 8
    MANIFEST = 9
    WEIGHTS = 10
    TOKENIZER = 11


class DimOp(enum.IntEnum):
    """enum er_dimop."""

    CONST = 0
    SYM = 1
    ADD = 2
    SUB = 3
    MUL = 4
    FLOORDIV = 5
    CEILDIV = 6
    MOD = 7
    MIN = 8
    MAX = 9


class TensorFlag(enum.IntFlag):
    """enum er_tensor_flag."""

    VIEW = 1


_FNV_OFFSET, _FNV_PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 0xFFFFFFFFFFFFFFFF


def fnv1a(data: bytes | memoryview) -> int:
    """FNV-1a, 64 bits, byte by byte: the checksum of the plan's tables."""
    h = _FNV_OFFSET
    for byte in bytes(data):
        h = ((h ^ byte) * _FNV_PRIME) & _MASK
    return h


def fnv1a_words(data: bytes | memoryview) -> int:
    """FNV-1a over little-endian 8-byte words, zero padded: the checksum of the weights."""
    whole = len(data) // 8 * 8
    words = [w for (w,) in struct.iter_unpack("<Q", data[:whole])]
    if whole < len(data):
        words.append(int.from_bytes(data[whole:], "little"))
    h = _FNV_OFFSET
    for word in words:
        h = ((h ^ word) * _FNV_PRIME) & _MASK
    return h


def aligned(offset: int, alignment: int = ALIGNMENT) -> int:
    """The next multiple of `alignment`."""
    return -(-offset // alignment) * alignment
