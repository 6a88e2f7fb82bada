"""Every case of the official suite ends as the ledger says: getting worse fails, and getting better does too."""

import pytest

from tests.onnx_suite import judge, ledger
from tests.onnx_suite.cases import inference_cases, load

SHARDS = 8


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("backend", ["numpy", "native"])
def test_cases_end_as_the_ledger_says(backend: str, shard: int):
    entries = ledger.load()
    surprises = []
    for case in inference_cases()[shard::SHARDS]:
        verdict = judge.run(case, backend, limit=120.0)
        expected = ledger.expected(case.name, backend, entries)
        if not ledger.agrees(verdict.status, expected):
            surprises.append(f"{case.name}: {verdict.status}, the ledger says {expected}: {verdict.message[:300]}")
    assert not surprises, "\n".join(surprises)


def test_ledger_names_only_existing_cases():
    assert ledger.stale([c.name for c in load()], ledger.load()) == []


def test_only_training_is_left_out():
    left_out = [c for c in load() if c.is_training]
    assert all(
        any(o.domain.startswith("ai.onnx.") and o.domain.endswith("training") for o in c.model.opset_import)
        or any(n.op_type in ("Gradient", "Adam", "Adagrad", "Momentum") for n in c.model.graph.node)
        for c in left_out
    )
    assert len(left_out) < 12
