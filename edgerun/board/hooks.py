"""The user's script of `edgerun pack --with`: what happens before and after the model.

    INPUTS = {"photo": ("u8", [None, None, 3])}     # optional: what --input takes, instead of the model's inputs

    def prepare(inputs):       # arrays by the names in INPUTS -> arrays by the names of the model's inputs
        ...
    def finish(outputs):       # arrays by the names of the model's outputs -> arrays by any names
        ...

All three are optional. Dtypes are edgerun's short names ("f32", "u8", "string"), None is a free dimension.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from edgerun.dims import symbol
from edgerun.dtypes import from_short
from edgerun.errors import EdgerunError
from edgerun.session import PortInfo

MODULE = "edgerun_script"
"""The script's name inside the packed file."""


class Hooks:
    """The script, or nothing when there is none."""

    def __init__(self, script: Any = None) -> None:
        self.script = script

    @staticmethod
    def load(present: bool) -> Hooks:
        """The script of this file, if the manifest says that there is one."""
        return Hooks(importlib.import_module(MODULE)) if present else Hooks()

    def inputs(self, of_model: Sequence[PortInfo]) -> list[PortInfo]:
        """What --input takes."""
        declared = getattr(self.script, "INPUTS", None)
        if declared is None:
            return list(of_model)
        ports = []
        for name, (dtype, shape) in declared.items():
            dims = tuple(symbol(f"{name}_{i}") if d is None else int(d) for i, d in enumerate(shape))
            ports.append(PortInfo(name, from_short(dtype), dims))
        return ports

    def prepare(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The model's inputs. Raises EdgerunError when the script fails."""
        return self._call("prepare", inputs)

    def finish(self, outputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is printed. Raises EdgerunError when the script fails."""
        return self._call("finish", outputs)

    def _call(self, name: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        function = getattr(self.script, name, None)
        if function is None:
            return values
        try:
            result = function(dict(values))
        except Exception as e:
            line = e.__traceback__.tb_next.tb_lineno if e.__traceback__ and e.__traceback__.tb_next else 0
            raise EdgerunError(f"{name} of the script failed in line {line}: {type(e).__name__}: {e}") from e
        if not isinstance(result, Mapping):
            raise EdgerunError(f"{name} of the script returned {type(result).__name__}, not a dict of arrays by name")
        return result
