"""Every corpus model against its reference outputs: NumPy and native, optimised and not, bound and symbolic."""

import pytest

from edgerun.session import from_graph, load_graph
from tests.corpus.corpus import CorpusModel, compare, folder, models

pytestmark = pytest.mark.skipif(folder() is None, reason="EDGERUN_CORPUS is not set")


@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "plain"])
@pytest.mark.parametrize("model", models(), ids=lambda m: m.name)
def test_numpy_matches_the_reference(model: CorpusModel, optimize: bool):
    inputs, _ = model.arrays()
    graph = load_graph(model.path, shapes={k: v.shape for k, v in inputs.items()}, optimize=optimize)
    error = compare(model, from_graph(graph, "numpy").run(inputs))
    assert error <= model.tolerance


@pytest.mark.parametrize("model", models(), ids=lambda m: m.name)
def test_symbolic_dimensions_give_the_same(model: CorpusModel):
    inputs, _ = model.arrays()
    error = compare(model, from_graph(load_graph(model.path), "numpy").run(inputs))
    assert error <= model.tolerance


@pytest.mark.parametrize("model", models(), ids=lambda m: m.name)
def test_native_matches_the_reference(model: CorpusModel):
    inputs, _ = model.arrays()
    graph = load_graph(model.path, shapes={k: v.shape for k, v in inputs.items()})
    error = compare(model, from_graph(graph, "native").run(inputs))
    assert error <= model.tolerance
