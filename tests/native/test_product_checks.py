"""The checks of convolutions and products refuse calls that do not fit: no plan may make a kernel leave its views."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from edgerun.backends.native.lowering import Lowering, NativeNode
from edgerun.backends.numpy.registry import find
from edgerun.dims import evaluate
from edgerun.dtypes import from_numpy
from edgerun.graph import Graph, Node
from tests.native.kernel_harness import _Call, _View, _word, levels, library

FLAT: dict[str, Any] = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
PRELU: dict[str, Any] = {"act": "prelu", "p0": 0.0, "p1": 0.0, "res": "before"}


def real(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


# kernel -> op, inputs, attributes, options, constant inputs
CALLS: dict[str, tuple[str, list[Any], dict[str, Any], dict[str, Any], tuple[int, ...]]] = {
    "conv_f32": (
        "conv", [real(1, 6, 7, 4), real(6, 3, 3, 2), real(6), real(1, 6, 7, 6), real(6)],
        {**FLAT, **PRELU, "group": 2}, {}, (1, 2, 4),
    ),
    "dwconv_f32": (
        "conv", [real(1, 6, 7, 4), real(4, 3, 3, 1), real(4), real(1, 6, 7, 4), real(4)],
        {**FLAT, **PRELU, "group": 4}, {}, (1, 2, 4),
    ),
    "conv_direct_f32": (
        "conv", [real(1, 6, 7, 4), real(6, 3, 3, 2), real(6), real(1, 6, 7, 6), real(6)],
        {**FLAT, **PRELU, "group": 2}, {}, (),
    ),
    "conv_transpose_f32": (
        "conv_transpose", [real(1, 6, 7, 4), real(4, 3, 3, 3), real(6), real(6)],
        {**FLAT, "output_padding": (0, 0), "group": 2, "act": "prelu", "p0": 0.0, "p1": 0.0}, {}, (1, 2, 3),
    ),
    "matmul_f32": (
        "matmul", [real(2, 3, 4), real(4, 5), real(5), real(2, 3, 5)], {"res": "before"}, {}, (1, 2),
    ),
    "matmul_dyn_f32": (
        "matmul", [real(2, 3, 4), real(2, 4, 5), real(5), real(2, 3, 5)], {"res": "before"}, {}, (),
    ),
    "matmul_plain": ("matmul", [np.ones((2, 3, 4)), np.ones((2, 4, 5))], {}, {}, ()),
}  # fmt: skip


@dataclass
class Subject:
    """One valid kernel call without data: only the check sees it."""

    node: NativeNode
    ins: Any
    outs: Any
    params: list[int]
    scratch: int
    thread_scratch: int

    def refusal(self) -> str | None:
        """The sentence of the check, or None when it accepts the call."""
        error = ctypes.create_string_buffer(160)
        params = (ctypes.c_int32 * max(len(self.params), 1))(*self.params)
        call = _Call(
            self.ins, self.outs, len(self.node.inputs), len(self.node.outputs), params, len(self.params),
            64, self.scratch, 64, self.thread_scratch, None, ctypes.cast(error, ctypes.c_char_p), None,
        )  # fmt: skip
        status = library(levels()[0]).harness_check(self.node.kernel.encode(), ctypes.byref(call))
        assert status in (0, 1)
        assert status == 0 or error.value, "a refusal without a sentence"
        return error.value.decode() if status else None


def subject(kernel: str) -> Subject:
    op, inputs, attrs, options, constant = CALLS[kernel]
    graph = Graph()
    for k, array in enumerate(inputs):
        graph.add_tensor(f"in{k}", from_numpy(array.dtype), array.shape, array if k in constant else None)
    y = find(op)(*inputs, **attrs)
    graph.add_tensor("y", from_numpy(y.dtype), y.shape)
    graph.nodes.append(Node(op, [f"in{k}" for k in range(len(inputs))], ["y"], attrs, op))
    cx = Lowering(graph, "x86_64", options)
    cx.run()
    node = next(n for n in cx.nodes if n.kernel == kernel)

    def views(names: list[str]) -> Any:
        result = (_View * len(names))()
        for view, name in zip(result, names, strict=True):
            if not name:
                continue
            shape = cx.shape(name)
            view.data, view.dtype, view.rank = 64, cx.dtype(name).code, len(shape)
            for i, d in enumerate(shape):
                view.dim[i] = evaluate(d, {})
            view.ld = view.dim[view.rank - 1]
        return result

    words = [_word(p, lambda d: evaluate(d, {})) for p in node.params]
    sizes = (evaluate(node.scratch, {}), evaluate(node.thread_scratch, {}))
    return Subject(node, views(node.inputs), views(node.outputs), words, *sizes)


def changed_views(s: Subject, kernel: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every change of one field of one view, with a function that makes it."""
    for what, views in (("input", s.ins), ("output", s.outs)):
        for k, view in enumerate(views):
            if not view.data:
                continue
            name = f"{what} {k}"
            yield f"{name}: no data", lambda v=view: setattr(v, "data", None)
            for dtype in (2, 5, 7, 13):
                if dtype != view.dtype:
                    yield f"{name}: dtype {dtype}", lambda v=view, d=dtype: setattr(v, "dtype", d)
            for i in range(view.rank):
                for size in (0, view.dim[i] - 1, view.dim[i] + 1, 1 << 30):
                    more = what == "input" and k in (2, 4) and size > view.dim[i]
                    spread = kernel.startswith("matmul") and i == 0 and size == 1  # a batch that repeats
                    grown = kernel.startswith("conv_transpose") and k == 0 and i in (1, 2)  # the pads are implied
                    if not more and not spread and not grown and size != view.dim[i]:  # biases and slopes may be longer
                        yield f"{name}: dim {i} is {size}", lambda v=view, i=i, n=size: v.dim.__setitem__(i, n)


