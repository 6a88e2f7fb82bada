"""Branches, failing branches and unrolled loops in native plans, compared with the NumPy backend."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgerun.backends.native.backend import build_plan, compile_graph, compile_plan
from edgerun.backends.native.binding import NativeModel, host_arch
from edgerun.dims import DimLike, symbol
from edgerun.dtypes import DType
from edgerun.errors import PlanError, ShapeError, UnsupportedError, UsageError
from edgerun.graph import Graph, Node
from edgerun.plan import Plan, PlanNode, PlanReader, PlanTensor, Space, Weight, write
from edgerun.session import from_graph, load_graph
from tests.corpus.corpus import CorpusModel, compare, folder, models
from tests.native.emulated import run_plan

F32, BOOL, I64 = DType.F32, DType.BOOL, DType.I64


def add(graph: Graph, function: str, inputs: Sequence[str], out: str, shape: tuple[DimLike, ...] = (4,)) -> str:
    """An elementwise node over float32 tensors."""
    graph.add_tensor(out, F32, shape)
    program = ((function, F32, *range(len(inputs))),)
    graph.nodes.append(Node("elementwise", list(inputs), [out], {"program": program}, out))
    return out


def choose(graph: Graph, condition: str, then: Graph, other: Graph, outputs: Sequence[str]) -> None:
    """An `if` whose outputs have the types of the first branch's."""
    for name, source in zip(outputs, then.outputs, strict=True):
        t = then.tensors[source]
        graph.add_tensor(name, t.dtype, t.shape)
    attrs = {"then_branch": then, "else_branch": other}
    graph.nodes.append(Node("if", [condition], list(outputs), attrs, f"choose {outputs[0]}"))


def branch(function: str, *inputs: str, shape: tuple[DimLike, ...] = (4,)) -> Graph:
    """A branch of one node that reads the tensors around it."""
    g = Graph(outputs=["r"])
    add(g, function, inputs, "r", shape)
    return g


def failing(message: str) -> Graph:
    g = Graph(outputs=["r"])
    g.add_tensor("r", F32, (4,))
    g.nodes.append(Node("fail", [], ["r"], {"message": message, "types": ((F32, (4,)),)}, "fail"))
    return g


def simple(then: Graph, other: Graph, shape: tuple[DimLike, ...] = (4,), flag: tuple[int, ...] = ()) -> Graph:
    """y = then or other of x, by the flag c."""
    g = Graph(inputs=["c", "x"], outputs=["y"])
    g.add_tensor("c", BOOL, flag)
    g.add_tensor("x", F32, shape)
    choose(g, "c", then, other, ["y"])
    return g


X = np.array([0.5, -2, 3, 0], np.float32)


@pytest.mark.parametrize("flag", [(), (1,), (1, 1)])
@pytest.mark.parametrize("threads", [1, 2])
def test_either_branch(flag: tuple[int, ...], threads: int) -> None:
    runner = compile_graph(simple(branch("exp", "x"), branch("neg", "x"), flag=flag), threads=threads)
    for taken in (True, False, True):
        y = runner.run({"c": np.full(flag, taken), "x": X})["y"]
        np.testing.assert_allclose(y, np.exp(X) if taken else -X, rtol=1e-6)


def test_only_one_branch_runs() -> None:
    runner = compile_graph(simple(branch("exp", "x"), branch("neg", "x")))
    inputs = {"c": np.array(False), "x": X}
    nodes = runner.model.nodes
    assert [n.kernel for n in nodes] == [
        "skip_unless", "elementwise", "skip_unless", "elementwise", "select",
    ]  # fmt: skip
    rows = runner.profile(inputs, 2)
    assert rows[1]["us"] == 0 and rows[3]["us"] > 0
    with pytest.raises(UsageError, match="branch that is not taken"):
        runner.model.watch(inputs, 1)
    np.testing.assert_array_equal(runner.model.watch(inputs, 3), -X)
    found = runner.intermediates(inputs)
    assert len(found) == 2 and all((value == -X).all() for value in found.values())
    assert (runner.profile({"c": np.array(True), "x": X}, 1)[1])["us"] > 0


