"""BitCast against NumPy views."""

import ml_dtypes
import numpy as np
import pytest

from edgerun.dtypes import DType, from_numpy
from edgerun.errors import ShapeError
from edgerun.ops.registry import TensorType, infer
from tests.ops.single_node import NodeCase

PATTERNS = np.random.default_rng(5).integers(0, 256, 48, np.uint8)


def cast(x: np.ndarray, dtype: DType) -> np.ndarray:
    return NodeCase("BitCast", {"x": x}, {"to": dtype.onnx}, opset=26).edgerun()[0]


@pytest.mark.parametrize(
    ("source", "target"), [("f4", "i4"), ("i8", "f8"), ("u2", "f2"), ("u1", "i1"), ("i2", ml_dtypes.bfloat16)]
)
def test_same_bytes(source: str, target: object):
    x = PATTERNS.view(source).reshape(2, -1)
    dtype = np.dtype(target)  # type: ignore[call-overload]
    result = cast(x, from_numpy(dtype))
    assert result.shape == x.shape
    assert result.dtype == dtype
    assert result.tobytes() == x.tobytes()


def test_elements_below_a_byte():
    x = np.array([-8, -1, 0, 7], ml_dtypes.int4)
    assert cast(x, DType.U4).astype(int).tolist() == [8, 15, 0, 7]
    assert cast(np.array([8, 15, 0, 7], ml_dtypes.uint4), DType.I4).astype(int).tolist() == [-8, -1, 0, 7]
    halves = np.array([0.5, -6.0, 1.0], ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(cast(cast(halves, DType.U4), DType.F4E2M1).astype(float), [0.5, -6, 1])


def test_rank_zero_and_transposed():
    assert cast(np.array(1.0, np.float32), DType.I32) == 0x3F800000
    x = PATTERNS.view(np.int32).reshape(3, 4).T
    np.testing.assert_array_equal(cast(x, DType.F32), np.ascontiguousarray(x).view(np.float32))


def test_widths_must_agree():
    with pytest.raises(ShapeError, match="differ in width"):
        infer("bit_cast", [TensorType(DType.F32, (2,))], {"dtype": DType.F16})
