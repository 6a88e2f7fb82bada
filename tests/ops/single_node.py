"""One ONNX node through the importer and the NumPy kernels, and through onnxruntime as the oracle.

    node = NodeCase("LSTM", {"X": x, "W": w, "R": r}, {"hidden_size": 5}, outputs=3, opset=14)
    node.edgerun(), node.reference()

Inputs are a mapping of names to arrays in order; None stands for an absent optional input. `constant` names the inputs
that become initializers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.dtypes import from_numpy
from edgerun.graph import Graph
from edgerun_converters.onnx.importer import import_model


@dataclass
class NodeCase:
    """An ONNX node with the arrays to run it on."""

    op_type: str
    inputs: Mapping[str, np.ndarray | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 22
    domain: str = ""
    constant: Sequence[str] = ()
    symbolic: bool = False
    """Whether the sizes of the inputs are hidden from the importer behind symbols."""
    wanted: Sequence[bool] = ()

    def model(self) -> onnx.ModelProto:
        """The node as an ONNX model."""
        ports, weights, names = [], [], []
        for name, array in self.inputs.items():
            names.append(name if array is not None else "")
            if array is None:
                continue
            if name in self.constant:
                weights.append(numpy_helper.from_array(array, name))
                continue
            shape = [f"{name}_{k}" for k in range(array.ndim)] if self.symbolic else array.shape
            ports.append(helper.make_tensor_value_info(name, from_numpy(array.dtype).onnx, shape))
        wanted = list(self.wanted) or [True] * self.outputs
        outputs = [f"out{k}" if w else "" for k, w in enumerate(wanted)]
        node = helper.make_node(self.op_type, names, outputs, "node", domain=self.domain, **self.attributes)
        results = [onnx.ValueInfoProto(name=o) for o in outputs if o]
        opsets = [helper.make_opsetid("", 21 if self.domain else self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid(self.domain, self.opset))
        graph = helper.make_graph([node], "g", ports, results, weights)
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def graph(self) -> Graph:
        """The node as a graph of core ops."""
        return import_model(self.model())

    def edgerun(self) -> list[Any]:
        """Outputs of the NumPy kernels, checked against the inferred types."""
        graph = self.graph()
        results = NumpyExecutor(graph).run({k: self.inputs[k] for k in graph.inputs})
        for name, value in results.items():
            tensor = graph.tensors[name]
            if tensor.kind != "tensor":
                continue
            assert from_numpy(value.dtype) is tensor.dtype, f"{name} is {value.dtype}, inferred {tensor}"
            if tensor.shape is not None:
                assert len(tensor.shape) == value.ndim, f"{name} has shape {value.shape}, inferred {tensor}"
                for dim, size in zip(tensor.shape, value.shape, strict=True):
                    assert not isinstance(dim, int) or dim == size, f"{name} has shape {value.shape}, inferred {tensor}"
        return [results[o] for o in graph.outputs]

    def reference(self) -> list[Any]:
        """Outputs of onnxruntime without graph optimisation."""
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        model = self.model()
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, {p.name: self.inputs[p.name] for p in model.graph.input})

    def check(self, rtol: float = 1e-4, atol: float = 1e-5) -> None:
        """Assert that the NumPy kernels give what onnxruntime gives."""
        assert_same(self.edgerun(), self.reference(), rtol, atol)


def assert_same(actual: Sequence[Any], expected: Sequence[Any], rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Assert equal counts, dtypes and shapes, and values within tolerance (exact for integers and strings)."""
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        if not isinstance(e, np.ndarray):
            assert a == e
            continue
        assert from_numpy(a.dtype) is from_numpy(e.dtype), f"dtype {a.dtype}, expected {e.dtype}"
        assert a.shape == e.shape, f"shape {a.shape}, expected {e.shape}"
        if e.dtype.kind in "OUSbiu":
            np.testing.assert_array_equal(a, e)
        else:
            np.testing.assert_allclose(
                a.astype(np.complex128 if e.dtype.kind == "c" else np.float64),
                e.astype(np.complex128 if e.dtype.kind == "c" else np.float64),
                rtol=rtol,
                atol=atol,
            )
