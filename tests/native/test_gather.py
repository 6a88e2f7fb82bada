"""Native gathers, scatters, top-k and running sums against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgerun.backends.native.backend import compile_graph
from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.dtypes import DType, from_numpy
from edgerun.errors import ShapeError
from edgerun.graph import Graph, Node
from edgerun.ops.registry import infer, tensor_type
from tests.native.oracle import check

TYPES = [np.uint8, np.float16, np.float32, np.int64]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_gather(dtype: Any, index: Any) -> None:
    rng = np.random.default_rng(0)
    for shape in [(5, 6, 7), (9,), (3, 1, 4), (2, 30)]:
        x = rng.integers(0, 200, shape).astype(dtype)
        for axis in range(x.ndim):
            for size in [(), (4,), (2, 3), (0,)]:
                i = np.asarray(rng.integers(-shape[axis], shape[axis], size)).astype(index)
                for constant in ((), (1,)):
                    check("gather", [x, i], np.asarray(np.take(x, i, axis)), axis=axis, constant=constant)
            n = tuple(max(d - 1, 1) for d in shape)
            i = rng.integers(0, shape[axis], n).astype(index)
            part = x[tuple(slice(0, d) if k != axis else slice(None) for k, d in enumerate(n))]
            check("gather_elements", [x, i], np.take_along_axis(part, i.astype(np.int64), axis), axis=axis)


def test_gather_nd() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 4, 5)).astype(np.float32)
    i = np.array([[0, 1], [2, -1]])
    check("gather_nd", [x, i], x[i[:, 0], i[:, 1]])
    i3 = np.array([[[0, 1, 2]], [[2, 3, 4]]])
    check("gather_nd", [x, i3], x[i3[..., 0], i3[..., 1], i3[..., 2]])
    batched = np.array([[1], [0], [3]])
    check("gather_nd", [x, batched], np.stack([x[b, batched[b, 0]] for b in range(3)]), batch_dims=1)
    check("gather_nd", [x, np.zeros((2, 0), np.int64)], np.stack([x, x]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint16])
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
def test_scatters(dtype: Any, reduction: str) -> None:
    rng = np.random.default_rng(2)
    data = rng.integers(1, 5, (4, 5)).astype(dtype)
    indices, updates = rng.integers(-4, 4, (3, 4)), rng.integers(0, 5, (3, 4)).astype(dtype)
    function = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}.get(reduction, lambda a, b: b)
    with np.errstate(over="ignore"):
        expected = data.copy()
        for i, j in np.ndindex(3, 4):
            expected[indices[i, j], j] = function(expected[indices[i, j], j], updates[i, j])
        check("scatter_elements", [data, indices, updates], expected, axis=0, reduction=reduction)
        rows = np.array([[1], [-1], [1]])
        updates = rng.integers(0, 5, (3, 5)).astype(dtype)
        expected = data.copy()
        for k in range(3):
            expected[rows[k, 0]] = function(expected[rows[k, 0]], updates[k])
    check("scatter_nd", [data, rows, updates], expected, reduction=reduction)


def test_one_hot_trilu_and_reversal() -> None:
    indices, values = np.array([[1, -1, 5], [0, 3, -6]]), np.array([2, 7], np.float32)
    expected = np.full((2, 3, 4), 2, np.float32)
    for i, j in np.ndindex(2, 3):
        place = int(indices[i, j]) + (4 if indices[i, j] < 0 else 0)
        if 0 <= place < 4:
            expected[i, j, place] = 7
    check("one_hot", [indices, np.asarray(4), values], expected, axis=2, constant=(1,))
    check("one_hot", [indices, np.asarray(4), values], expected.transpose(0, 2, 1).copy(), axis=1, constant=(1,))
    x = np.random.default_rng(3).normal(size=(2, 4, 6)).astype(np.float32)
    for k in (-9, -2, 0, 1, 3, 20):
        for constant in ((), (1,)):
            check("trilu", [x, np.asarray(k)], np.triu(x, k), upper=True, constant=constant)
            check("trilu", [x, np.asarray(k)], np.tril(x, k), upper=False, constant=constant)
    lengths = np.array([0, 3, 1, 4, 2, 4])
    y, z = x.transpose(2, 1, 0).copy(), x.transpose(1, 2, 0).copy()
    for b, n in enumerate(lengths):
        y[b, :n] = y[b, : min(n, 4)][::-1]
        z[: min(n, 4), b] = z[: min(n, 4), b][::-1]
    check("reverse_sequence", [x.transpose(2, 1, 0).copy(), lengths], y, batch_axis=0, time_axis=1)
    check("reverse_sequence", [x.transpose(1, 2, 0).copy(), lengths], z, batch_axis=1, time_axis=0)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.int64, np.uint64]
)
def test_topk(dtype: Any) -> None:
    rng = np.random.default_rng(4)
    for shape, axis in [((5, 30), 1), ((5, 30), 0), ((2, 7, 3), 1), ((1, 1000), 1)]:
        x = rng.integers(0, 20, shape).astype(dtype)
        for count in (1, 2, shape[axis] // 2 + 1, shape[axis], 0):
            for largest in (True, False):
                key = -x.astype(np.float64) if largest else x.astype(np.float64)
                order = np.take(np.argsort(key, axis=axis, kind="stable"), np.arange(count), axis=axis)
                expected = [np.take_along_axis(x, order, axis), order]
                check("topk", [x, np.array([count])], expected, count=count, axis=axis, largest=largest, sorted=True)
    x = np.array([1, np.nan, -0.0, 0.0, np.inf, -np.inf], np.float32)
    check("topk", [x], [x[[1, 4, 0, 2]], np.array([1, 4, 0, 2])], count=4, axis=0, largest=True, sorted=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.uint16, np.int32, np.int64])
def test_running_sums_and_products(dtype: Any) -> None:
    x = np.random.default_rng(5).integers(1, 4, (3, 4, 5)).astype(dtype)
    for axis in range(3):
        for reverse in (False, True):
            for exclusive in (False, True):
                for op, function, start in (("cumsum", np.cumsum, 0), ("cumprod", np.cumprod, 1)):
                    y = np.flip(x, axis) if reverse else x
                    full = function(y, axis=axis, dtype=np.float64 if x.dtype.kind == "f" else dtype)
                    if exclusive:
                        full = np.concatenate([np.full_like(np.take(full, [0], axis), start), full], axis)
                        full = np.take(full, np.arange(x.shape[axis]), axis)
                    expected = (np.flip(full, axis) if reverse else full).astype(dtype)
                    check(op, [x], expected, rtol=1e-3, over=axis, exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_index_outside_its_axis_ends_the_run(index: Any, threads: int) -> None:
    """With the node's name; the model stays usable. The same rule as the NumPy kernels have."""
    x = np.arange(4000, dtype=np.float32).reshape(4, 1000)
    cases = {
        "gather": ([x, np.array([0, 3, 1], index)], {"axis": 0}),
        "gather_elements": ([x, np.zeros((2, 1000), index)], {"axis": 0}),
        "gather_nd": ([x, np.array([[0], [1]], index)], {}),
        "scatter_elements": ([x, np.zeros((1, 1000), index), x[:1]], {"axis": 0}),
        "scatter_nd": ([x, np.array([[0], [1]], index), x[:2]], {}),
    }
    for op, (arrays, attrs) in cases.items():
        graph = Graph(inputs=[f"in{k}" for k in range(len(arrays))], outputs=["y"])
        for name, array in zip(graph.inputs, arrays, strict=True):
            graph.add_tensor(name, from_numpy(array.dtype), array.shape)
        types = [tensor_type(graph.tensors[name]) for name in graph.inputs]
        graph.add_tensor("y", DType.F32, infer(op, types, attrs)[0].shape)
        graph.nodes.append(Node(op, list(graph.inputs), ["y"], attrs, f"the {op}"))
        runner = compile_graph(graph, threads=threads)
        given = dict(zip(graph.inputs, arrays, strict=True))
        good = runner.run(given)["y"]
        for bad in (4, -5, 1 << 30):
            broken = arrays[1].copy()
            broken.reshape(-1)[-1] = bad
            with pytest.raises(ShapeError, match=f"node 'the {op}': index {bad} is outside an axis of 4 elements"):
                runner.run({**given, "in1": broken})
            with pytest.raises(ShapeError):
                NumpyExecutor(graph).run({**given, "in1": broken})
        np.testing.assert_array_equal(runner.run(given)["y"], good)


def test_a_length_outside_its_axis_ends_the_run() -> None:
    graph = Graph(inputs=["x", "n"], outputs=["y"])
    for name, dtype, shape in (("x", DType.F32, (2, 3)), ("n", DType.I64, (2,)), ("y", DType.F32, (2, 3))):
        graph.add_tensor(name, dtype, shape)
    graph.nodes.append(Node("reverse_sequence", ["x", "n"], ["y"], {"batch_axis": 0, "time_axis": 1}, "back"))
    runner = compile_graph(graph)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert runner.run({"x": x, "n": np.array([3, 1])})["y"].tolist() == [[2, 1, 0], [3, 4, 5]]
    for bad in (4, -1):
        with pytest.raises(ShapeError, match=rf"node 'back': length {bad} is outside 0\.\.3"):
            runner.run({"x": x, "n": np.array([bad, 1])})
