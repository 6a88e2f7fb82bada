"""Random graphs give the same values with and without the passes, on both backends, and in onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest

from edgerun.backends.native.backend import compile_graph
from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun_converters.onnx.importer import import_model
from edgerun_converters.passes import optimize
from tests.passes.random_graphs import random_model

Values = dict[str, np.ndarray]
CHUNK = 25


def reference(model: onnx.ModelProto, feed: Values) -> Values:
    """What onnxruntime computes without its own graph optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feed), strict=True))


def nudged(feed: Values) -> Values:
    """Inputs changed in their last digits: how far outputs move with them is what rounding may cost."""
    rng = np.random.default_rng(0)
    return {k: (v * (1 + 1e-6 * rng.standard_normal(v.shape))).astype(v.dtype) for k, v in feed.items()}


@pytest.mark.parametrize("first", range(0, 100, CHUNK))
def test_all_ways_agree(first: int) -> None:
    for seed in range(first, first + CHUNK):
        model, feed = random_model(seed)
        want, moved = reference(model, feed), reference(model, nudged(feed))
        graph = import_model(model)
        plain, better = optimize(graph, enabled=False), optimize(graph)
        ways = {
            "numpy": NumpyExecutor(plain).run(feed),
            "numpy, optimised": NumpyExecutor(better).run(feed),
            "native": compile_graph(plain).run(feed),
            "native, optimised": compile_graph(better).run(feed),
        }
        for way, got in ways.items():
            for name, value in want.items():
                noise = float(np.abs(moved[name] - value).max(initial=0))
                scale = float(np.abs(value).max(initial=1e-3))
                np.testing.assert_allclose(
                    got[name], value, rtol=0, atol=3e-5 * scale + 30 * noise, err_msg=f"seed {seed}, {way}: {name}"
                )
