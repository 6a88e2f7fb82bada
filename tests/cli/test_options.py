"""Reading of option values."""

from __future__ import annotations

import click
import pytest

from edgerun.cli.options import DurationType, SizeType, parse_dims, parse_shapes
from edgerun.errors import UsageError


@pytest.mark.parametrize(
    ("text", "count"), [("24MB", 24_000_000), ("1.5kB", 1500), ("64MiB", 64 << 20), ("7", 7), ("2 gb", 2_000_000_000)]
)
def test_sizes(text: str, count: int) -> None:
    assert SizeType().convert(text, None, None) == count


@pytest.mark.parametrize("text", ["MB", "1 parsec", "-3MB", "1e3"])
def test_bad_sizes_are_usage_errors(text: str) -> None:
    with pytest.raises(click.UsageError):
        SizeType().convert(text, None, None)


def test_durations() -> None:
    assert [DurationType().convert(t, None, None) for t in ("40ms", "800us", "1.5s")] == pytest.approx(
        [0.04, 8e-4, 1.5]
    )


def test_shapes_may_have_equals_signs_in_names() -> None:
    assert parse_shapes(["x=1,3,8,8", "a=b=2", "scalar="]) == {"x": (1, 3, 8, 8), "a=b": (2,), "scalar": ()}


@pytest.mark.parametrize("text", ["x", "x=1,-2", "x=1;2", "=1,2"])
def test_bad_shapes(text: str) -> None:
    with pytest.raises(UsageError):
        parse_shapes([text])


def test_dims() -> None:
    assert parse_dims(["n=4", "seq=1..512"]) == {"n": 4, "seq": (1, 512)}


@pytest.mark.parametrize("text", ["n", "n=", "n=5..2", "n=-1"])
def test_bad_dims(text: str) -> None:
    with pytest.raises(UsageError):
        parse_dims([text])
