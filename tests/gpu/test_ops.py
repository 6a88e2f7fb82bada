"""Every op with a GPU kernel on random legal nodes, against the NumPy kernels."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgerun.backends.gpu import lowering
from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.backends.wgpu.runner import WgpuRunner
from edgerun.graph import Graph
from edgerun_converters.onnx.importer import import_model
from tests.properties import test_properties  # noqa: F401  (registers all properties)
from tests.properties.case import Case, compare_values
from tests.properties.draw import PROPERTIES, Drawer, Property

EXAMPLES = int(os.environ.get("EDGERUN_EXAMPLES", "10"))
"""Few: a software adapter compiles every kernel for some tenths of a second."""
lowering.load_all()


def runs_on_gpu(graph: Graph, case: Case) -> set[str]:
    """Run on the GPU and compare; the ops that it computed. Values that do not fit into 32 bits are left out."""
    if graph.free_symbols() or any(_wide(v) for v in case.feeds.values()):
        return set()
    gpu = WgpuRunner(graph, split=True, allow_software=True)
    with np.errstate(all="ignore"):
        expected = NumpyExecutor(graph).run({k: case.feeds[k] for k in graph.inputs})
    if any(_wide(v) for v in expected.values()):
        return set()
    found = gpu.run({k: case.feeds[k] for k in graph.inputs})
    loose = replace(case, rtol=max(case.rtol, 2e-3), atol=max(case.atol, 2e-4))
    compare_values(loose, [found[o] for o in graph.outputs], [expected[o] for o in graph.outputs])
    return {n.op for n in graph.nodes if n.name not in gpu.on_cpu}


def _wide(value: Any) -> bool:
    """Whether a value holds integers of more than 32 bits, or numbers near the end of the range of f32."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf" or not value.size:
        return False
    if value.dtype.kind in "iu":
        return bool((value.astype(object) >= 1 << 31).any() or (value.astype(object) < -(1 << 31)).any())
    finite = value[np.isfinite(value)].astype(np.float64)
    return bool(finite.size and np.abs(finite).max() > 1e30)


@pytest.mark.parametrize("name", sorted(lowering.LOWERINGS))
def test_gpu_equals_numpy(name: str) -> None:
    ran = [draw_and_compare(name, way) for way in PROPERTIES[name]]
    assert any(ran), f"no case of {name} ran on the GPU"


def draw_and_compare(name: str, way: Property) -> bool:
    """Whether any drawn case had the op on the GPU."""
    seen: list[bool] = []

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        case = way.draw(Drawer(data))
        if case.values:
            seen.append(name in runs_on_gpu(import_model(case.model), case))

    run()
    return any(seen)
