"""From core ops to native kernels: each op has one lowering function that picks kernels and packs weights.

    @lowers("conv")
    def conv(node: Node, cx: Lowering) -> None:
        weight = cx.constant(node.inputs[1])
        packed = cx.weight(pack(weight), hint=node.inputs[1])
        cx.emit("conv_f32", [node.inputs[0], packed, ...], node.outputs, params=[...], scratch=..., why="...")

A lowering may emit several native nodes with intermediates made by `cx.temp`. What it cannot do it refuses with
UnsupportedError; the driver collects the refusals of the whole graph and reports them together.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from edgerun.dims import Bounds, Dim, DimLike, bounds, product, substitute
from edgerun.dtypes import DType, from_numpy
from edgerun.errors import ShapeError, UnsupportedError
from edgerun.files import content_hash
from edgerun.graph import Graph, Node, Shape, Tensor
from edgerun.ops.registry import TensorType, infer, spec
from edgerun.plan.model import SymbolPlace

Param: TypeAlias = "int | float | DimLike | str | SymbolPlace"
"""One 32-bit parameter word: int as is, float by bit pattern, Dim as a patch evaluated at every binding, str as the
place of a text in the plan, SymbolPlace as the number of a symbol."""

SKIP = "skip_unless"
"""The kernel that passes over the nodes after it; its second parameter counts lowered nodes, those that become views
included (the assembler counts anew). Where there is one, nodes run in the order in which they were lowered."""

BIND_SIZES = "bind_sizes"
"""The kernel that gives symbols their values from the data. Where there is one, nodes stay in order."""

ARCHES = ("x86_64", "aarch64", "armv7", "riscv64", "wasm32")


@dataclass(frozen=True, slots=True)
class Alternative:
    """A kernel that was considered for a layer, with the predicted cost relative to the chosen one."""

    kernel: str
    reason: str
    relative_cost: float | None = None


@dataclass(slots=True)
class NativeTensor:
    """A tensor of the plan: computed (in the arena) or a weight (data set)."""

    name: str
    dtype: DType
    shape: Shape
    data: np.ndarray | None = None
    most: int | None = None
    """The largest number of elements, where the bounds of the dims say less."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Tensor `inner` may live inside tensor `outer` of the same node: how concat and slice become free.

    Its first element is element `offset` of `outer`; `strided`: its rows (last dim) are apart by the length of
    `outer`'s rows, else it is contiguous there. When all placements of a node hold, no kernel runs.
    """

    inner: str
    outer: str
    offset: DimLike
    strided: bool = False


@dataclass(slots=True)
class NativeNode:
    """One kernel call of the plan."""

    kernel: str
    inputs: list[str]
    outputs: list[str]
    params: list[Param]
    scratch: DimLike = 0
    """Bytes of arena scratch, shared by the threads of this node (er_call.scratch)."""
    thread_scratch: DimLike = 0
    """Bytes of scratch for each thread (er_call.thread_scratch); the plan provides the largest of all nodes."""
    in_place: tuple[tuple[int, int], ...] = ()
    """Pairs (output, input) that may share memory, element for element."""
    view: bool = False
    """True when output 0 is input 0's bytes under another shape (reshape): no kernel runs if the planner can alias."""
    placements: tuple[Placement, ...] = ()
    strided_inputs: tuple[int, ...] = ()
    """Inputs that may have a row stride (er_view.ld) larger than their last dim."""
    strided_outputs: tuple[int, ...] = ()
    max_threads: int = 0
    name: str = ""
    op: str = ""
    """The core op it came from."""
    macs: DimLike = 0
    why: str = ""
    alternatives: list[Alternative] = field(default_factory=list)


