"""From a graph with numbers for shapes to dispatches.

Each op has a lowering function in `ops/`, registered by `lowers`. It emits kernels over tensors by name, makes
temporary tensors and constants, and names views (a reshape is another name of the same place). A node without a
lowering, or one that its lowering refuses, is collected with its reason; all are reported together.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgerun.backends.gpu.wgsl import Kernel, pointwise, storage
from edgerun.dims import Dim
from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun.graph import Graph, Node, Tensor, captured

FAMILIES = (
    "attention",
    "conv",
    "elementwise",
    "gather",
    "matmul",
    "movement",
    "norm",
    "pool",
    "quant",
    "reduce",
    "resize",
    "rows",
)
_STORED = {"f32": np.float32, "i32": np.int32, "u32": np.uint32}


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One run of a kernel. `buffers`: tensor names by binding; the last one is written."""

    kernel: Kernel
    buffers: tuple[str, ...]
    node: str


@dataclass(frozen=True, slots=True)
class OnCpu:
    """A node that the NumPy kernels compute between dispatches."""

    node: Node
    reason: str

    @property
    def reads(self) -> list[str]:
        """The tensors that the node reads, also from within its branches."""
        return [name for name in (*self.node.inputs, *captured(self.node)) if name]


@dataclass(slots=True)
class Lowered:
    """Steps in order, the places of tensors, and the constants."""

    steps: list[Dispatch | OnCpu]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, DType]
    views: dict[str, str]
    """Tensor -> the tensor whose place it shares."""
    constants: dict[str, np.ndarray]
    """In the storage type of their tensor."""
    refused: dict[str, str] = field(default_factory=dict)
    """Node -> why it has no dispatches."""

    def root(self, name: str) -> str:
        """The tensor that owns the place of `name`."""
        while name in self.views:
            name = self.views[name]
        return name


def fits(tensor: Tensor) -> bool:
    """Whether a GPU buffer can hold the tensor: numbers of at most 32 bits (or 64-bit integers), of a known size."""
    if tensor.kind != "tensor" or tensor.dtype in (DType.STRING, DType.F64, DType.U64):
        return False
    if tensor.dtype.is_float and storage(tensor.dtype) != "f32":
        return False
    return tensor.shape is not None and not any(isinstance(d, Dim) for d in tensor.shape)


Lower = Callable[[Node, "Lowering"], None]
LOWERINGS: dict[str, Lower] = {}
"""Core op -> its lowering; complete after `load_all`."""


def load_all() -> None:
    """Import every family, which registers its lowerings."""
    for family in FAMILIES:
        importlib.import_module(f"edgerun.backends.gpu.ops.{family}")


def lowers(op: str) -> Callable[[Lower], Lower]:
    """Registers the lowering of a core op."""

    def register(function: Lower) -> Lower:
        LOWERINGS[op] = function
        return function

    return register


def stored(data: np.ndarray, dtype: DType) -> np.ndarray:
    """Values in the type that the GPU holds. Raises UnsupportedError for integers beyond 32 bits."""
    target = _STORED[storage(dtype)]
    if target is np.int32 and data.dtype.itemsize > 4 and data.size:
        low, high = int(data.min()), int(data.max())
        if low < -(1 << 31) or high >= 1 << 31:
            raise UnsupportedError(
                f"a 64-bit integer of {low if low < 0 else high} does not fit into the GPU's 32 bits"
            )
    return np.ascontiguousarray(data.astype(target))


