"""Sizes that the data decide: symbols that nodes give their values, in plans, in the runtime and in lowerings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.backends.native.backend import compile_graph
from edgerun.backends.native.binding import NativeModel, host_arch
from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.dims import DimLike, symbol
from edgerun.dtypes import DType, from_numpy
from edgerun.errors import EdgerunError, PlanError, ShapeError, UnsupportedError
from edgerun.graph import Graph, Node
from edgerun.plan import Plan, PlanNode, PlanReader, PlanTensor, Space, SymbolBounds, SymbolPlace, write
from tests.native.kernel_harness import REMOTE, levels, run_graph

F32, I64 = DType.F32, DType.I64
N = symbol("n")


def prefix(nodes: list[PlanNode] | None = None, **changes: Any) -> Plan:
    """y = the first n elements of x, n in 0..6 an input."""
    plan = Plan(
        host_arch(),
        symbols=[SymbolBounds("n", 0, 6)],
        tensors=[
            PlanTensor("x", F32, (6,), Space.ARENA, 0, 24),
            PlanTensor("count", I64, (1,), Space.ARENA, 64, 8),
            PlanTensor("y", F32, (N,), Space.ARENA, 128, 24),
        ],
        nodes=nodes
        or [
            PlanNode("bind_sizes", (1,), (), (0, 0, SymbolPlace("n")), "size"),
            PlanNode("copy_nd", (0,), (2,), (1, 0, N, 1), "copy"),
        ],
        inputs=[(0, "x"), (1, "count")],
        outputs=[(2, "y")],
        arena_bytes=192,
    )
    for key, value in changes.items():
        setattr(plan, key, value)
    return plan


X = np.arange(6, dtype=np.float32)


def test_an_output_has_the_size_that_the_data_say() -> None:
    model = NativeModel(write(prefix()))
    assert model.outputs[0].shape == (-1,)
    for n in (3, 0, 6, 1):
        y = model.run({"x": X, "count": np.array([n])})["y"]
        assert y.tolist() == X[:n].tolist()
    assert model.watch({"x": X, "count": np.array([2])}, 1).tolist() == [0, 1]
    assert [row["us"] >= 0 for row in model.profile({"x": X, "count": np.array([2])}, 1)] == [True, True]


def test_a_size_beyond_the_plan_ends_the_run_and_leaves_the_model_usable() -> None:
    model = NativeModel(write(prefix()))
    for n in (7, -1, 1 << 40):
        with pytest.raises(ShapeError, match=rf"node 'size': n is {n}; the plan is made for 0 to 6"):
            model.run({"x": X, "count": np.array([n])})
        assert model.run({"x": X, "count": np.array([2])})["y"].tolist() == [0, 1]


def test_values_are_held_to_the_bounds_where_asked() -> None:
    plan = prefix()
    plan.nodes[0] = PlanNode("bind_sizes", (1,), (), (1, -10, SymbolPlace("n")), "size")
    model = NativeModel(write(plan))
    for raw, n in ((12, 2), (-(1 << 63), 0), ((1 << 63) - 1, 6)):
        assert model.run({"x": X, "count": np.array([raw])})["y"].size == n


def broken() -> dict[str, tuple[Plan, str]]:
    copy = PlanNode("copy_nd", (0,), (2,), (1, 0, N, 1), "copy")
    size = PlanNode("bind_sizes", (1,), (), (0, 0, SymbolPlace("n")), "size")
    return {
        "nobody gives the size": (prefix([copy]), "gives the free dim"),
        "given twice": (prefix([size, size, copy]), "not free"),
        "used before it is given": (prefix([copy, size]), "before its sizes are known"),
        "no dim": (prefix([PlanNode("bind_sizes", (1,), (), (0, 0, 99), "size"), copy]), "not free"),
        "too many elements": (
            prefix([PlanNode("bind_sizes", (0,), (), (0, 0, SymbolPlace("n")), "size"), copy]),
            "dtype",
        ),
        "bad mode": (prefix([PlanNode("bind_sizes", (1,), (), (2, 0, SymbolPlace("n")), "size"), copy]), "one tensor"),
    }


@pytest.mark.parametrize("name", broken())
def test_refused_plans(name: str) -> None:
    plan, message = broken()[name]
    with pytest.raises(PlanError, match=message):
        NativeModel(write(plan))
    if message in ("gives the free dim", "not free"):
        with pytest.raises(PlanError, match=message):
            PlanReader(write(plan))


def test_an_input_cannot_have_a_size_from_the_data() -> None:
    plan = prefix(inputs=[(0, "x"), (1, "count"), (2, "y")])
    plan.nodes = plan.nodes[:1]
    with pytest.raises(PlanError, match="not free"):
        NativeModel(write(plan))


def test_later_nodes_are_checked_with_the_sizes_of_this_run() -> None:
    plan = prefix()
    plan.nodes[1] = PlanNode("copy_nd", (0,), (2,), (1, 2, N, 1), "copy")
    model = NativeModel(write(plan))
    assert model.run({"x": X, "count": np.array([4])})["y"].tolist() == [2, 3, 4, 5]
    with pytest.raises(ShapeError, match=r"node 'copy' \(copy_nd\): copy_nd reads outside its input"):
        model.run({"x": X, "count": np.array([5])})
    assert model.run({"x": X, "count": np.array([1])})["y"].tolist() == [2]


# -- lowerings


def runs_like_numpy(
    op: str,
    inputs: list[np.ndarray],
    attrs: dict[str, Any],
    shape: tuple[DimLike, ...] | None,
    dtype: DType | None = None,
) -> None:
    """All inputs are inputs of the graph; `shape` is what the model declares of the result."""
    g = Graph(outputs=["y"])
    for k, array in enumerate(inputs):
        g.inputs.append(f"in{k}")
        g.add_tensor(f"in{k}", from_numpy(array.dtype), array.shape)
    g.add_tensor("y", dtype or from_numpy(inputs[0].dtype), shape)
    g.nodes.append(Node(op, list(g.inputs), ["y"], attrs, op))
    given_arrays = dict(zip(g.inputs, inputs, strict=True))
    try:
        want = NumpyExecutor(g).run(given_arrays)["y"]
    except EdgerunError:
        with pytest.raises(EdgerunError):
            compile_graph(g).run(given_arrays)
        return
    got = compile_graph(g).run(given_arrays)["y"]
    assert got.shape == want.shape, (got.shape, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


SETTINGS = settings(max_examples=60, deadline=None)
small = st.lists(st.integers(0, 4), min_size=1, max_size=4)


def fresh(rank: int) -> tuple[DimLike, ...]:
    return tuple(symbol(f"fresh@{k}") for k in range(rank))


@SETTINGS
@given(st.data())
def test_slice(data: st.DataObject) -> None:
    shape = data.draw(small)
    count = data.draw(st.integers(1, len(shape)))
    numbers = st.one_of(st.integers(-6, 6), st.sampled_from([-(1 << 62), (1 << 63) - 1]))
    starts, ends = (np.array([data.draw(numbers) for _ in range(count)], np.int64) for _ in range(2))
    axes = np.array(data.draw(st.permutations(range(len(shape))))[:count], np.int64)
    axes = axes - len(shape) * np.array([data.draw(st.booleans()) for _ in range(count)])
    steps = np.array([data.draw(st.sampled_from([1, 2, 3, -1, -2, 7])) for _ in range(count)], np.int64)
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    runs_like_numpy("slice", [x, starts, ends, axes, steps], {}, fresh(len(shape)))


@SETTINGS
@given(st.data())
def test_reductions_over_computed_axes(data: st.DataObject) -> None:
    shape = data.draw(small)
    axes = np.array(data.draw(st.permutations(range(len(shape))))[: data.draw(st.integers(0, len(shape)))], np.int64)
    axes = axes - len(shape) * (axes % 2)
    keep = data.draw(st.booleans())
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    kind = data.draw(st.sampled_from(["sum", "max", "prod", "l2"]))
    rank = len(shape) if keep else len(shape) - len(axes) if len(axes) else 0
    attrs = {"kind": kind, "keepdims": keep}
    runs_like_numpy("reduce", [x, axes], attrs, fresh(rank) if data.draw(st.booleans()) else None)


@SETTINGS
@given(st.data())
def test_reshape(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    target = data.draw(st.permutations([*shape, *data.draw(st.sampled_from([[], [1], [1, 1]]))]))
    for _ in range(data.draw(st.integers(0, 2))):
        target[data.draw(st.integers(0, len(target) - 1))] = data.draw(st.sampled_from([-1, 0, 2, 5, -2]))
    attrs = {"allowzero": data.draw(st.booleans())}
    runs_like_numpy("reshape", [x, np.array(target, np.int64)], attrs, fresh(len(target)))


@SETTINGS
@given(st.data())
def test_pad_tile_and_expand_within_declared_sizes(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect", "wrap"]))
    widths = [(data.draw(st.integers(-2, 3)), data.draw(st.integers(-2, 3))) for _ in shape]
    pads = np.array([b for b, _ in widths] + [a for _, a in widths], np.int64)
    declared = tuple(max(d + b + a, 0) for d, (b, a) in zip(shape, widths, strict=True))
    runs_like_numpy("pad", [x, pads], {"mode": mode}, declared)
    times = [data.draw(st.integers(0, 3)) for _ in shape]
    declared = tuple(d * t for d, t in zip(shape, times, strict=True))
    runs_like_numpy("tile", [x, np.array(times, np.int64)], {}, declared)
    to = [
        *data.draw(st.sampled_from([[], [2], [1, 3]])),
        *(d if d > 1 else data.draw(st.integers(0, 3)) for d in shape),
    ]
    runs_like_numpy("expand", [x, np.array(to, np.int64)], {}, tuple(to))


def test_top_k_running_sums_and_one_hot() -> None:
    running = {"exclusive": False, "reverse": True}
    x = np.random.default_rng(2).normal(size=(3, 5)).astype(np.float32)
    for axis in (-2, -1, 0, 1):
        runs_like_numpy("cumsum", [x, np.array(axis)], running, (3, 5))
    runs_like_numpy("cumsum", [x, np.array(2)], running, (3, 5))
    indices = np.array([0, 2, -1])
    for depth in (3, 4):
        runs_like_numpy(
            "one_hot", [indices, np.array(depth), np.array([0, 1], np.float32)], {"axis": 1}, (3, depth), F32
        )
    g = Graph(inputs=["x", "k"], outputs=["v", "i"])
    g.add_tensor("x", F32, (3, 5))
    g.add_tensor("k", I64, (1,))
    g.add_tensor("v", F32, (3, symbol("topk@0")))
    g.add_tensor("i", I64, (3, symbol("topk@0")))
    g.nodes.append(Node("topk", ["x", "k"], ["v", "i"], {"axis": 1}, "topk"))
    runner = compile_graph(g)
    for k in (0, 2, 5):
        found = runner.run({"x": x, "k": np.array([k])})
        order = np.argsort(-x, axis=1, kind="stable")[:, :k]
        assert (found["i"] == order).all() and (found["v"] == np.take_along_axis(x, order, 1)).all()
    with pytest.raises(ShapeError, match=r"k.0@.* is 6; the plan is made for 0 to 5"):
        runner.run({"x": x, "k": np.array([6])})


def test_a_size_without_a_bound_is_refused_with_the_remedy() -> None:
    with pytest.raises(UnsupportedError, match="depends on the data and has no bound") as caught:
        runs_like_numpy("tile", [X, np.array([2])], {}, fresh(1))
    assert "declare the shape" in str(caught.value)


def test_another_size_than_the_declared_one_is_refused() -> None:
    g = Graph(inputs=["x", "times"], outputs=["y"])
    g.add_tensor("x", F32, (6,))
    g.add_tensor("times", I64, (1,))
    g.add_tensor("y", F32, (12,))
    g.nodes.append(Node("tile", ["x", "times"], ["y"], {}, "tile"))
    runner = compile_graph(g)
    assert runner.run({"x": X, "times": np.array([2])})["y"].tolist() == [*X, *X]
    with pytest.raises(ShapeError, match="a size is 18 where the model declares 12"):
        runner.run({"x": X, "times": np.array([3])})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.bool_, np.int8, np.int64, np.uint16])
def test_nonzero_and_compress(dtype: Any) -> None:
    rng = np.random.default_rng(3)
    for shape in [(), (5,), (3, 4), (2, 3, 4), (0, 3)]:
        x = (rng.integers(0, 3, shape) - 1).astype(dtype)
        runs_like_numpy("nonzero", [x], {}, (max(x.ndim, 1), symbol("fresh@0")), I64)
        for axis in range(x.ndim):
            for length in (1, x.shape[axis], x.shape[axis] + 2):
                condition = rng.integers(0, 2, length).astype(bool)
                declared = tuple(symbol("fresh@1") if k == axis else d for k, d in enumerate(shape))
                runs_like_numpy("compress", [x, condition], {"axis": axis}, declared)
        if shape:
            runs_like_numpy("compress", [x, rng.integers(0, 2, 3).astype(bool)], {}, (symbol("fresh@2"),))
    floats = np.array([0.0, -0.0, np.nan, 1e-40, -np.inf], np.float32)
    runs_like_numpy("nonzero", [floats], {}, (1, symbol("fresh@3")), I64)


@pytest.mark.parametrize("level", [*levels(), *REMOTE])
def test_nonzero_at_every_level(level: str) -> None:
    x = np.array([[0, 2, 0], [-1, 0, 5]], np.float32)
    g = Graph(inputs=["x"], outputs=["y"])
    g.add_tensor("x", F32, (2, 3))
    g.add_tensor("y", I64, (2, 3))
    g.nodes.append(Node("nonzero", ["x"], ["y"], {}, "nonzero"))
    assert run_graph(g, {"x": x}, level=level)[0].tolist() == [[0, 1, 1], [1, 0, 2]]


@SETTINGS
@given(st.data())
def test_resize_with_computed_factors_and_sizes(data: st.DataObject) -> None:
    mode = data.draw(st.sampled_from(["nearest", "linear", "cubic"]))
    rules = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    attrs = {"axes": (1, 2), "mode": mode, "coordinate": data.draw(st.sampled_from(rules))}
    shape = (2, data.draw(st.integers(2, 7)), data.draw(st.integers(2, 7)))
    x = np.random.default_rng(4).normal(size=shape).astype(np.float32)
    factors = [data.draw(st.sampled_from([0.5, 0.6, 0.75, 1, 1.5, 2, 2.4, 3])) for _ in range(2)]
    declared = (2, *(int(np.floor(np.float32(d) * np.float32(f))) for d, f in zip(shape[1:], factors, strict=True)))
    runs_like_numpy("resize", [x, np.array(factors, np.float32)], attrs, declared)
    g = Graph(inputs=["x", "to"], outputs=["y"])
    g.add_tensor("x", F32, shape)
    g.add_tensor("to", I64, (2,))
    g.add_tensor("y", F32, declared)
    g.nodes.append(Node("resize", ["x", "", "to"], ["y"], attrs, "resize"))
    given_arrays = {"x": x, "to": np.array(declared[1:])}
    want = NumpyExecutor(g).run(given_arrays)["y"]
    np.testing.assert_allclose(compile_graph(g).run(given_arrays)["y"], want, rtol=1e-4, atol=1e-5)


def test_parts_of_computed_sizes() -> None:
    g = Graph(inputs=["x", "sizes"], outputs=["a", "b"])
    g.add_tensor("x", F32, (2, 5))
    g.add_tensor("sizes", I64, (2,))
    g.add_tensor("parts", F32, None, kind="sequence")
    for k, name in enumerate(g.outputs):
        g.add_tensor(f"k{k}", I64, (), np.array(k))
        g.add_tensor(name, F32, None)
    g.nodes.append(Node("split_to_sequence", ["x", "sizes"], ["parts"], {"axis": 1}, "split"))
    g.nodes += [Node("sequence_at", ["parts", f"k{k}"], [name], {}, name) for k, name in enumerate(g.outputs)]
    runner, x = compile_graph(g), np.arange(10, dtype=np.float32).reshape(2, 5)
    for n in range(6):
        found = runner.run({"x": x, "sizes": np.array([n, 5 - n])})
        assert found["a"].tolist() == x[:, :n].tolist() and found["b"].tolist() == x[:, n:].tolist()
    with pytest.raises(ShapeError, match="a size is 4 where the model declares 5"):
        runner.run({"x": x, "sizes": np.array([2, 2])})