def test_a_branch_may_be_a_constant_or_a_tensor_around_it() -> None:
    constant, captured = Graph(outputs=["k"]), Graph(outputs=["x"])
    constant.add_tensor("k", F32, (4,), np.arange(4, dtype=np.float32))
    runner = compile_graph(simple(constant, captured))
    assert runner.run({"c": np.array(True), "x": X})["y"].tolist() == [0, 1, 2, 3]
    assert runner.run({"c": np.array(False), "x": X})["y"].tolist() == X.tolist()


def test_a_constant_condition_leaves_one_branch() -> None:
    g = simple(branch("exp", "x"), failing("never"))
    g.inputs = ["x"]
    g.tensors["c"].data = np.array(True)
    runner = compile_graph(g)
    assert [n.kernel for n in runner.model.nodes] == ["elementwise"]
    np.testing.assert_allclose(runner.run({"x": X})["y"], np.exp(X), rtol=1e-6)


@pytest.mark.parametrize("fails_when", [True, False])
def test_a_failing_branch_ends_the_run_and_leaves_the_model_usable(fails_when: bool) -> None:
    good, bad = branch("neg", "x"), failing("sizes 3 and 4 do not fit")
    runner = compile_graph(simple(bad, good) if fails_when else simple(good, bad))
    for _ in range(2):
        with pytest.raises(ShapeError, match=r"choose y.*sizes 3 and 4 do not fit"):
            runner.run({"c": np.array(fails_when), "x": X})
        assert runner.run({"c": np.array(not fails_when), "x": X})["y"].tolist() == (-X).tolist()
    with pytest.raises(ShapeError, match="sizes 3 and 4"):
        runner.profile({"c": np.array(fails_when), "x": X}, 1)


def test_branches_that_cannot_be_planned_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"choose y.*f32\[4\] and f32\[3\]"):
        compile_graph(simple(branch("neg", "x"), branch("neg", "x", shape=(3,))))
    with pytest.raises(UnsupportedError, match="neither branch can run: one; two"):
        compile_graph(simple(failing("one"), failing("two")))
    with pytest.raises(UnsupportedError, match="not one element"):
        compile_graph(simple(branch("neg", "x"), branch("exp", "x"), flag=(2,)))


def test_sizes_may_be_free() -> None:
    n = symbol("N")
    g = simple(branch("exp", "x", shape=(n, 3)), branch("neg", "x", shape=(n, 3)), (n, 3))
    g.symbols["N"] = (0, 9)
    runner = compile_graph(g)
    for size, taken in itertools.product((1, 9, 0, 4), (True, False)):
        x = np.random.default_rng(size).normal(size=(size, 3)).astype(np.float32)
        y = runner.run({"c": np.array(taken), "x": x})["y"]
        np.testing.assert_allclose(y, np.exp(x) if taken else -x, rtol=1e-6)


# -- random programs with nested branches: what shares memory never changes a value

FLAGS = 3


