"""What a plan says, before it is bytes."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgerun.dims import DimLike
from edgerun.dtypes import DType
from edgerun.graph import Shape


class Space(enum.IntEnum):
    """Where a tensor lives (enum er_space)."""

    ARENA = 1
    WEIGHTS = 2


@dataclass(frozen=True, slots=True)
class SymbolBounds:
    """A free dimension, bound at run time from the input shapes or by a bind_sizes node; low and high are inclusive."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class SymbolPlace:
    """As a parameter: the number of the dim that is the symbol itself (what bind_sizes sets)."""

    name: str


@dataclass(frozen=True, slots=True)
class PlanTensor:
    """A tensor: `bytes` are reserved at byte `offset` of its space, enough for the largest shape."""

    name: str
    dtype: DType
    shape: Shape
    space: Space
    offset: int
    bytes: int
    ld: DimLike | None = None
    """Elements from row to row (last dim); None: dense."""
    view: bool = False
    """No node writes it: it lies inside tensors that nodes or the caller write."""


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A kernel call. Tensors by index, -1 = absent. Parameters are words: int, float (by bits), Dim (patched), a text
    (its place) or a symbol's place."""

    kernel: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    params: tuple[int | float | DimLike | str | SymbolPlace, ...] = ()
    name: str = ""
    scratch: int = 0
    scratch_bytes: int = 0
    max_threads: int = 0


@dataclass(frozen=True, slots=True)
class Weight:
    """Data at a byte offset of the weights, a multiple of 64."""

    offset: int
    data: np.ndarray


@dataclass(slots=True)
class Plan:
    """One model for one architecture. `inputs` and `outputs`: (tensor index, name)."""

    arch: str
    symbols: list[SymbolBounds] = field(default_factory=list)
    tensors: list[PlanTensor] = field(default_factory=list)
    nodes: list[PlanNode] = field(default_factory=list)
    inputs: list[tuple[int, str]] = field(default_factory=list)
    outputs: list[tuple[int, str]] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    arena_bytes: int = 0
    thread_scratch_bytes: int = 0
    manifest: dict[str, Any] | None = None
    tokenizer: bytes | None = None
