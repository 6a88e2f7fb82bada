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

__all__ = ["Session", "__version__", "load"]


def load(path: Any, **options: Any) -> Session:
    """Open a bundle, plan or packed executable; see `edgerun.session.load`."""
    from edgerun.session import load as load_session

    return load_session(path, **options)


def __getattr__(name: str) -> Any:
    if name == "Session":
        from edgerun.session import Session

        return Session
    raise AttributeError(f"module 'edgerun' has no attribute {name!r}")
