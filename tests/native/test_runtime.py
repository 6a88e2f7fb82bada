"""The loaded model as Python sees it: shapes, errors, threads, ISA levels, layers."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

from edgerun.backends.native.backend import compile_graph, compile_plan, open_plan
from edgerun.backends.native.binding import NativeModel, host_arch, levels
from edgerun.dims import symbol
from edgerun.dtypes import DType
from edgerun.errors import FileFormatError, UnsupportedError, UsageError
from edgerun.graph import Graph, Node
from edgerun.plan import Plan, PlanNode, PlanTensor, Space, SymbolBounds, write
from edgerun.session import from_graph, load_graph

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
F32 = DType.F32


@pytest.fixture(scope="module")
def digits() -> Graph:
    return load_graph(DIGITS, dims={"batch": (1, 8)})


def free_plan() -> bytes:
    """x [N, 3, N + 1] -> its bytes, flat."""
    n = symbol("N")
    return write(
        Plan(
            host_arch(),
            symbols=[SymbolBounds("N", 0, 9)],
            tensors=[
                PlanTensor("x", F32, (n, 3, n + 1), Space.ARENA, 0, 1088),
                PlanTensor("s", F32, (n,), Space.ARENA, 1088, 64),
                PlanTensor("y", F32, (n * 3 * (n + 1),), Space.ARENA, 1152, 1088),
            ],
            nodes=[PlanNode("copy_bytes", (0,), (2,), (), "flatten")],
            inputs=[(0, "x"), (1, "s")],
            outputs=[(2, "y")],
            arena_bytes=2240,
        )
    )


def feed(n: int, columns: int | None = None) -> dict[str, np.ndarray]:
    columns = n + 1 if columns is None else columns
    size = n * 3 * columns
    return {"x": np.arange(size, dtype=np.float32).reshape(n, 3, columns), "s": np.zeros(n, np.float32)}


def test_shapes_are_bound_anew_for_every_call() -> None:
    model = NativeModel(free_plan())
    assert model.inputs[0].shape == (-1, 3, -1) and model.outputs[0].shape == (-1,)
    for n in (1, 9, 0, 4, 4):
        assert model.run(feed(n))["y"].tolist() == list(range(n * 3 * (n + 1)))


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (feed(10), "N"),
        (feed(2, 4), "size 4 instead of 3"),
        (feed(3) | {"s": np.zeros(2, np.float32)}, "size 2, elsewhere it has 3"),
        (feed(3) | {"x": np.zeros((3, 2, 4), np.float32)}, r"\[\?, 3, \?\]"),
        (feed(3) | {"x": np.zeros((3, 4), np.float32)}, r"\(3, 4\)"),
        (feed(3) | {"x": np.zeros((3, 3, 4))}, "takes f32, not float64"),
        ({"x": feed(3)["x"]}, "'s' is missing"),
        (feed(3) | {"t": np.zeros(2)}, "no input 't'"),
    ],
)
def test_wrong_inputs_are_explained_and_leave_the_model_usable(inputs: dict[str, np.ndarray], words: str) -> None:
    model = NativeModel(free_plan())
    with pytest.raises(UsageError, match=words):
        model.run(inputs)
    assert model.run(feed(2))["y"].tolist() == list(range(18))


def test_values_equal_the_reference_on_every_level_and_thread_count(digits: Graph) -> None:
    runner, reference = compile_graph(digits), from_graph(digits)
    for batch in (1, 3, 8):
        image = np.random.default_rng(batch).random((batch, 1, 8, 8), np.float32)
        want = reference.run({"image": image})["probabilities"]
        for isa in levels():
            runner.model.isa = isa
            for threads in (1, 2, 3):
                runner.model.threads = threads
                assert (runner.isa, runner.threads) == (isa, threads)
                got = runner.run({"image": image})["probabilities"]
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6, err_msg=f"{isa}, {threads} threads")


def test_sharing_memory_keeps_the_values(digits: Graph) -> None:
    image = {"image": np.random.default_rng(0).random((8, 1, 8, 8), np.float32)}
    shared, apart = compile_graph(digits), compile_graph(digits, share_memory=False)
    np.testing.assert_array_equal(shared.run(image)["probabilities"], apart.run(image)["probabilities"])
    assert shared.model.arena_bytes <= apart.model.arena_bytes


def test_wrong_settings_are_refused(digits: Graph) -> None:
    model = compile_graph(digits).model
    with pytest.raises(UsageError, match="sse9"):
        model.isa = "sse9"
    for threads in (-1, 65):
        with pytest.raises(UsageError, match=str(threads)):
            model.threads = threads
        with pytest.raises(UsageError, match=str(threads)):
            NativeModel(free_plan(), threads)
    model.threads = 0
    assert model.threads >= 1


def test_the_environment_chooses_a_level(digits: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ER_ISA", levels()[0])
    assert compile_graph(digits).isa == levels()[0]
    monkeypatch.setenv("ER_ISA", "mmx")
    with pytest.raises(UnsupportedError, match="ER_ISA"):
        compile_graph(digits)


def test_layers_can_be_timed_and_watched(digits: Graph) -> None:
    runner = compile_graph(digits)
    image = {"image": np.random.default_rng(0).random((2, 1, 8, 8), np.float32)}
    rows = runner.profile(image, 3)
    assert [r["index"] for r in rows] == list(range(len(runner.model.nodes)))
    assert all(r["us"] > 0 and r["kernel"] for r in rows) and sum(r["percent"] for r in rows) == pytest.approx(100)
    found = runner.intermediates(image)
    np.testing.assert_array_equal(found["probabilities"], runner.run(image)["probabilities"])
    assert found["logits"].shape == (2, 10)
    with pytest.raises(UsageError, match="no output"):
        runner.model.watch(image, 0, 5)


def test_plan_files_open_with_their_types(digits: Graph, tmp_path: Path) -> None:
    path = tmp_path / "digits.plan"
    path.write_bytes(compile_plan(digits, host_arch()).plan)
    session = open_plan(path, threads=2)
    assert str(session.inputs[0]) == "image: f32[batch, 1, 8, 8]"
    assert session.run({"image": np.zeros((1, 1, 8, 8), np.float32)})["probabilities"].shape == (1, 10)
    path.write_bytes(b"EDGEPLAN" + bytes(200))
    with pytest.raises(FileFormatError):
        open_plan(path)


def test_unaligned_plans_are_copied_to_aligned_memory() -> None:
    plan = free_plan()
    room = bytearray(b"x" * 3 + plan)
    assert NativeModel(memoryview(room)[3:]).run(feed(1))["y"].tolist() == list(range(6))


def test_closed_models_say_so() -> None:
    model = NativeModel(free_plan())
    model.close()
    model.close()
    with pytest.raises(UsageError, match="closed"):
        model.run(feed(1))


def test_models_come_and_go_without_leaking() -> None:
    plan = free_plan()

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    for _ in range(20):
        NativeModel(plan, 2).run(feed(9))
    gc.collect()
    before = resident()
    for _ in range(300):
        NativeModel(plan, 2).run(feed(9))
    gc.collect()
    assert resident() - before < 500, "more than 2 MB were kept"
    assert threading.active_count() < 50


def test_models_of_two_threads_do_not_disturb_each_other(digits: Graph) -> None:
    image = {"image": np.random.default_rng(0).random((4, 1, 8, 8), np.float32)}
    want = compile_graph(digits).run(image)["probabilities"]
    wrong: list[int] = []

    def work(number: int) -> None:
        runner = compile_graph(digits, threads=2)
        for _ in range(50):
            if not np.array_equal(runner.run(image)["probabilities"], want):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_graphs_that_cannot_be_planned_are_explained() -> None:
    graph = Graph("g", ["x"], ["y"], [Node("reshape", ["x"], ["y"], {"to": (symbol("N"),)}, "flat")])
    graph.add_tensor("x", F32, (symbol("N"),))
    graph.add_tensor("y", F32, (symbol("N"),))
    with pytest.raises(UnsupportedError, match="--dim N=LOW"):
        compile_plan(graph, host_arch())
    graph.tensors["x"].dtype = DType.C64
    graph.symbols["N"] = (1, 4)
    with pytest.raises(UnsupportedError, match="c64"):
        compile_plan(graph, host_arch())
    with pytest.raises(UnsupportedError, match="pdp11"):
        compile_plan(graph, "pdp11")


def test_sizes_that_depend_on_the_data_are_refused() -> None:
    graph = Graph("g", ["x"], ["y"], [Node("reshape", ["x"], ["y"], {"to": (symbol("found"),)}, "flat")])
    graph.add_tensor("x", F32, (4,))
    graph.add_tensor("y", F32, (symbol("found"),))
    with pytest.raises(UnsupportedError, match=r"'y' \[found\] depends on the data"):
        compile_plan(graph, host_arch())