class Lowering:
    """Collects native nodes and tensors while the graph is lowered. `graph` is read only."""

    def __init__(self, graph: Graph, arch: str, options: dict[str, object] | None = None) -> None:
        if arch not in ARCHES:
            raise UnsupportedError(f"there is no native architecture {arch!r}", hint="one of " + ", ".join(ARCHES))
        self.graph = graph
        self.arch = arch
        self.options = options or {}
        self.nodes: list[NativeNode] = []
        self.tensors: dict[str, NativeTensor] = {}
        self.symbols: dict[str, Bounds] = dict(graph.symbols)
        """Bounds of the free dimensions, and of those that the data decide."""
        self.definitions: dict[str, DimLike] = {}
        """What symbols of the graph are that the data decide, in terms of `symbols`."""
        self.sequences: dict[str, list[str]] = {}
        """Sequences of tensors whose length is known while planning."""
        self._current: Node | None = None
        self._shared_weights: dict[tuple[str, str], str] = {}
        self._unrolling = False
        self._prefixes = 0

    # -- queries
    def tensor(self, name: str) -> Tensor | NativeTensor:
        """The graph's tensor, or a temporary of this lowering."""
        found = self.tensors.get(name) or self.graph.tensors.get(name)
        if found is None:
            raise ShapeError(f"tensor {name!r} does not exist")
        return found

    def shape(self, name: str) -> Shape:
        """The shape; UnsupportedError when even the rank is unknown."""
        shape = self.tensor(name).shape
        if shape is None:
            raise UnsupportedError(f"the rank of tensor {name!r} depends on the data")
        return tuple(substitute(d, self.definitions) for d in shape) if self.definitions else shape

    def dtype(self, name: str) -> DType:
        return self.tensor(name).dtype

    def constant(self, name: str) -> np.ndarray | None:
        """The data of a weight, or None when it is computed or absent."""
        return self.tensor(name).data if name else None

    def upper(self, d: DimLike) -> int:
        """Largest value of a dimension. Raises UnsupportedError when it is unbounded."""
        high = bounds(d, self.symbols)[1]
        if high is None:
            raise UnsupportedError(f"dimension {d} has no upper bound", hint="give one with --dim NAME=LOW..HIGH")
        return high

    def upper_size(self, name: str) -> int:
        """Largest number of elements of a tensor."""
        return self.upper(product(self.shape(name)))

    def macs(self, node: Node) -> DimLike:
        """Multiply-accumulates of a node whose tensors may be temporaries; 0 for ops that only move data."""
        count = spec(node.op).macs
        if count is None:
            return 0
        types = [self._type(i) if i else None for i in node.inputs]
        return count(*types, **node.attrs, out=self._type(node.outputs[0]))

    def _type(self, name: str) -> TensorType:
        found = self.tensor(name)
        shape = None if found.shape is None else self.shape(name)
        return TensorType(found.dtype, shape, found.data, getattr(found, "kind", "tensor"))

    # -- building
    def temp(self, dtype: DType, shape: Shape, hint: str = "temp") -> str:
        """Declare an intermediate tensor and return its name."""
        name = f"{hint}#{len(self.tensors)}"
        self.tensors[name] = NativeTensor(name, dtype, tuple(shape))
        return name

    def weight(self, array: np.ndarray, hint: str = "weight", *, key: tuple[str, str] | None = None) -> str:
        """Store a packed weight and return its name. Equal `key` (source tensor, packing) shares one copy.

        While a loop is unrolled, equal bytes do so too.
        """
        array = np.asarray(array, order="C")
        if self._unrolling:
            key = (content_hash(array).hex(), f"{array.dtype}{array.shape}")
        if key is not None and key in self._shared_weights:
            return self._shared_weights[key]
        name = f"{hint}#{len(self.tensors)}"
        self.tensors[name] = NativeTensor(name, from_numpy(array.dtype), tuple(array.shape), array)
        if key is not None:
            self._shared_weights[key] = name
        return name

    def fresh(self) -> int:
        """Another number at every call, for names of inlined tensors."""
        self._prefixes += 1
        return self._prefixes

    @contextmanager
    def unrolling(self) -> Iterator[None]:
        """Within it the same nodes are lowered again and again: their weights are stored once."""
        before, self._unrolling = self._unrolling, True
        try:
            yield
        finally:
            self._unrolling = before

    def emit(
        self,
        kernel: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        params: Sequence[Param] = (),
        *,
        scratch: DimLike = 0,
        thread_scratch: DimLike = 0,
        in_place: Sequence[tuple[int, int]] = (),
        view: bool = False,
        placements: Sequence[Placement] = (),
        strided_inputs: Sequence[int] = (),
        strided_outputs: Sequence[int] = (),
        max_threads: int = 0,
        macs: DimLike = 0,
        why: str = "",
        alternatives: Sequence[Alternative] = (),
    ) -> None:
        """Append a kernel call. `inputs` may hold "" for absent optional inputs."""
        node = self._current
        self.nodes.append(
            NativeNode(
                kernel,
                list(inputs),
                list(outputs),
                list(params),
                scratch,
                thread_scratch,
                tuple(in_place),
                view,
                tuple(placements),
                tuple(strided_inputs),
                tuple(strided_outputs),
                max_threads,
                node.name if node else "",
                node.op if node else "",
                macs,
                why,
                list(alternatives),
            )
        )

    def lower(self, node: Node) -> None:
        """Lower one node: of the graph, or of a sub-graph that the lowering of another node inlines."""
        outer, self._current = self._current, node
        if self.definitions:
            node = replace(node, attrs={k: self._defined(v) for k, v in node.attrs.items()})
        try:
            self._infer(node)
            find(node.op)(node, self)
        finally:
            self._current = outer

    def _defined(self, value: Any) -> Any:
        """An attribute with the symbols replaced whose definitions are known."""
        if isinstance(value, Dim):
            return substitute(value, self.definitions)
        return tuple(self._defined(v) for v in value) if isinstance(value, tuple) else value

    def _infer(self, node: Node) -> None:
        """Give outputs of unknown rank the shape that follows from what was learnt about the inputs."""
        unknown = [k for k, o in enumerate(node.outputs) if o and self.tensor(o).shape is None]
        if not unknown or any(i and i in self.sequences for i in node.inputs):
            return
        types = infer(node.op, [self._type(i) if i else None for i in node.inputs], node.attrs, node.name)
        for k in unknown:
            shape = types[k].shape
            if shape is not None and types[k].kind == "tensor":
                self.tensors[node.outputs[k]] = NativeTensor(node.outputs[k], types[k].dtype, shape)

    def run(self) -> None:
        """Lower every node of the graph. Raises UnsupportedError with `problems` naming each node that cannot be."""
        problems: list[str] = []
        for node in self.graph.nodes:
            try:
                self.lower(node)
            except UnsupportedError as e:
                problems.append(f"{node.op} (node {node.name!r}): {e}")
        if problems:
            listed = "; ".join(problems[:20]) + (f"; and {len(problems) - 20} more" if len(problems) > 20 else "")
            raise UnsupportedError(f"the native backend cannot run: {listed}", problems=problems)


LowerFunction: TypeAlias = Callable[[Node, Lowering], None]
LOWERINGS: dict[str, LowerFunction] = {}


def lowers(name: str) -> Callable[[LowerFunction], LowerFunction]:
    """Register the decorated function as the native lowering of core op `name`."""

    def register(function: LowerFunction) -> LowerFunction:
        if name in LOWERINGS:
            raise ValueError(f"the native lowering of {name!r} is defined twice")
        LOWERINGS[name] = function
        return function

    return register


def load_all() -> None:
    """Import every module of lowerings, filling LOWERINGS."""
    import edgerun.backends.native.ops as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"edgerun.backends.native.ops.{module.name}")


def find(name: str) -> LowerFunction:
    """The lowering of op `name`. Raises UnsupportedError when there is none."""
    if name not in LOWERINGS:
        load_all()
    try:
        return LOWERINGS[name]
    except KeyError:
        raise UnsupportedError("no native kernel for this op yet", hint="use --backend numpy") from None