class Program:
    """A graph with branches in branches that read the tensors around them, and pieces joined and cut."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0
        self.graph = Graph(inputs=[f"c{i}" for i in range(FLAGS)] + ["a", "b"])
        for name in self.graph.inputs[:FLAGS]:
            self.graph.add_tensor(name, BOOL, ())
        for name in ("a", "b"):
            self.graph.add_tensor(name, F32, (4,))
        made = self.fill(self.graph, ["a", "b"], depth=0)
        self.graph.outputs = list(dict.fromkeys([made[-1], self.rng.choice(made)]))

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def fill(self, g: Graph, seen: list[str], depth: int) -> list[str]:
        """Add nodes that read tensors of `seen`; the names of theirs."""
        made: list[str] = []
        for _ in range(self.rng.randrange(1, 7)):
            near = [*seen, *made][-6:]
            kind = self.rng.choice(["add", "neg", "joined", "if", "if"])
            if kind == "add":
                made.append(add(g, "add", [self.rng.choice(near), self.rng.choice(near)], self.fresh()))
            elif kind == "neg":
                made.append(add(g, "neg", [self.rng.choice(near)], self.fresh()))
            elif kind == "joined":
                joined, cut = self.fresh(), self.fresh()
                g.add_tensor(joined, F32, (8,))
                pieces = [self.rng.choice(near), self.rng.choice(near)]
                g.nodes.append(Node("concat", pieces, [joined], {"axis": 0}, joined))
                g.add_tensor(cut, F32, (4,))
                g.nodes.append(Node("slice", [joined], [cut], {"ranges": ((0, 2, 4, 1),)}, cut))
                made.append(cut)
            elif depth < 3:
                outputs = [self.fresh() for _ in range(self.rng.choice([1, 1, 2]))]
                branches = []
                for _ in range(2):
                    inner = Graph()
                    names = self.fill(inner, [*seen, *made], depth + 1)
                    names += [self.rng.choice(near)] if self.rng.random() < 0.2 else []
                    inner.outputs = [self.rng.choice(names[-3:]) for _ in outputs]
                    branches.append(inner)
                for name in outputs:
                    g.add_tensor(name, F32, (4,))
                attrs = {"then_branch": branches[0], "else_branch": branches[1]}
                g.nodes.append(Node("if", [f"c{self.rng.randrange(FLAGS)}"], outputs, attrs, outputs[0]))
                made += outputs
        return made or [add(g, "neg", [seen[-1]], self.fresh())]


@pytest.mark.parametrize("seed", range(40))
def test_nested_branches_share_memory_without_harm(seed: int) -> None:
    graph = Program(seed).graph
    graph.check()
    reference, shared = from_graph(graph, "numpy"), compile_graph(graph)
    apart = compile_graph(graph, share_memory=False)
    assert shared.model.arena_bytes <= apart.model.arena_bytes
    for flags in itertools.product((True, False), repeat=FLAGS):
        inputs: dict[str, Any] = {f"c{i}": np.array(f) for i, f in enumerate(flags)}
        inputs |= {"a": np.array([1, 10, 100, 1000], np.float32), "b": np.array([3, 0.5, -7, 0.25], np.float32)}
        want = reference.run(inputs)
        for runner in (shared, apart):
            for name, value in runner.run(inputs).items():
                np.testing.assert_array_equal(value, want[name], err_msg=f"{name} with {flags}")


# -- loops


def counting_body(*, condition: str = "going") -> Graph:
    """(i, going, v) -> (going, v + v * i, v)."""
    body = Graph(inputs=["i", "going", "v"])
    body.add_tensor("i", I64, ())
    body.add_tensor("going", BOOL, ())
    body.add_tensor("v", F32, (4,))
    body.add_tensor("f", F32, ())
    body.nodes.append(Node("elementwise", ["i"], ["f"], {"program": (("cast", F32, 0),)}, "f"))
    body.add_tensor("table", F32, (4,), np.array([1, 2, 3, 4], np.float32))
    add(body, "mul", ["v", "f"], "scaled")
    add(body, "add", ["scaled", "table"], "next")
    add(body, "neg", ["v"], "row")
    if condition == "computed":
        body.add_tensor("computed", BOOL, ())
        program = (("const", F32, 9.0), ("lt", F32, 0, 1))
        body.nodes.append(Node("elementwise", ["f"], ["computed"], {"program": program}, "computed"))
    body.outputs = [condition, "next", "row"]
    return body


def counting(trips: int | None, start: bool | None = None, *, condition: str = "going") -> Graph:
    g = Graph(inputs=["x"], outputs=["y", "rows"])
    g.add_tensor("x", F32, (4,))
    sources = ["", "", "x"]
    if trips is not None:
        sources[0] = g.add_constant(np.array(trips), "trips")
    if start is not None:
        sources[1] = g.add_constant(np.array(start), "start")
    g.add_tensor("y", F32, (4,))
    g.add_tensor("rows", F32, (max(trips or 0, 0) if start is not False else 0, 4))
    g.nodes.append(Node("loop", sources, ["y", "rows"], {"body": counting_body(condition=condition)}, "count"))
    return g


@pytest.mark.parametrize(("trips", "start"), [(5, None), (1, True), (0, None), (-3, None), (4, False)])
def test_loops_of_a_known_length_are_unrolled(trips: int, start: bool | None) -> None:
    graph = counting(trips, start)
    want, got = from_graph(graph, "numpy").run({"x": X}), compile_graph(graph).run({"x": X})
    np.testing.assert_allclose(got["y"], want["y"], rtol=1e-6)
    np.testing.assert_array_equal(got["rows"], want["rows"])


def test_unrolling_stores_the_weights_of_a_body_once() -> None:
    table = np.array([1, 2, 3, 4], np.float32).tobytes()
    assert compile_plan(counting(20), host_arch()).plan.count(table) == 1


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (counting(None), "no largest number"),
        (counting(4, condition="computed"), "computed condition"),
        (counting(10**9), "iterations of"),
    ],
)
def test_other_loops_are_refused_by_name(graph: Graph, words: str) -> None:
    with pytest.raises(UnsupportedError, match=f"'count'.*{words}"):
        compile_graph(graph)


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("start", [True, False, None])
def test_a_computed_condition_guards_the_iterations(start: bool | None, shape: tuple[int, ...]) -> None:
    """v doubles while its largest element stays below 20, six times at most."""
    body = Graph(inputs=["i", "going", "v"], outputs=["more", "next"])
    body.add_tensor("i", I64, ())
    body.add_tensor("going", BOOL, ())
    body.add_tensor("v", F32, (4,))
    add(body, "add", ["v", "v"], "next")
    body.add_tensor("top", F32, shape)
    body.nodes.append(Node("reduce", ["next"], ["top"], {"kind": "max", "over": (0,), "keepdims": bool(shape)}, "top"))
    body.add_tensor("more", BOOL, shape)
    program = (("const", F32, 20.0), ("lt", F32, 0, 1))
    body.nodes.append(Node("elementwise", ["top"], ["more"], {"program": program}, "more"))
    g = Graph(inputs=["x", "start"], outputs=["y"])
    g.add_tensor("x", F32, (4,))
    g.add_tensor("start", BOOL, shape, None if start is None else np.full(shape, start))
    g.add_tensor("y", F32, (4,))
    trips = g.add_constant(np.array(6), "trips")
    if start is not None:
        g.inputs = ["x"]
    g.nodes.append(Node("loop", [trips, "start", "x"], ["y"], {"body": body}, "double"))
    reference, runner = from_graph(g, "numpy"), compile_graph(g)
    for scale, flag in itertools.product((1, 0.01, 5, 100), (True, False)):
        inputs: dict[str, Any] = {"x": X * np.float32(scale)}
        if start is None:
            inputs["start"] = np.full(shape, flag)
        np.testing.assert_array_equal(runner.run(inputs)["y"], reference.run(inputs)["y"])


def test_a_condition_that_turns_false_ends_the_loop() -> None:
    graph = counting(5)
    body = graph.nodes[0].attrs["body"]
    body.add_tensor("no", BOOL, (), np.array(False))
    body.outputs[0] = "no"
    graph.tensors["rows"].shape = (1, 4)
    want, got = from_graph(graph, "numpy").run({"x": X}), compile_graph(graph).run({"x": X})
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value)


def test_a_computed_trip_count_is_refused() -> None:
    graph = counting(3)
    name = graph.nodes[0].inputs[0]
    graph.tensors[name].data = None
    graph.inputs.append(name)
    with pytest.raises(UnsupportedError, match="trip count is computed"):
        compile_graph(graph)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("out_axis", [0, 1, -1])
def test_scans_of_a_known_length_are_unrolled(axis: int, out_axis: int, reverse: bool) -> None:
    body = Graph(inputs=["s", "v"])
    body.add_tensor("s", F32, (4,))
    body.add_tensor("v", F32, (4,))
    add(body, "add", ["s", "v"], "sum")
    inner = branch("neg", "sum")
    body.add_tensor("positive", BOOL, ())
    body.add_tensor("first", F32, ())
    body.nodes.append(Node("reduce", ["sum"], ["first"], {"kind": "max", "over": (0,), "keepdims": False}, "first"))
    body.nodes.append(
        Node("elementwise", ["first"], ["positive"], {"program": (("const", F32, 1.0), ("gt", F32, 0, 1))}, "positive")
    )
    choose(body, "positive", inner, branch("exp", "v"), ["row"])
    body.outputs = ["sum", "row"]
    g = Graph(inputs=["x", "zero"], outputs=["total", "rows"])
    shape = (3, 4) if axis == 0 else (4, 3)
    g.add_tensor("x", F32, shape)
    g.add_tensor("zero", F32, (4,))
    g.add_tensor("total", F32, (4,))
    g.add_tensor("rows", F32, (3, 4) if out_axis == 0 else (4, 3))
    attrs = {
        "body": body, "num_scan_inputs": 1, "input_axes": (axis,), "input_reverse": (reverse,),
        "output_axes": (out_axis,), "output_reverse": (reverse,),
    }  # fmt: skip
    g.nodes.append(Node("scan", ["zero", "x"], ["total", "rows"], attrs, "scan"))
    rng = np.random.default_rng(3)
    inputs = {"x": np.round(rng.normal(size=shape), 1).astype(np.float32), "zero": np.zeros(4, np.float32)}
    want, got = from_graph(g, "numpy").run(inputs), compile_graph(g).run(inputs)
    for name in g.outputs:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("arch", ["aarch64", "armv7", "riscv64"])
def test_branches_on_other_architectures(arch: str) -> None:
    graph = Program(3).graph
    assert any(n.op == "if" for n in graph.nodes)
    plan, reference = build_plan(graph, arch), from_graph(graph, "numpy")
    for flags in ((True, False, True), (False, True, False)):
        inputs: dict[str, Any] = {f"c{i}": np.array(f) for i, f in enumerate(flags)} | {"a": X, "b": 3 * X}
        want, got = reference.run(inputs), run_plan(plan, inputs)
        for name, value in want.items():
            np.testing.assert_array_equal(got[name], value, err_msg=f"{name} with {flags}")


# -- plans from anywhere


def flow_plan(kernel: str, inputs: tuple[int, ...], outputs: tuple[int, ...], params: tuple[int | str, ...]) -> bytes:
    """`kernel` before two copies; tensors: flag, x, y, z, numbers."""
    return write(
        Plan(
            host_arch(),
            tensors=[
                PlanTensor("flag", BOOL, (), Space.ARENA, 0, 1),
                PlanTensor("x", F32, (4,), Space.ARENA, 64, 16),
                PlanTensor("y", F32, (4,), Space.ARENA, 128, 16),
                PlanTensor("z", F32, (4,), Space.ARENA, 192, 16),
                PlanTensor("w", F32, (4,), Space.WEIGHTS, 0, 16),
                PlanTensor("u", F32, (4,), Space.ARENA, 256, 16),
            ],
            nodes=[
                PlanNode(kernel, inputs, outputs, params, "flow"),
                PlanNode("copy_bytes", (1,), (2,), (), "first"),
                PlanNode("copy_bytes", (4,), (3,), (), "second"),
            ],
            inputs=[(0, "flag"), (1, "x")],
            outputs=[(2, "y"), (3, "z")],
            weights=[Weight(0, np.arange(4, dtype=np.float32))],
            arena_bytes=320,
        )
    )


@pytest.mark.parametrize(
    ("kernel", "inputs", "outputs", "params", "words"),
    [
        ("skip_unless", (0,), (), (1, 3), "passes over 3 nodes, 2 follow"),
        ("skip_unless", (0,), (), (1, -1), "passes over -1 nodes"),
        ("skip_unless", (0,), (), (1, 2**31 - 1), "passes over 2147483647 nodes"),
        ("skip_unless", (0,), (), (2, 1), "a flag is 0 or 1"),
        ("skip_unless", (0,), (), (1,), "a flag and two numbers"),
        ("skip_unless", (-1,), (), (1, 1), "a flag and two numbers"),
        ("skip_unless", (0, 1), (), (1, 1), "a flag and two numbers"),
        ("skip_unless", (0,), (5,), (1, 1), "a flag and two numbers"),
        ("fail", (), (), (1 << 20,), "lies outside the strings"),
        ("fail", (), (), (-1,), "lies outside the strings"),
        ("fail", (), (), (), "more than a message"),
        ("fail", (0,), (), ("why",), "more than a message"),
    ],
)
def test_hostile_control_flow_is_refused_by_both_readers(
    kernel: str, inputs: tuple[int, ...], outputs: tuple[int, ...], params: tuple[int | str, ...], words: str
) -> None:
    plan = flow_plan(kernel, inputs, outputs, params)
    for read in (NativeModel, PlanReader):
        with pytest.raises(PlanError, match=words):
            read(plan)


@pytest.mark.parametrize(
    ("kernel", "inputs", "outputs", "params", "words"),
    [
        ("skip_unless", (1,), (), (1, 1), "not one bool"),
        ("select", (1, 1, 4), (5,), (), "not one bool"),
        ("select", (0, 1, 0), (5,), (), "not like the output"),
        ("select", (0, 1, -1), (5,), (), "dense"),
        ("select", (0, 1), (5,), (), "a flag and two tensors"),
    ],
)
def test_wrong_operands_of_control_flow_are_refused(
    kernel: str, inputs: tuple[int, ...], outputs: tuple[int, ...], params: tuple[int | str, ...], words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        NativeModel(flow_plan(kernel, inputs, outputs, params))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_skipping_counts_nodes(count: int) -> None:
    """Up to the very end of the plan; the arena is zero at first."""
    model = NativeModel(flow_plan("skip_unless", (0,), (), (1, count)))
    x = np.full(4, 7, np.float32)
    skipped = model.run({"flag": np.array(False), "x": x})
    assert skipped["y"].tolist() == ([7] * 4 if count < 1 else [0] * 4)
    assert skipped["z"].tolist() == ([0, 1, 2, 3] if count < 2 else [0] * 4)
    whole = model.run({"flag": np.array(True), "x": x})
    assert whole["y"].tolist() == [7] * 4 and whole["z"].tolist() == [0, 1, 2, 3]


def test_the_message_of_a_failure_is_kept() -> None:
    model = NativeModel(flow_plan("fail", (), (), ("größer als 3",)))
    with pytest.raises(ShapeError, match="node 'flow': größer als 3"):
        model.run({"flag": np.array(True), "x": X})


# -- models

DIMS: dict[str, dict[str, tuple[int, int]]] = {
    "real/silero_vad_v6": {"input_0": (1, 4), "input_1": (1, 576), "state_1": (1, 4)},
    "real/silero_vad_16k_op15": {"batch": (1, 4), "sequence": (1, 576)},
    "real/oww_hey_jarvis": {},
}
WITH_BRANCHES = [m for m in models() if m.name in DIMS]


@pytest.mark.skipif(folder() is None, reason="EDGERUN_CORPUS is not set")
@pytest.mark.parametrize("model", WITH_BRANCHES, ids=lambda m: m.name)
def test_models_with_branches_equal_their_reference(model: CorpusModel) -> None:
    inputs, _ = model.arrays()
    graph = load_graph(model.path, dims=DIMS[model.name])
    assert any(n.op == "if" for n in graph.nodes)
    runner = compile_graph(graph)
    assert compare(model, runner.run(inputs)) <= model.tolerance
    if model.name != "real/silero_vad_v6":
        return
    slower = inputs | {"input": inputs["input"][:, :288], "sr": np.array(8000)}  # the other branch
    want = from_graph(graph, "numpy").run(slower)
    for name, value in runner.run(slower).items():
        np.testing.assert_allclose(value, want[name], rtol=1e-4, atol=1e-5)
