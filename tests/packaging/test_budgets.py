"""Budgets as a contract."""

from __future__ import annotations

from edgerun_packaging.budgets import Budgets, Footprint, Part, Remedy, check, describe

FOOTPRINT = Footprint(
    [Part("stub", 300_000), Part("weights", 14_000_000)], [Part("weights", 14_000_000), Part("arena", 9_000_000)]
)


def test_within() -> None:
    assert check(FOOTPRINT, Budgets(24_000_000, 80_000_000)) == []
    assert check(FOOTPRINT, Budgets()) == []
    assert check(FOOTPRINT, Budgets(max_size=14_300_000)) == []


def test_over_lists_parts_and_remedies_by_gain() -> None:
    excess = check(FOOTPRINT, Budgets(10_000_000, 20_000_000))
    assert [e.budget for e in excess] == ["size", "ram"]
    text = describe(excess, [Remedy("small", 1000), Remedy("large", 7_000_000), Remedy("none", 0)])
    assert "size budget exceeded: 14.30 MB needed, 10.00 MB allowed, 4.30 MB over" in text
    assert text.index("large") < text.index("small") and "none" not in text
    assert text.index("weights") < text.index("stub")
