"""edgerun behind the interface of `onnx.backend.base`, so that the official ONNX backend tests can run it.

>>> import onnx, edgerun.onnx_backend
>>> outputs = edgerun.onnx_backend.run_model(onnx.load("model.onnx"), [x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, namedtupledict

from edgerun.errors import UsageError
from edgerun.session import Session, from_graph


class Prepared(BackendRep):
    """A model that has been imported and is ready to run."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Inputs as a list in the model's order, or a mapping by name; outputs in the model's order.

        Tensors are arrays, sequences lists, absent optionals None. Inputs that are constants of the model must be
        left out. Raises UsageError when inputs do not fit the model.
        """
        ports = self.session.inputs
        if not isinstance(inputs, Mapping):
            if len(inputs) != len(ports):
                raise UsageError(f"the model takes {len(ports)} inputs, not {len(inputs)}")
            inputs = {port.name: value for port, value in zip(ports, inputs, strict=True)}
        results = self.session.run({k: _value(v) for k, v in inputs.items()})
        names = [port.name for port in self.session.outputs]
        values = [results[name] for name in names]
        return tuple(namedtupledict("Outputs", names)(*values))


def _value(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic | int | float | bool) else value


class EdgerunBackend(Backend):
    """The entry points. `backend` is "numpy" or "native", `optimize` says whether the passes run."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model can be imported."""
        from edgerun.errors import EdgerunError

        try:
            cls.prepare(model, device, **kwargs)
        except EdgerunError:
            return False
        return True

    @classmethod
    def prepare(
        cls,
        model: onnx.ModelProto,
        device: str = "CPU",
        *,
        backend: str = "numpy",
        optimize: bool = True,
        **_: Any,
    ) -> Prepared:
        """Import and optimise a model. Raises UnsupportedError listing every problem, ImportFailure for bad files."""
        from edgerun_converters.onnx.importer import import_model
        from edgerun_converters.passes import optimize as run_passes

        if not cls.supports_device(device):
            raise UsageError(f"there is no device {device!r}", hint="CPU is the only one")
        graph = run_passes(import_model(model), enabled=optimize)
        return Prepared(from_graph(graph, backend))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """`prepare` and `run` in one."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node on arrays. `opset_imports` (list of OperatorSetIdProto) defaults to the newest opset."""
        opsets = kwargs.pop("opset_imports", None)
        arrays = [np.asarray(i) for i in inputs]
        names = [i for i in node.input if i]
        if len(arrays) != len(names):
            raise UsageError(f"the node takes {len(names)} inputs, not {len(arrays)}")
        values = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in zip(names, arrays, strict=True)
        ]
        outputs = [onnx.helper.make_empty_tensor_value_info(o) for o in node.output if o]
        graph = onnx.helper.make_graph([node], "node", values, outputs)
        model = onnx.helper.make_model(graph, **({"opset_imports": opsets} if opsets else {}))
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only the CPU, in any of the spellings that ONNX uses."""
        return device.upper().split(":")[0] == "CPU"


prepare = EdgerunBackend.prepare
run_model = EdgerunBackend.run_model
run_node = EdgerunBackend.run_node
supports_device = EdgerunBackend.supports_device
is_compatible = EdgerunBackend.is_compatible
