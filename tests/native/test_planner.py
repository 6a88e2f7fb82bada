"""The memory planner: no plan may change a value, and arenas are close to what must be alive."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgerun.backends.native.lowering import NativeNode, NativeTensor, Placement
from edgerun.dims import symbol
from edgerun.dtypes import DType
from edgerun.errors import PlanError
from edgerun.planner import ALGORITHMS, Block, MemoryPlan, find_storages, lower_bound, place, plan_memory
from edgerun.planner.arena import extent, place_in_order
from edgerun.planner.order import order_for_memory

# -- random programs, executed twice: with one array a tensor, and inside the planned arena


class Program:
    """Nodes over two-dimensional f32 tensors, with every kind of sharing that the planner knows."""

    def __init__(self, seed: int, steps: int) -> None:
        self.rng = random.Random(seed)
        self.nodes: list[NativeNode] = []
        self.tensors: dict[str, NativeTensor] = {}
        self.inputs = [self.tensor((4, 6)), self.tensor((2, 3))]
        for _ in range(steps):
            self.step()
        made = [o for n in self.nodes for o in n.outputs]
        self.outputs = list(dict.fromkeys([made[-1], self.rng.choice(made), self.rng.choice([*made, *self.inputs])]))

    def tensor(self, shape: tuple[int, int]) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = NativeTensor(name, DType.F32, shape)
        return name

    def shape(self, name: str) -> tuple[int, int]:
        rows, columns = self.tensors[name].shape
        return int(rows), int(columns)  # type: ignore[arg-type]

    def pick(self, like: tuple[int, int] | None = None, axis: int | None = None) -> str | None:
        """A recent tensor; of the same shape, or the same but for one axis."""
        fits = [
            n
            for n in self.tensors
            if like is None
            or all(a == b or i == axis for i, (a, b) in enumerate(zip(self.shape(n), like, strict=True)))
        ]
        return self.rng.choice(fits[-6:]) if fits else None

    def emit(self, op: str, ins: Sequence[str], out: str, **extra: Any) -> None:
        if self.rng.random() < 0.5:
            extra.setdefault("strided_inputs", tuple(range(len(ins))))
            extra.setdefault("strided_outputs", (0,))
        node = NativeNode(op, list(ins), [out], [], op=op, name=f"n{len(self.nodes)}", **extra)
        node.scratch = self.rng.choice([0, 0, 100])
        self.nodes.append(node)

    def step(self) -> None:
        x = self.pick()
        assert x is not None
        rows, columns = self.shape(x)
        kind = self.rng.choice(["add", "add", "mix", "view", "concat", "concat", "slice", "slice"])
        axis = self.rng.choice([0, 1])
        if kind == "add":
            y = self.pick((rows, columns)) or x
            pairs = [(0, 0), (0, 1)] if self.rng.random() < 0.8 else []
            self.emit("add", [x, y], self.tensor((rows, columns)), in_place=tuple(pairs))
        elif kind == "mix":
            self.emit("mix", [x], self.tensor((rows, columns)))
        elif kind == "view":
            self.emit("view", [x], self.tensor((columns, rows)), view=True)
        elif kind == "slice" and (rows, columns)[axis] > 1:
            cut = self.rng.randrange(1, (rows, columns)[axis])
            low = self.tensor((cut, columns) if axis == 0 else (rows, cut))
            start = self.rng.randrange(0, (rows, columns)[axis] - cut + 1)
            offset = start * (columns if axis == 0 else 1)
            self.emit(f"slice{axis}:{start}", [x], low, placements=(Placement(low, x, offset, axis == 1),))
        else:
            y = self.pick((rows, columns), axis) or x
            if rows * columns > 400:
                return
            second = self.shape(y)
            out = self.tensor((rows + second[0], columns) if axis == 0 else (rows, columns + second[1]))
            places = (
                Placement(x, out, 0, axis == 1),
                Placement(y, out, rows * columns if axis == 0 else columns, axis == 1),
            )
            self.emit(f"concat{axis}", [x, y], out, placements=places if x != y else ())


def compute(op: str, values: list[np.ndarray], shape: tuple[int, int]) -> np.ndarray:
    if op == "add":
        return values[0] + 2 * values[1]
    if op == "mix":
        return np.cumsum(values[0].ravel()[::-1]).reshape(shape).astype(np.float32) % 97
    if op == "view":
        return values[0].reshape(shape)
    if op.startswith("slice"):
        axis, start = int(op[5]), int(op[7:])
        return values[0][start : start + shape[0]] if axis == 0 else values[0][:, start : start + shape[1]]
    return np.concatenate(values, int(op[6]))


def run_plainly(p: Program, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    values = dict(inputs)
    for n in p.nodes:
        values[n.outputs[0]] = compute(n.op, [values[i] for i in n.inputs], p.shape(n.outputs[0]))
    return values


def run_in_arena(p: Program, plan: MemoryPlan, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    arena = np.full(max(plan.arena_bytes, 1), 0xCC, np.uint8)

    def window(name: str) -> np.ndarray:
        at, (rows, columns) = plan.places[name], p.shape(name)
        assert at.offset >= 0 and at.offset + at.bytes <= plan.arena_bytes
        stride = columns if at.ld is None else int(at.ld)  # type: ignore[arg-type]
        assert ((rows - 1) * stride + columns) * 4 <= at.bytes
        flat = arena[at.offset : at.offset + ((rows - 1) * stride + columns) * 4].view(np.float32)
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), (stride * 4, 4))

    for name, value in inputs.items():
        window(name)[...] = value
    for index in plan.order:
        n = p.nodes[index]
        result = compute(n.op, [window(i) for i in n.inputs], p.shape(n.outputs[0])).copy()
        for slot, name in enumerate(n.inputs):
            assert plan.places[name].ld is None or slot in n.strided_inputs or n.placements
        if index in plan.scratch:
            offset, size = plan.scratch[index]
            arena[offset : offset + size] = 0xEE
        window(n.outputs[0])[...] = result
    return {o: window(o).copy() for o in p.outputs}


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 40), st.integers(1, 25))
def test_sharing_memory_keeps_every_value(seed: int, steps: int) -> None:
    p = Program(seed, steps)
    generator = np.random.default_rng(seed)
    inputs = {i: generator.integers(0, 50, p.shape(i)).astype(np.float32) for i in p.inputs}
    want = run_plainly(p, inputs)
    for share in (True, False):
        plan = plan_memory(p.nodes, p.tensors, p.inputs, p.outputs, {}, share=share)
        assert plan.arena_bytes >= plan.lower_bound
        got = run_in_arena(p, plan, inputs)
        for name in p.outputs:
            np.testing.assert_array_equal(got[name], want[name], err_msg=f"{name}, share={share}")


# -- single rules


def chain(*ops: str, width: int = 1000) -> tuple[list[NativeNode], dict[str, NativeTensor]]:
    """x -> op -> op ... over one shape; "add" may work in place."""
    tensors = {f"t{i}": NativeTensor(f"t{i}", DType.F32, (width,)) for i in range(len(ops) + 1)}
    nodes = []
    for i, op in enumerate(ops):
        node = NativeNode(op, [f"t{i}"], [f"t{i + 1}"], [], name=f"n{i}")
        node.in_place = ((0, 0),) if op == "add" else ()
        node.view = op == "view"
        nodes.append(node)
    return nodes, tensors


def test_in_place_chain_needs_one_buffer() -> None:
    nodes, tensors = chain("add", "add", "view", "add")
    plan = plan_memory(nodes, tensors, ["t0"], ["t4"], {})
    assert plan.arena_bytes == 4032 and plan.order == [0, 1, 3]
    assert len({p.offset for p in plan.places.values()}) == 1


def test_an_output_is_not_overwritten() -> None:
    nodes, tensors = chain("add", "add")
    plan = plan_memory(nodes, tensors, ["t0"], ["t1", "t2"], {})
    assert plan.places["t1"].offset != plan.places["t2"].offset


def test_operand_of_another_size_or_read_again_is_not_overwritten() -> None:
    nodes, tensors = chain("add", "mix")
    nodes.append(NativeNode("mix", ["t0"], ["t3"], []))
    tensors["t3"] = NativeTensor("t3", DType.F32, (1000,))
    plan = plan_memory(nodes, tensors, ["t0"], ["t2", "t3"], {})
    assert plan.places["t0"].offset != plan.places["t1"].offset
    tensors["t1"] = NativeTensor("t1", DType.F64, (1000,))
    storages = find_storages(nodes[:2], tensors, ["t0"], ["t2"], {})
    assert storages.where["t1"].root == "t1"


def test_leading_concat_is_free_and_trailing_concat_needs_strided_kernels() -> None:
    def make(strided: bool) -> MemoryPlan:
        tensors = {n: NativeTensor(n, DType.F32, (4, c)) for n, c in {"x": 3, "a": 3, "b": 5, "y": 8}.items()}
        nodes = [NativeNode("mix", ["x"], ["a"], []), NativeNode("grow", ["x"], ["b"], [])]
        for n in nodes:
            n.strided_outputs = (0,) if strided else ()
        nodes.append(
            NativeNode(
                "concat", ["a", "b"], ["y"], [], placements=(Placement("a", "y", 0, True), Placement("b", "y", 3, True))
            )
        )
        return plan_memory(nodes, tensors, ["x"], ["y"], {})

    free, copied = make(True), make(False)
    assert free.order == [0, 1] and copied.order == [0, 1, 2]
    assert free.places["b"].ld == 8 and free.places["b"].offset == free.places["a"].offset + 12
    assert free.places["y"].view


def test_symbolic_sizes_are_planned_at_their_upper_bounds() -> None:
    n = symbol("N")
    tensors = {"x": NativeTensor("x", DType.F32, (n, 4)), "y": NativeTensor("y", DType.F32, (n * 2, 4))}
    nodes = [NativeNode("grow", ["x"], ["y"], [], n * 8, n)]
    plan = plan_memory(nodes, tensors, ["x"], ["y"], {"N": (1, 100)})
    assert plan.places["y"].bytes == 3200 and plan.scratch[0][1] == 800 and plan.thread_scratch_bytes == 128
    with pytest.raises(PlanError, match="--dim"):
        plan_memory(nodes, tensors, ["x"], ["y"], {})


def test_broken_programs_are_refused() -> None:
    nodes, tensors = chain("mix", "mix")
    with pytest.raises(PlanError, match="before it is computed"):
        plan_memory(nodes[::-1], tensors, ["t0"], ["t2"], {})
    with pytest.raises(PlanError, match="twice"):
        plan_memory([*nodes, nodes[0]], tensors, ["t0"], ["t2"], {})
    with pytest.raises(PlanError, match="never computed"):
        plan_memory(nodes[:1], tensors, ["t0"], ["t2"], {})


# -- offsets


def _blocks(seed: int, count: int) -> list[Block]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        first = rng.randrange(40)
        found.append(Block(rng.choice([0, 1, 64, 100, 640, 5000]), first, first + rng.randrange(8)))
    return found


def _check(blocks: list[Block], offsets: list[int]) -> None:
    for i, a in enumerate(blocks):
        assert offsets[i] % 64 == 0
        for j in range(i):
            b = blocks[j]
            apart = offsets[i] + a.size <= offsets[j] or offsets[j] + b.size <= offsets[i]
            assert apart or not a.meets(b) or not a.size or not b.size


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("best_fit", [False, True])
def test_every_algorithm_keeps_live_blocks_apart(algorithm: str, best_fit: bool) -> None:
    for seed in range(20):
        blocks = _blocks(seed, 40)
        order = ALGORITHMS[algorithm](blocks)
        assert sorted(order) == list(range(len(blocks)))
        _check(blocks, place_in_order(blocks, order, best_fit))


def test_the_best_placement_is_kept_and_close_to_the_bound() -> None:
    ratios = []
    for seed in range(40):
        blocks = _blocks(seed, 60)
        offsets, name = place(blocks)
        _check(blocks, offsets)
        single = min(extent(blocks, place_in_order(blocks, o(blocks), False)) for o in ALGORITHMS.values())
        assert extent(blocks, offsets) <= single and name
        ratios.append(extent(blocks, offsets) / lower_bound(blocks))
    assert min(ratios) >= 1 and sum(ratios) / len(ratios) < 1.05


def test_nothing_to_place() -> None:
    assert place([]) == ([], "nothing to place") and lower_bound([]) == 0


def test_branches_run_one_after_the_other_when_that_saves_memory() -> None:
    """Breadth first, all four large intermediates are alive at once; depth first only one."""
    tensors = {"x": NativeTensor("x", DType.F32, (16,)), "y": NativeTensor("y", DType.F32, (16,))}
    grow, shrink = [], []
    for i in range(4):
        tensors[f"big{i}"] = NativeTensor(f"big{i}", DType.F32, (4096,))
        tensors[f"small{i}"] = NativeTensor(f"small{i}", DType.F32, (16,))
        grow.append(NativeNode("mix", ["x"], [f"big{i}"], []))
        shrink.append(NativeNode("mix", [f"big{i}"], [f"small{i}"], []))
    nodes = [*grow, *shrink, NativeNode("mix", [f"small{i}" for i in range(4)], ["y"], [])]
    plan = plan_memory(nodes, tensors, ["x"], ["y"], {})
    assert plan.order[:2] == [0, 4] and plan.arena_bytes < 2 * 4096 * 4 and sorted(plan.order) == list(range(9))
    assert plan.live[8] < plan.live[4]


def test_a_chain_keeps_its_order() -> None:
    nodes, tensors = chain("mix", "add", "mix", "view", "mix")
    assert order_for_memory(nodes, dict.fromkeys(tensors, 4000), ["t5"]) == [0, 1, 2, 3, 4]


def _cache(reader_after: bool) -> tuple[list[NativeNode], dict[str, NativeTensor]]:
    """A state that node 0 updates in place and node 1 reads; with `reader_after` node 2 reads the old value."""
    names = ("state", "x", "after", "y", "z")
    tensors = {n: NativeTensor(n, DType.F32, (4,)) for n in names}
    nodes = [
        NativeNode("cache_update", ["state", "x"], ["after"], [], in_place=((0, 0),)),
        NativeNode("k", ["after"], ["y"], []),
        NativeNode("k", ["state" if reader_after else "y"], ["z"], []),
    ]
    return nodes, tensors


def test_states_keep_a_place_of_their_own() -> None:
    nodes, tensors = _cache(reader_after=False)
    plan = plan_memory(nodes, tensors, ["state", "x"], ["z", "after"], {}, states={"state": "after"})
    state = plan.places["state"]
    assert state.view and plan.places["after"].offset == state.offset
    for name in ("x", "y", "z"):
        assert abs(plan.places[name].offset - state.offset) >= 16


def test_states_that_cannot_be_updated_in_place_are_refused() -> None:
    nodes, tensors = _cache(reader_after=True)
    with pytest.raises(PlanError, match="cannot be computed in its place"):
        plan_memory(nodes, tensors, ["state", "x"], ["z", "after"], {}, states={"state": "after"})
    nodes, tensors = _cache(reader_after=False)
    with pytest.raises(PlanError, match="cannot be computed in its place"):
        plan_memory(nodes, tensors, ["state", "x"], ["z", "y"], {}, states={"state": "y"})