class Lowering:
    """The state while a graph is lowered; what lowering functions call."""

    def __init__(self, graph: Graph, *, split: bool) -> None:
        load_all()
        self.graph = graph
        self.split = split
        self.out = Lowered([], {}, {}, {}, {})
        self._node: Node | None = None

    def run(self) -> Lowered:
        """Lower every node.

        Raises UnsupportedError for free dimensions, and for nodes without a kernel unless the graph may be split.
        """
        free = sorted(self.graph.free_symbols())
        if free:
            raise UnsupportedError(
                f"the GPU backends take numbers for shapes; {', '.join(free)} is free", hint=f"--dim {free[0]}=1"
            )
        for node in self.graph.nodes:
            self._lower(node)
        if self.out.refused and not self.split:
            problems = [f"{name}: {why}" for name, why in self.out.refused.items()]
            raise UnsupportedError(
                "the GPU backend lacks kernels for: " + "; ".join(problems[:20]), problems=problems,
                hint="--split computes these on the CPU, --backend native computes everything there",
            )  # fmt: skip
        return self.out

    def _lower(self, node: Node) -> None:
        before = len(self.out.steps)
        self._node = node
        try:
            for name in (*node.inputs, *captured(node), *node.outputs):
                if name:
                    self._check(name)
            if node.op not in LOWERINGS:
                raise UnsupportedError(f"{node.op} has no GPU kernel")
            LOWERINGS[node.op](node, self)
        except UnsupportedError as e:
            del self.out.steps[before:]
            self.out.refused[node.name] = e.message
            self.out.steps.append(OnCpu(node, e.message))

    def _check(self, name: str) -> None:
        tensor = self.graph.tensors[name]
        if not fits(tensor):
            what = f"a {tensor.kind} of {tensor.dtype.short}, or its size depends on the data"
            raise UnsupportedError(f"{name!r} is {what}")

    # -- what lowering functions call

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor; numbers."""
        if name in self.out.shapes:
            return self.out.shapes[name]
        return tuple(int(d) for d in self.graph.tensors[name].shape or ())

    def dtype(self, name: str) -> DType:
        """The type of a tensor."""
        return self.out.dtypes[name] if name in self.out.dtypes else self.graph.tensors[name].dtype

    def kind(self, name: str) -> str:
        """The WGSL type of a tensor's elements."""
        return storage(self.dtype(name))

    def value(self, name: str) -> np.ndarray | None:
        """The elements of a constant; None for computed tensors and absent inputs."""
        if not name:
            return None
        if name in self.out.constants:
            return self.out.constants[name]
        return self.graph.tensors[name].data

    def temp(self, dtype: DType, shape: Sequence[int]) -> str:
        """A new tensor that lives between dispatches."""
        assert self._node is not None
        name = f"{self._node.name} (temporary {len(self.out.shapes)})"
        assert name not in self.graph.tensors
        self.out.shapes[name], self.out.dtypes[name] = tuple(shape), dtype
        return name

    def constant(self, data: np.ndarray, dtype: DType) -> str:
        """A new constant tensor."""
        name = self.temp(dtype, data.shape)
        self.out.constants[name] = stored(data, dtype)
        return name

    def view(self, name: str, of: str) -> None:
        """`name` is the same elements as `of`."""
        self.out.views[name] = of

    def emit(self, kernel: Kernel, buffers: Sequence[str]) -> None:
        """Run a kernel; the last buffer is written."""
        assert self._node is not None
        if any(size > 65535 for size in kernel.groups):
            raise UnsupportedError("more workgroups than a dispatch can have")
        if len(buffers) > 8:
            raise UnsupportedError(f"a kernel with {len(buffers)} buffers; GPUs bind 8")
        self.out.steps.append(Dispatch(kernel, tuple(buffers), self._node.name))

    def pointwise(self, inputs: Sequence[str], out: str, body: str, count: int | None = None) -> None:
        """One invocation for each element of `out` (or `count`); see wgsl.pointwise."""
        total = int(np.prod(self.shape(out))) if count is None else count
        if total:
            names = [*inputs, out]
            self.emit(pointwise([self.kind(n) for n in names], total, body), names)


def lower(graph: Graph, *, split: bool = False) -> Lowered:
    """Dispatches for a graph. With `split`, nodes without a kernel become OnCpu steps; else UnsupportedError."""
    return Lowering(graph, split=split).run()
