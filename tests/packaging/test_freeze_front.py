"""The start of a file of engine python: what it refuses, before CPython loads."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from edgerun.graph import Graph
from edgerun.packed import read_footer
from edgerun_packaging.freeze.build import freeze
from edgerun_packaging.freeze.front import RECORD
from edgerun_targets import load
from tests.packaging.conftest import HOST, call


@pytest.fixture(scope="module")
def file(digits: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("front") / "digits"
    freeze(digits, load(HOST), path)
    return path


@pytest.fixture
def changed(file: Path, tmp_path: Path) -> Callable[..., Path]:
    """changed(glibc=..., bytes=...): a copy with another record."""

    def make(glibc: tuple[int, int] = (2, 17), unpacked: int = 1) -> Path:
        data = bytearray(file.read_bytes())
        at = read_footer(file).stub_bytes - RECORD.size
        magic, bootloader, _, _, _ = RECORD.unpack_from(data, at)
        RECORD.pack_into(data, at, magic, bootloader, unpacked, *glibc)
        path = tmp_path / "changed"
        path.write_bytes(data)
        path.chmod(0o755)
        return path

    return make


def test_the_floor_is_that_of_the_contents_and_an_older_glibc_is_refused(
    file: Path, changed: Callable[..., Path]
) -> None:
    at = read_footer(file).stub_bytes - RECORD.size
    glibc = RECORD.unpack_from(file.read_bytes(), at)[3:]
    assert (2, 17) < glibc < (2, 60)
    done = call(changed(glibc=(9, 99)), "info")
    assert done.returncode == 3 and b"needs glibc 9.99 or newer, this system has 2." in done.stderr
    assert call(changed(glibc=(2, 17)), "--version").returncode == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [("noexec", "is mounted noexec"), ("size=4m", "are needed"), ("ro", "Read-only file system")],
)
def test_folders_that_cannot_be_unpacked_into(file: Path, tmp_path: Path, options: str, reason: str) -> None:
    script = f'mount -t tmpfs -o {options} tmpfs "$1" && TMPDIR="$1" exec "$2" info'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "-", str(tmp_path), str(file)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 5 and reason in done.stderr and "set TMPDIR" in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1


def test_all_usual_folders_without_room_are_named(file: Path) -> None:
    script = 'for d in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o size=1m tmpfs $d; done; exec "$1" info'
    copy = Path.home() / f".edgerun-front-test-{os.getpid()}"  # /tmp, where `file` is, is covered
    copy.write_bytes(file.read_bytes())
    copy.chmod(0o755)
    try:
        words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "-", str(copy)]
        environment = {k: v for k, v in os.environ.items() if k != "TMPDIR"}
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
    finally:
        copy.unlink()
    assert done.returncode == 5 and all(d in done.stderr for d in ("/tmp", "/var/tmp", "/dev/shm")), done.stderr


def test_a_temporary_folder_that_is_not_there(file: Path) -> None:
    done = subprocess.run([file, "info"], capture_output=True, env={"TMPDIR": "/nowhere"})
    assert done.returncode == 5 and b"$TMPDIR: /nowhere: No such file" in done.stderr


def test_truncated_and_damaged_files(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    broken = tmp_path / "broken"
    at = read_footer(file).stub_bytes - RECORD.size
    for content in (data[: len(data) // 2], data[:-1], data[:at] + bytes(RECORD.size) + data[at + RECORD.size :]):
        broken.write_bytes(content)
        broken.chmod(0o755)
        done = call(broken, "info")
        assert done.returncode == 5 and done.stderr.count(b"\n") == 1


def test_paths_with_spaces_and_links(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "my model").symlink_to(file)
    assert call(folder / "my model", "selftest").returncode == 0
