"""Axes and sizes that are inputs of the model, against onnxruntime and NumPy; errors come as the model runs."""

import numpy as np
import pytest

from edgerun.errors import ShapeError
from tests.ops.single_node import NodeCase

X = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 1, 4)


def axes(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("where", [(1,), (-2,), (3, 1), (-4, -2)])
def test_squeeze(where: tuple[int, ...]):
    case = NodeCase("Squeeze", {"x": X, "axes": axes(*where)}, opset=13)
    case.check()

    np.testing.assert_array_equal(case.edgerun()[0], np.squeeze(X, where))


@pytest.mark.parametrize("where", [(0,), (-1,), (2, 0), (-1, 1, 6)])
def test_unsqueeze(where: tuple[int, ...]):
    case = NodeCase("Unsqueeze", {"x": X, "axes": axes(*where)}, opset=13)
    case.check()
    np.testing.assert_array_equal(case.edgerun()[0], np.expand_dims(X, where))


def test_unsqueeze_of_a_scalar_and_of_nothing():
    NodeCase("Unsqueeze", {"x": np.array(3, np.float32), "axes": axes(0, 1)}, opset=13).check()
    NodeCase("Unsqueeze", {"x": np.zeros((0, 2), np.float32), "axes": axes(1)}, opset=13).check()


@pytest.mark.parametrize("sizes", [(1, 3), (4, 0), (2, 2)])
def test_split(sizes: tuple[int, ...]):
    NodeCase("Split", {"x": X, "sizes": axes(*sizes)}, {"axis": -1}, outputs=2, opset=13).check()


@pytest.mark.parametrize(
    ("op_type", "values", "outputs"),
    [("Squeeze", (0,), 1), ("Squeeze", (7,), 1), ("Unsqueeze", (9,), 1), ("Split", (1, 0), 2)],
)
def test_what_does_not_fit_is_refused_at_run_time(op_type: str, values: tuple[int, ...], outputs: int):
    with pytest.raises(ShapeError):
        NodeCase(op_type, {"x": X, "axes": axes(*values)}, outputs=outputs, opset=13).edgerun()
