"""Remedies are plans made anew; the estimate of latency rests on the profile of the board."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgerun.errors import BudgetExceeded
from edgerun.session import load_graph
from edgerun_packaging.budgets import Budgets
from edgerun_packaging.latency import CPU, estimate
from edgerun_packaging.pack import Options, pack
from edgerun_targets import load, names


@pytest.fixture(scope="module")
def image_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two 3x3 convolutions of 32 channels over 128 x 128."""
    r = np.random.default_rng(0)
    weights = [numpy_helper.from_array(r.standard_normal(s).astype(np.float32), n) for s, n in
               (((32, 3, 3, 3), "a"), ((32, 32, 3, 3), "b"))]  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["g"]),
        helper.make_node("Conv", ["g", "b"], ["y"], pads=[1, 1, 1, 1]),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, 128, 128]) for n, c in (("x", 3), ("y", 32))]
    graph = helper.make_graph(nodes, "image", ports[:1], ports[1:], weights)
    path = tmp_path_factory.mktemp("models") / "image.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    for dim in (
        *model.graph.input[0].type.tensor_type.shape.dim[2:],
        *model.graph.output[0].type.tensor_type.shape.dim[2:],
    ):
        dim.dim_param = "side"
    onnx.save(model, path)
    return path


def test_remedies_are_tried(image_model: Path, tmp_path: Path) -> None:
    graph = load_graph(image_model, shapes={"x": (1, 3, 128, 128)})
    options = Options(threads=4)
    with pytest.raises(BudgetExceeded) as caught:
        pack(
            graph, load("rpi4"), tmp_path / "m", source=image_model, budgets=Budgets(max_ram=2_000_000), options=options
        )
    text = caught.value.message
    assert "--shape x=1,3,64,64" in text and "--threads 1" in text and "--no-golden" in text
    first = text.split("what would help the ram:\n")[1].splitlines()[0]
    assert "64,64" in first, "the largest gain comes first"
    assert not (tmp_path / "m").exists()
    # The gain is that of the plan made so.
    small = load_graph(image_model, shapes={"x": (1, 3, 64, 64)})
    large = pack(graph, load("rpi4"), tmp_path / "large", options=options).footprint.ram_bytes
    gain = large - pack(small, load("rpi4"), tmp_path / "small", options=options).footprint.ram_bytes
    promised = float(first.split("-")[1].split(" MB")[0]) * 1e6
    assert promised == pytest.approx(gain, rel=0.02)


def test_bounds_of_dimensions_are_halved(image_model: Path, tmp_path: Path) -> None:
    graph = load_graph(image_model, shapes={"x": (1, 3, 128, 128)})
    free = load_graph(image_model, dims={"side": (16, 96)})
    with pytest.raises(BudgetExceeded, match=r"--dim side=16\.\.48"):
        pack(free, load("x86_64"), tmp_path / "m", budgets=Budgets(max_ram=100_000), options=Options(threads=1))
    with pytest.raises(BudgetExceeded, match="an estimate: 4 x cortex-a72 at 1500 MHz"):
        pack(graph, load("rpi4"), tmp_path / "m", budgets=Budgets(max_latency=1e-4))


def test_the_estimate_follows_the_board(image_model: Path) -> None:
    graph = load_graph(image_model, shapes={"x": (1, 3, 128, 128)})
    board = load("rpi4")
    whole = estimate(graph, board)
    assert whole is not None
    macs = 128 * 128 * 32 * 9 * (3 + 32)
    assert macs / (4 * 4.0 * 1.5e9) < whole.seconds < 4 * macs / (4 * 4.0 * 1.5e9)
    slower = estimate(graph, replace(board, mhz=750, memory_mbs=6400))
    one = estimate(graph, board, threads=1)
    assert slower is not None and one is not None
    assert slower.seconds == pytest.approx(2 * whole.seconds, rel=0.05) and one.seconds > 2 * whole.seconds
    assert estimate(graph, load("aarch64")) is None, "a generic profile has no clock"


@pytest.mark.parametrize("name", [n for n in names() if load(n).soc])
def test_boards_are_described_completely(name: str) -> None:
    board = load(name)
    assert board.cores and board.ram_mb and board.mhz and board.memory_mbs and board.cpu in CPU
