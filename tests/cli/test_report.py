"""Rendering of reports."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgerun.report import Column, Report, Table, plain, render, size_text

ROWS = [{"name": "a|b", "x": 1.5}, {"name": "c", "x": float("nan")}]
REPORT = Report({"rows": ROWS}, [Table(ROWS, [Column("name", left=True), Column("x")])], ["done"])


def test_table_is_aligned() -> None:
    assert render(REPORT, "table") == "name    x\na|b   1.5\nc     nan\n\ndone\n"


def test_markdown_escapes_bars() -> None:
    assert "| a\\|b | 1.5 |" in render(REPORT, "md")


def test_json_has_no_bare_nan() -> None:
    assert json.loads(render(REPORT, "json"))["rows"][1]["x"] == "nan"


def test_csv_prints_numbers_unformatted() -> None:
    assert render(REPORT, "csv").splitlines() == ["name,x", "a|b,1.5", "c,nan"]


def test_plain_unwraps_numpy() -> None:
    assert plain({"a": np.float32(2), "b": np.arange(3), "c": (np.bool_(True),)}) == {
        "a": 2,
        "b": [0, 1, 2],
        "c": [True],
    }


@pytest.mark.parametrize(("count", "text"), [(None, "-"), (12, "12 B"), (1500, "1.50 kB"), (24_000_000, "24.00 MB")])
def test_sizes_are_decimal(count: int | None, text: str) -> None:
    assert size_text(count) == text
