"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgerun.errors import InputOutputError
from edgerun.files import atomic_write


def test_content_and_mode(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "f", mode=0o755) as file:
        file.write(b"abc")
        assert not (tmp_path / "f").exists()
    assert (tmp_path / "f").read_bytes() == b"abc"
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_write_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), atomic_write(tmp_path / "f") as file:
        file.write(b"half")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_existing_files_are_kept_without_force(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"mine")
    with pytest.raises(InputOutputError, match="--force"), atomic_write(tmp_path / "f") as file:
        file.write(b"x")
    assert (tmp_path / "f").read_bytes() == b"mine"
    with atomic_write(tmp_path / "f", force=True) as file:
        file.write(b"new")
    assert (tmp_path / "f").read_bytes() == b"new"


def test_a_missing_folder_is_an_io_error(tmp_path: Path) -> None:
    with pytest.raises(InputOutputError, match="cannot write"), atomic_write(tmp_path / "no" / "f"):
        pass
