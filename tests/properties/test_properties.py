"""Every core op on random legal nodes (see `case`); an op without a way to draw nodes of it fails."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgerun.backends.native import lowering
from edgerun.ops import registry
from tests.properties import arithmetic, features, layers, movement, quantised, recurrent, sequences, spatial
from tests.properties.case import check
from tests.properties.draw import PROPERTIES, Drawer, Property

FAMILIES = (arithmetic, features, layers, movement, quantised, recurrent, sequences, spatial)
EXAMPLES = int(os.environ.get("EDGERUN_EXAMPLES", "15"))
registry.load_all()
lowering.load_all()
NOT_NATIVE = {
    "sequence_at": "natively only in sequences that the importer can take apart",
    "split_to_sequence": "natively only where its result is taken apart",
    "fail": "an error when it runs",
    "copy": "only sequences, optionals and strings are copied; views of tensors need no node",
}
"""Ops with a native lowering that no property reaches natively, and why."""


def test_every_op_is_drawn() -> None:
    assert sorted(registry.OPS.keys() - PROPERTIES.keys()) == []
    assert sorted(PROPERTIES.keys() - registry.OPS.keys()) == []


@pytest.mark.parametrize("name", sorted(PROPERTIES))
def test_rule_kernels_and_oracle_agree(name: str) -> None:
    ran = [draw_and_check(name, way) for way in PROPERTIES[name]]
    assert any(ran) or name not in lowering.LOWERINGS or name in NOT_NATIVE, "no case ran natively"


def draw_and_check(name: str, way: Property) -> bool:
    """Whether the native backend took part in any case. Half of the cases at least must contain the op."""
    seen: list[tuple[bool, bool]] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize="EDGERUN_EXAMPLES" not in os.environ,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        case = way.draw(Drawer(data))
        seen.append(check(name, case, oracle=not way.no_oracle, symbolic=not way.no_symbols))

    run()
    assert 2 * sum(has for has, _ in seen) >= len(seen), f"most models have no {name}"
    return any(ran for _, ran in seen)
