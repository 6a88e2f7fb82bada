"""Every kernel as CUDA C++ through the compiler, without a GPU; and what a missing or hanging driver gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgerun.backends.cuda import driver, nvrtc
from edgerun.backends.cuda.translate import translate
from edgerun.backends.gpu import lowering
from edgerun.backends.gpu.lowering import Dispatch, lower
from edgerun.backends.gpu.wgsl import per_row, tree
from edgerun.errors import BackendUnavailable
from edgerun.graph import Graph
from edgerun_converters.onnx.importer import import_model
from tests.properties import test_properties  # noqa: F401  (registers all properties)
from tests.properties.draw import PROPERTIES, Drawer

lowering.load_all()


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC with an empty cache. Skips where it is not installed; in CI that is a failure."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        nvrtc.library()
    except BackendUnavailable as e:
        if os.environ.get("EDGERUN_CI"):
            pytest.fail(str(e))
        pytest.skip(str(e))


def compile_all(graph: Graph) -> int:
    """Compile every kernel of a graph; how many there are."""
    sources = {s.kernel.source for s in lower(graph, split=True).steps if isinstance(s, Dispatch)}
    for source in sources:
        ptx = nvrtc.compiled(translate(source)[0])
        assert nvrtc.PTX_VERSION in ptx
        assert b".entry kernel_main" in ptx
    return len(sources)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", sorted(lowering.LOWERINGS))
def test_kernels_compile(name: str) -> None:
    """The kernels of the first drawn case that has any."""
    found: list[int] = []

    @settings(max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data: st.DataObject) -> None:
        way = PROPERTIES[name][data.draw(st.integers(0, len(PROPERTIES[name]) - 1))]
        graph = import_model(way.draw(Drawer(data)).model)
        if not found and not graph.free_symbols() and (count := compile_all(graph)):
            found.append(count)

    run()
    assert found or name == "reshape", f"no kernel of {name} was compiled"


@pytest.mark.usefixtures("compiler")
def test_refusal_of_the_compiler() -> None:
    with pytest.raises(BackendUnavailable, match="NVRTC refuses a kernel"):
        nvrtc.compiled("extern __global__ void broken(")


def test_translation() -> None:
    text, threads = translate(per_row(["f32", "i32"], 7, f"  R[l] = b0[l];\n{tree('{a} + {b}')}").source)
    assert threads == 64
    assert 'extern "C" __global__ void __launch_bounds__(64) kernel_main(float *b0, int *b1)' in text
    assert "__shared__ float R_[64];" in text
    assert "__syncthreads();" in text
    for word in ("fn ", "let ", "var ", "<f32>", "@", "workgroupBarrier"):
        assert word not in text


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_NAMES", ("libcuda-that-is-not-there.so",))
    with pytest.raises(BackendUnavailable, match="is not installed") as e:
        driver.Device()
    assert e.value.exit_code == 3


def test_hanging_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "PROBE_SECONDS", 0.01)
    with pytest.raises(BackendUnavailable, match="the driver hangs"):
        driver.probe()


def test_doctor_asks_the_driver() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-m", "edgerun", "doctor"], capture_output=True, text=True, env=env)
    assert "GPU (CUDA)" in done.stdout
