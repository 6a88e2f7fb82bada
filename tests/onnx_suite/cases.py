"""The cases of `onnx.backend.test`, loaded in one form: a model, data sets of inputs and outputs, tolerances."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import loader

GROUPS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
_TRAINING_DOMAINS = ("ai.onnx.training", "ai.onnx.preview.training")
_TRAINING_OPS = ("Gradient", "Adam", "Adagrad", "Momentum")

DataSet = tuple[list[Any], list[Any]]


@dataclass
class Case:
    """One model test. Values are arrays, lists of values (sequences), or None (absent optionals)."""

    group: str
    name: str
    model: onnx.ModelProto
    rtol: float
    atol: float
    sets: list[DataSet] = field(default_factory=list)
    folder: Path | None = None
    """Where the data of a stored case lies; read by `data`."""

    def data(self) -> list[DataSet]:
        """The data sets, read when first asked for."""
        if not self.sets and self.folder is not None:
            self.sets = list(_light_data(self) if self.group == "light" else _stored_data(self))
        return self.sets

    @property
    def is_training(self) -> bool:
        """Whether the case is about training, which is out of scope."""
        imports = any(o.domain in _TRAINING_DOMAINS for o in self.model.opset_import)
        return imports or any(
            n.domain in _TRAINING_DOMAINS or n.op_type in _TRAINING_OPS for n in self.model.graph.node
        )


@functools.cache
def load() -> tuple[Case, ...]:
    """Every case of every group, training included, sorted by group and name."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # the suite computes its own expected values as it loads
        warnings.simplefilter("ignore", RuntimeWarning)
        found = [case for group in GROUPS for case in _group(group)]
    return tuple(sorted(found, key=lambda c: (GROUPS.index(c.group), c.name)))


def inference_cases() -> list[Case]:
    """The cases that count."""
    return [c for c in load() if not c.is_training]


def _group(group: str) -> Iterator[Case]:
    c: Any
    if group == "node":
        for c in loader.load_model_tests(kind="node"):
            sets = [([_value(x) for x in i], [_value(x) for x in o]) for i, o in c.data_sets]
            yield Case(group, c.name, c.model, c.rtol, c.atol, sets)
    elif group == "light":
        folder = Path(loader.DATA_DIR) / "light"
        for c in loader.load_model_tests(kind="real"):
            path = folder / Path(c.url).name
            yield Case(group, f"light_{c.model_name}", onnx.load(path), c.rtol, c.atol, folder=path)
    else:
        for c in loader.load_model_tests(kind=group):
            folder = Path(c.model_dir)
            yield Case(group, c.name, onnx.load(folder / "model.onnx"), c.rtol, c.atol, folder=folder)


def _value(x: Any) -> Any:
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    if isinstance(x, onnx.SequenceProto):
        return numpy_helper.to_list(x)
    if isinstance(x, onnx.OptionalProto):
        return numpy_helper.to_optional(x)
    if isinstance(x, np.generic):  # scalars stand for tensors of rank 0
        return np.asarray(x)
    if isinstance(x, list):
        return [_value(y) for y in x]
    return x


def _parse(path: Path, declared: onnx.TypeProto) -> Any:
    kinds: dict[str, Any] = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}
    kind = kinds.get(declared.WhichOneof("value") or "", onnx.TensorProto)
    return _value(kind.FromString(path.read_bytes()))


def _stored_data(case: Case) -> Iterator[DataSet]:
    assert case.folder is not None
    graph = case.model.graph
    constants = {t.name for t in graph.initializer}
    for folder in sorted(case.folder.glob("test_data_set_*")):
        count = len(list(folder.glob("input_*.pb")))
        inputs = [v for v in graph.input if count == len(graph.input) or v.name not in constants]
        yield (
            [_parse(folder / f"input_{k}.pb", inputs[k].type) for k in range(count)],
            [
                _parse(folder / f"output_{k}.pb", graph.output[k].type)
                for k in range(len(list(folder.glob("output_*.pb"))))
            ],
        )
    for path in sorted(case.folder.glob("test_data_*.npz")):
        with np.load(path, encoding="bytes") as arrays:
            yield list(arrays["inputs"]), list(arrays["outputs"])


def _light_data(case: Case) -> Iterator[DataSet]:
    """The light models come with outputs for the inputs 0/n, 1/n, 2/n ..."""
    assert case.folder is not None
    graph = case.model.graph
    constants = {t.name for t in graph.initializer}
    inputs = []
    for value in graph.input:
        if value.name not in constants:
            shape = [d.dim_value if d.HasField("dim_value") else 1 for d in value.type.tensor_type.shape.dim]
            n = int(np.prod(shape))
            inputs.append((np.arange(n).reshape(shape) / n).astype(np.float32))
    stored = case.folder.with_name(case.folder.stem + "_output_0.pb")
    yield inputs, [_parse(stored, graph.output[0].type)]
