"""Target profiles: all valid, and invalid ones explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgerun.errors import FileFormatError, InputOutputError, UsageError
from edgerun_targets import load, names
from edgerun_targets.loader import ARCHES

GOOD = 'description = "mine"\narch = "aarch64"\ncpu = "cortex-a55"\nfeatures = ["dotprod"]\n[cache_kb]\nl2 = 128\n'


@pytest.mark.parametrize("name", names())
def test_profiles_are_valid(name: str) -> None:
    target = load(name)
    assert target.name == name and target.arch in ARCHES and target.description


def test_generic_architectures_come_first() -> None:
    assert names()[: len(ARCHES)] == sorted(ARCHES)


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    target = load(str(path))
    assert (target.name, target.cpu, target.features, target.l2_kb) == ("mine", "cortex-a55", ("dotprod",), 128)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("arch", "arhc"), "did you mean arch"),
        (('"aarch64"', '"z80"'), "unknown arch"),
        (('"dotprod"', '"avx2"'), "unknown feature"),
        (("l2 = 128", "l2 = -1"), "cache_kb"),
        (("[cache_kb]", "cores = true\n[cache_kb]"), "cores must be a number"),
        (('description = "mine"\n', ""), "description is missing"),
        (("= ", "== "), "mine"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(*change, 1))
    with pytest.raises(FileFormatError, match=message):
        load(str(path))


def test_unknown_and_missing() -> None:
    with pytest.raises(UsageError, match="did you mean"):
        load("raspberrypi4" if "raspberrypi4" in names() else "rpi-4")
    with pytest.raises(InputOutputError):
        load("/nowhere/x.toml")
