"""Real networks: MobileNetV2 and the PP-OCR detector on codes, within the stated loss and size."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from edgerun.session import load_graph
from edgerun_converters.quantize import Options, quantize

CORPUS = os.environ.get("EDGERUN_CORPUS")
pytestmark = pytest.mark.skipif(CORPUS is None, reason="EDGERUN_CORPUS is not set")


@pytest.mark.parametrize(
    ("model", "layers", "loss"), [("classic/mobilenet_v2_ts", 53, 0.25), ("real/ppocr_v4_det", 62, 0.25)]
)
def test_static(model: str, layers: int, loss: float) -> None:
    assert CORPUS is not None
    archive = np.load(Path(CORPUS) / "io" / f"{model.replace('/', '__')}.npz")
    sample = {name.removeprefix("in__"): archive[name] for name in archive.files if name.startswith("in__")}
    graph = load_graph(Path(CORPUS) / "models" / f"{model}.onnx")
    result = quantize(graph, [sample], Options(method="minmax"))
    assert sum(row["quantised"] for row in result.rows) == layers
    assert result.drop < loss
    assert result.graph.weight_bytes() < 0.3 * graph.weight_bytes()
