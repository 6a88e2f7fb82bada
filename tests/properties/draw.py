"""Drawing random nodes: choices through hypothesis (so that it shrinks them), array elements by a seeded generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.ops.single_node import NodeCase
from tests.properties.case import Case

ML, MS = "ai.onnx.ml", "com.microsoft"
Shape = tuple[int, ...]


class Drawer:
    """The hand that draws one case."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data
        self.rng = np.random.default_rng(self.int(0, 999))

    def int(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))

    def bool(self) -> bool:
        return self._data.draw(st.booleans())

    def pick(self, *choices: Any) -> Any:
        return self._data.draw(st.sampled_from(choices))

    def shape(self, low: int = 0, high: int = 4, smallest: int = 0, largest: int = 4) -> Shape:
        """A shape of `low` to `high` axes. Size 0 is drawn as often as any other size, if `smallest` allows it."""
        return tuple(self.int(smallest, largest) for _ in range(self.int(low, high)))

    def axis(self, rank: int) -> int:
        """An axis of a tensor of `rank`, counted from either end."""
        return self.int(-rank, rank - 1)

    def broadcast(self, shape: Shape) -> Shape:
        """A shape that broadcasts to `shape`: some sizes 1, some leading axes left out.

        A size 0 stays: under symbols, 0 beside 1 is not told from two equal sizes (see `edgerun.dims.broadcast`).
        """
        kept = shape[self.int(0, len(shape)) :]
        return tuple(1 if d and self.bool() else d for d in kept)

    def normal(self, *shape: int, dtype: Any = np.float32) -> np.ndarray:
        return np.asarray(self.rng.standard_normal(shape)).astype(dtype)

    def uniform(self, *shape: int, low: float = 0.5, high: float = 1.5, dtype: Any = np.float32) -> np.ndarray:
        return np.asarray(self.rng.uniform(low, high, shape)).astype(dtype)

    def integers(self, *shape: int, low: int = -4, high: int = 4, dtype: Any = np.int64) -> np.ndarray:
        """In [low, high]."""
        return np.asarray(self.rng.integers(low, high + 1, shape)).astype(dtype)

    def strings(self, *shape: int) -> np.ndarray:
        words = np.array(["", "a", "A b", "é", "be", "42", "a b c", "zz"], object)
        return np.asarray(words[self.rng.integers(0, len(words), shape)], object).reshape(shape)

    def any(self, *shape: int, dtype: Any) -> np.ndarray:
        """Elements of any dtype, few of them different."""
        if dtype is object:
            return self.strings(*shape)
        if dtype is bool:
            return self.rng.random(shape) < 0.5 if shape else np.array(self.bool())
        unsigned = np.dtype(dtype).kind == "u"
        return self.integers(*shape, low=0 if unsigned else -4).astype(dtype)


def one(
    op_type: str,
    inputs: Mapping[str, np.ndarray | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    outputs: int = 1,
    opset: int = 22,
    domain: str = "",
    constant: Sequence[str] = (),
    **kinds: Any,
) -> Case:
    """A case of one ONNX node; `constant` names inputs that become weights. `kinds`: further fields of Case."""
    attributes = {k: v for k, v in (attributes or {}).items() if v is not None}
    inputs = {k: None if v is None else np.asarray(v) for k, v in inputs.items()}
    while inputs and inputs[list(inputs)[-1]] is None:
        inputs.popitem()
    node = NodeCase(op_type, inputs, attributes, outputs=outputs, opset=opset, domain=domain, constant=constant)
    feeds = {k: v for k, v in inputs.items() if v is not None and k not in constant}
    return Case(node.model(), feeds, **kinds)


@dataclass(frozen=True)
class Property:
    """How to draw cases of one core op. `no_oracle`: why onnxruntime cannot be asked at all; `no_symbols`: why the
    importer needs to know the sizes."""

    draw: Callable[[Drawer], Case]
    no_oracle: str = ""
    no_symbols: str = ""


PROPERTIES: dict[str, list[Property]] = {}


def covers(name: str, *, no_oracle: str = "", no_symbols: str = "") -> Callable[[Any], Callable[[Drawer], Case]]:
    """Register the decorated function as a way to draw cases of core op `name`."""

    def register(function: Callable[[Drawer], Case]) -> Callable[[Drawer], Case]:
        PROPERTIES.setdefault(name, []).append(Property(function, no_oracle, no_symbols))
        return function

    return register
