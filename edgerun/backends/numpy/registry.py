"""The NumPy kernels, by op name.

    @kernel("softmax")
    def softmax(x: np.ndarray, *, axis: int, log: bool = False) -> np.ndarray: ...

A kernel has the signature of its op's shape rule with arrays for TensorTypes, and returns one array (or a tuple). It
must not modify its inputs. Sequences are Python lists of arrays; an absent optional is None.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from edgerun.errors import UnsupportedError

KERNELS: dict[str, Callable[..., Any]] = {}


def kernel(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the NumPy kernel of op `name`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if name in KERNELS:
            raise ValueError(f"NumPy kernel {name!r} is defined twice")
        KERNELS[name] = function
        return function

    return register


def load_all() -> None:
    """Import every kernel module, filling KERNELS."""
    import edgerun.backends.numpy as package

    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in ("registry", "executor"):
            importlib.import_module(f"edgerun.backends.numpy.{module.name}")


def find(name: str) -> Callable[..., Any]:
    """The kernel of op `name`. Raises UnsupportedError when there is none."""
    if name not in KERNELS:
        load_all()
    try:
        return KERNELS[name]
    except KeyError:
        raise UnsupportedError(f"the NumPy backend has no kernel for op {name!r}") from None
