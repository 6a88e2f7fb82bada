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
    remedies = [Remedy("small", 1000, 0), Remedy("large", 7_000_000, 5_000_000), Remedy("none", 0, 0)]
    text = describe(excess, remedies)
    assert "size budget exceeded: 14.30 MB needed, 10.00 MB allowed, 4.30 MB over" in text
    assert text.index("large (enough)") < text.index("small") and "none" not in text
    assert text.index("weights") < text.index("stub")
    ram = text[text.index("ram budget") :]
    assert "small" not in ram and "large" in ram


def test_latency_is_an_estimate_with_its_basis() -> None:
    excess = check(FOOTPRINT, Budgets(max_latency=0.01), 0.025, "4 x cortex-a72")
    text = describe(excess, [Remedy("smaller", 0, 0, 0.02), Remedy("guessed", 0, 0, 0.001, planned=False)])
    assert "latency budget exceeded: 25.00 ms needed, 10.00 ms allowed, 15.00 ms over" in text
    assert "an estimate: 4 x cortex-a72" in text
    assert "smaller (enough)" in text and "guessed (a guess)" in text
    assert check(FOOTPRINT, Budgets(max_latency=0.01)) == [], "no estimate, no excess"
