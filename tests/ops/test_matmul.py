"""MatMul, Gemm and Det against NumPy and onnxruntime."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.backends.numpy.matmul import matmul
from edgerun.dims import symbol
from edgerun.dtypes import DType
from edgerun.errors import EdgerunError, ShapeError
from edgerun.ops.registry import TensorType, infer, spec
from tests.ops.shapes import assert_symbolic_shapes
from tests.ops.single_node import NodeCase


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@st.composite
def operands(draw):
    """Shapes of two operands that multiply: vectors, matrices, broadcast batches."""
    m, k, n = (draw(st.integers(1, 5)) for _ in range(3))
    batch = [draw(st.integers(1, 3)) for _ in range(draw(st.integers(0, 2)))]

    def some(batch):
        kept = [1 if draw(st.booleans()) else d for d in batch]
        return kept[draw(st.integers(0, len(kept))) :]

    left = (k,) if draw(st.integers(0, 4)) == 0 else (*some(batch), m, k)
    right = (k,) if draw(st.integers(0, 4)) == 0 else (*some(batch), k, n)
    return left, right


@given(operands(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_matmul_matches_numpy(shapes, constant):
    a, b = normal(*shapes[0]), normal(*shapes[1], seed=1)
    case = NodeCase("MatMul", {"A": a, "B": b}, constant=["B"] if constant else [])
    (y,) = case.edgerun()
    expected = a.astype(np.float64) @ b.astype(np.float64)
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


@given(operands())
@settings(max_examples=30, deadline=None)
def test_matmul_with_symbolic_sizes(shapes):
    assert_symbolic_shapes(NodeCase("MatMul", {"A": normal(*shapes[0]), "B": normal(*shapes[1])}, constant=["B"]))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_integer_products_wrap(dtype):
    top = np.iinfo(dtype).max
    a, b = np.array([[top, 3]], dtype), np.array([[2], [5]], dtype)
    (y,) = NodeCase("MatMul", {"A": a, "B": b}).edgerun()
    bits = np.dtype(dtype).itemsize * 8
    expected = (int(top) * 2 + 15) % 2**bits
    assert y.dtype == dtype
    assert int(y.item()) % 2**bits == expected


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 1e-2), (np.float64, 1e-14)])
def test_other_floats(dtype, tolerance):
    a, b = normal(3, 8).astype(dtype), normal(8, 4, seed=1).astype(dtype)
    (y,) = NodeCase("MatMul", {"A": a, "B": b}).edgerun()
    assert y.dtype == dtype
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 4)


def test_inner_size_of_zero_gives_zeros():
    (y,) = NodeCase("MatMul", {"A": np.zeros((2, 0), np.float32), "B": np.zeros((0, 3), np.float32)}).edgerun()
    np.testing.assert_array_equal(y, np.zeros((2, 3)))


def test_transposed_operand_bias_residual_and_activation():
    a, b, bias, residual = normal(2, 3, 4), normal(5, 4, seed=1), normal(5, seed=2), normal(2, 3, 5, seed=3)
    y = matmul(a, b, bias, residual, trans_b=True, act="leaky", p0=0.1, res="before")
    v = a @ b.T + bias + residual
    np.testing.assert_allclose(y, np.where(v < 0, 0.1 * v, v), rtol=1e-5, atol=1e-6)


def test_rule_refuses():
    f = DType.F32
    for a, b, message in (
        (TensorType(f, (2, 3)), TensorType(f, (4, 2)), "inner sizes"),
        (TensorType(f, ()), TensorType(f, (4, 2)), "scalar"),
        (TensorType(f, (2, 3)), TensorType(DType.F16, (3, 2)), "mixes"),
        (TensorType(f, (2, 4, 3)), TensorType(f, (3, 3, 2)), "broadcast"),
    ):
        with pytest.raises(ShapeError, match=message):
            infer("matmul", [a, b], {})


def test_macs_with_symbols():
    a, b = TensorType(DType.F32, (symbol("B"), 7, 16)), TensorType(DType.F32, (16, 3))
    (y,) = infer("matmul", [a, b], {})
    assert str(spec("matmul").macs(a, b, out=y)) == "336*B"


@given(
    trans_a=st.integers(0, 1),
    trans_b=st.integers(0, 1),
    alpha=st.sampled_from([1.0, 0.5, -2.0]),
    beta=st.sampled_from([1.0, 0.0, 0.25]),
    c=st.sampled_from([None, (), (1,), (4,), (1, 4), (3, 1), (3, 4)]),
    constant=st.sampled_from([[], ["B"], ["B", "C"], ["A", "C"]]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=150, deadline=None)
def test_gemm_matches_onnxruntime(trans_a, trans_b, alpha, beta, c, constant, dtype):
    a = normal(*((5, 3) if trans_a else (3, 5)), dtype=dtype)
    b = normal(*((4, 5) if trans_b else (5, 4)), seed=1, dtype=dtype)
    inputs = {"A": a, "B": b, "C": None if c is None else normal(*c, seed=2, dtype=dtype)}
    attributes = {"transA": trans_a, "transB": trans_b, "alpha": alpha, "beta": beta}
    NodeCase("Gemm", inputs, attributes, constant=constant, opset=13).check()


def test_gemm_folds_factors_and_transposes_into_constants():
    inputs = {"A": normal(3, 5), "B": normal(4, 5, seed=1), "C": normal(1, 4, seed=2)}
    graph = NodeCase("Gemm", inputs, {"transB": 1, "alpha": 0.5, "beta": 2.0}, constant=["B", "C"]).graph()
    (node,) = [n for n in graph.nodes if n.op not in ("reshape",)]
    assert node.op == "matmul"
    assert not node.attrs.get("trans_b")
    np.testing.assert_allclose(graph.constant(node.inputs[1]), 0.5 * inputs["B"].T)


def test_gemm_of_integers():
    a, b, c = np.array([[1, 2]], np.int32), np.array([[3], [4]], np.int32), np.array([5], np.int32)
    assert NodeCase("Gemm", {"A": a, "B": b, "C": c}, {"alpha": 2.0}).edgerun()[0].tolist() == [[27]]
    with pytest.raises(EdgerunError, match="factor"):
        NodeCase("Gemm", {"A": a, "B": b}, {"alpha": 0.5}).graph()


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (2, 4, 4), (2, 1, 3, 3), (0, 2, 2), (0, 0)])
def test_det(shape):
    x = normal(*shape)
    (y,) = NodeCase("Det", {"X": x}).edgerun()
    expected = np.linalg.det(x.astype(np.float64))
    assert y.shape == expected.shape
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_det_of_a_rectangle_is_refused():
    with pytest.raises(EdgerunError, match="square"):
        NodeCase("Det", {"X": normal(2, 3)}).graph()
