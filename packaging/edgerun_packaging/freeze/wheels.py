"""Python packages for the target: wheels fetched by pip, kept in the cache, unpacked once."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from edgerun.errors import BackendUnavailable
from edgerun_packaging.freeze.cache import cache_folder, once
from edgerun_packaging.freeze.target_python import VERSION

NEWEST_GLIBC = 28
"""Wheels for glibc 2.28 (Debian 10, 2018) and older are taken."""


def wheel(requirement: str, arch: str) -> tuple[Path, str]:
    """The unpacked wheel of `requirement` ("numpy==2.4.6") for `arch`, and the wheel's file name.

    Raises BackendUnavailable with pip's message when it is neither in the cache nor downloaded.
    """
    folder = cache_folder() / f"wheels-{arch}-{VERSION}" / requirement.replace("==", "-")
    once(folder, lambda work: _download(requirement, arch, work))
    name = next((folder / "wheel").glob("*.whl")).name
    return folder / "site", name


def _download(requirement: str, arch: str, work: Path) -> None:
    platforms = [f"manylinux_2_{minor}_{arch}" for minor in range(NEWEST_GLIBC, 16, -1)]
    platforms += [f"manylinux2014_{arch}", f"manylinux2010_{arch}", f"manylinux1_{arch}"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--implementation", "cp", "--python-version", VERSION]
    command += [word for p in platforms for word in ("--platform", p)]
    done = subprocess.run(
        [*command, "--dest", str(work / "wheel"), requirement], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr.strip()]
        raise BackendUnavailable(
            f"{requirement} for {arch} cannot be downloaded: {lines[-1][:300]}",
            hint="connect once; later it comes from the cache",
        )
    with zipfile.ZipFile(next((work / "wheel").glob("*.whl"))) as archive:
        archive.extractall(work / "site")
