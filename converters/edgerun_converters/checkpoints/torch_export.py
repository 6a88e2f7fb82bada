"""PyTorch modules and exported programs (.pt2) to graphs, by PyTorch's own exporter to ONNX.

PyTorch is imported only here and only when asked for; state dicts need none of it (pytorch.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgerun.errors import BackendUnavailable, EdgerunError, ImportFailure, InputOutputError
from edgerun.graph import Graph
from edgerun_converters.onnx.importer import import_model
from edgerun_converters.passes.pipeline import optimize


def import_module(module: Any, example: Any, *, dynamic_shapes: Any = None) -> Graph:
    """The optimised graph of an `nn.Module` in evaluation mode.

    `example`: one input or a tuple of inputs, as the module takes them; `dynamic_shapes` as torch.export has it, None
    for the sizes of the example. Raises BackendUnavailable without PyTorch, ImportFailure when its exporter fails,
    UnsupportedError listing the operators that are not known.
    """
    torch = _torch()
    inputs = example if isinstance(example, tuple) else (example,)
    training = bool(module.training)
    module.eval()
    try:
        graph = _exported(torch, module, type(module).__name__, inputs, dynamic_shapes=dynamic_shapes)
    finally:
        module.train(training)
    return graph


def import_program(path: Path) -> Graph:
    """The graph of a file that torch.export.save wrote. Errors as `import_module`; InputOutputError when unreadable.

    PyTorch itself reads the file: open only files that you trust as much as a program.
    """
    torch = _torch()
    try:
        with path.open("rb"):
            program = torch.export.load(str(path))
    except OSError as e:
        raise InputOutputError(f"cannot read {path}: {e.strerror or e}") from e
    except Exception as e:  # whatever PyTorch raises about the file
        raise ImportFailure(f"{path} is no exported program: {_first_line(e)}") from e
    return _exported(torch, program, path.name)


def _exported(torch: Any, program: Any, name: str, inputs: tuple[Any, ...] = (), **options: Any) -> Graph:
    try:
        model = torch.onnx.export(program, inputs, dynamo=True, verbose=False, **options).model_proto
    except EdgerunError:
        raise
    except Exception as e:  # the exporter raises errors of many kinds
        raise ImportFailure(f"PyTorch cannot export {name} to ONNX: {_first_line(e)}") from e
    graph = optimize(import_model(model))
    graph.meta["source"] = name
    return graph


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def _torch() -> Any:
    try:
        import onnxscript  # noqa: F401
        import torch
    except ImportError as e:
        raise BackendUnavailable(
            f"this needs PyTorch and its exporter ({e.name} is not installed)", hint="pip install torch onnxscript"
        ) from e
    return torch
