"""Plans of every architecture give the reference's values on every ISA level, under emulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgerun.backends.native.backend import build_plan
from edgerun.backends.native.table import levels
from edgerun.graph import Graph
from edgerun.session import from_graph, load_graph
from tests.native.emulated import run_plan

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
CASES = [(arch, level.name) for arch, rows in levels().items() if arch not in ("wasm32", "x86_64") for level in rows]


@pytest.fixture(scope="module")
def digits() -> Graph:
    return load_graph(DIGITS, dims={"batch": (1, 4)})


@pytest.mark.parametrize(("arch", "isa"), CASES)
def test_values(arch: str, isa: str, digits: Graph) -> None:
    image = np.random.default_rng(1).random((3, 1, 8, 8), np.float32)
    want = from_graph(digits).run({"image": image})["probabilities"]
    plan = build_plan(digits, arch)
    for threads in (1, 2):
        got = run_plan(plan, {"image": image}, isa=isa, threads=threads)["probabilities"]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_a_weak_cpu_chooses_a_weak_level(digits: Graph) -> None:
    """A Cortex-A72 has no dot product: asking for it fails, and without asking it is not used."""
    image = {"image": np.zeros((1, 1, 8, 8), np.float32)}
    plan = build_plan(digits, "aarch64")
    run_plan(plan, image, isa="neon")
    from tests.native import emulated

    cpus = emulated.CPUS
    assert cpus["neon"] == "cortex-a72"
    with pytest.raises(AssertionError, match="no level"), pytest.MonkeyPatch.context() as patch:
        patch.setitem(cpus, "neon-dotprod", "cortex-a72")
        run_plan(plan, image, isa="neon-dotprod")
