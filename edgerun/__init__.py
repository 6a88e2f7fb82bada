"""edgerun: run a model from one small file, on NumPy, native C, wgpu or CUDA kernels.

>>> import edgerun
>>> session = edgerun.load("model.edge")
>>> outputs = session.run({"input": array})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from edgerun.session import Session

__all__ = ["Session", "__version__", "from_torch", "load"]


def load(path: Any, **options: Any) -> Session:
    """Open a bundle, plan or packed executable; see `edgerun.session.load`."""
    from edgerun.session import load as load_session

    return load_session(path, **options)


def from_torch(module: Any, example: Any, *, dynamic_shapes: Any = None, **options: Any) -> Session:
    """A session for a PyTorch module; see `edgerun_converters.checkpoints.torch_export.import_module`.

    `options` go to `edgerun.session.from_graph`: backend ("auto" by default), threads. The graph, to be saved with
    `edgerun.bundle.save`, is the session's `graph`.
    """
    from edgerun.session import from_graph, host

    graph = host("edgerun_converters.checkpoints.torch_export", "import_module")(
        module, example, dynamic_shapes=dynamic_shapes
    )
    return from_graph(graph, **({"backend": "auto"} | options))


def __getattr__(name: str) -> Any:
    if name == "Session":
        from edgerun.session import Session

        return Session
    raise AttributeError(f"module 'edgerun' has no attribute {name!r}")