@pytest.mark.parametrize("kernel", CALLS)
def test_the_call_itself_is_accepted(kernel: str) -> None:
    assert subject(kernel).refusal() is None


@pytest.mark.parametrize("kernel", CALLS)
def test_other_views_are_refused(kernel: str) -> None:
    for number in range(len(list(changed_views(subject(kernel), kernel)))):
        s = subject(kernel)
        what, change = list(changed_views(s, kernel))[number]
        if "no data" in what and what.startswith("input 2"):
            continue  # the bias is optional
        change()
        assert s.refusal() is not None, what


@pytest.mark.parametrize("kernel", CALLS)
def test_other_parameters_are_refused(kernel: str) -> None:
    """Geometry one off, negative or huge, unknown activations and residual modes, too few or too many parameters."""
    count = len(subject(kernel).params)
    floats = {"conv_direct_f32": (3, 4), "matmul_f32": (3, 4), "matmul_dyn_f32": (2, 3)}.get(kernel, (13, 14))
    free = {"conv_transpose_f32": (3, 4, 5, 6, 7, 8, 9, 10), "matmul_dyn_f32": (0,), "matmul_plain": (0,)}.get(
        kernel, ()
    )
    for k in range(count):
        if k in floats:
            continue
        for value in (-(1 << 31), -1, (1 << 24) + 1, (1 << 31) - 1):
            if k in free and (abs(value) == 1 or not kernel.startswith("conv")):
                continue
            if kernel == "conv_transpose_f32" and k in (7, 8):
                continue  # its trailing pads are implied by the output
            s = subject(kernel)
            s.params[k] = value
            assert s.refusal() is not None, f"parameter {k} is {value}"
    for length in (0, count - 1, count + 1):
        s = subject(kernel)
        s.params = (s.params + [0])[:length]
        assert s.refusal() is not None, f"{length} parameters"


@pytest.mark.parametrize("kernel", CALLS)
def test_too_little_scratch_is_refused(kernel: str) -> None:
    s = subject(kernel)
    if not s.scratch and not s.thread_scratch:
        assert kernel in ("dwconv_f32", "conv_direct_f32", "matmul_f32", "matmul_plain")
        return
    s.scratch, s.thread_scratch = max(s.scratch - 4, 0), max(s.thread_scratch - 4, 0)
    assert s.refusal() is not None
