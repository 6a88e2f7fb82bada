"""CPython for the target: Debian's packages, or a folder of the user's (an unpacked python-build-standalone).

Debian packages are downloaded by apt with a configuration of its own (no root, nothing of the host changes), which
checks Debian's signature and the checksum of every package; their SHA-256 goes into the packed file's manifest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgerun.errors import BackendUnavailable, InputOutputError, UnsupportedError, UsageError
from edgerun_packaging.freeze.cache import cache_folder, once, sha256

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Of the host's Python. Byte code is made by it, so the target's has the same minor version."""
SUITES = {"3.11": "bookworm", "3.13": "trixie"}
"""The Debian release that ships each minor version."""
MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
TRIPLETS = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}


@dataclass(frozen=True, slots=True)
class TargetPython:
    """Where the parts of a CPython are."""

    arch: str
    shared_library: Path
    standard_library: Path
    extensions: Path
    """The folder lib-dynload."""
    libraries: tuple[Path, ...]
    """Folders in which the shared libraries it needs are looked up."""
    origin: dict[str, str] = field(default_factory=dict)
    """What it was made from, for the manifest: file name to SHA-256."""


def find(arch: str, root: Path | None = None) -> TargetPython:
    """CPython of this Python's minor version for `arch`, from `root` or else from Debian.

    Raises UsageError when `root` holds none, UnsupportedError where Debian has no such version, BackendUnavailable
    when it must be downloaded and cannot be.
    """
    if arch not in ARCHITECTURES:
        raise UnsupportedError(
            f"engine python does not support {arch}", hint="x86_64 and aarch64 are possible, or --engine native"
        )
    if root is None:
        root, origin = debian(arch)
    else:
        origin = {"python_root": root.name}
    return locate(arch, root, origin)


def locate(arch: str, root: Path, origin: dict[str, str] | None = None) -> TargetPython:
    """The parts of the CPython below `root`: a sysroot, or the folder `python` of python-build-standalone."""
    folders = [root / "lib", root / "usr" / "lib", *(root / p / TRIPLETS[arch] for p in ("lib", "usr/lib"))]
    folders += [root / "install" / "lib"]
    shared = next((p for f in folders if (p := f / f"libpython{VERSION}.so.1.0").exists()), None)
    standard = next((p for f in folders if (p := f / f"python{VERSION}" / "os.py").exists()), None)
    if shared is None or standard is None:
        missing = f"libpython{VERSION}.so.1.0" if shared is None else f"python{VERSION}/os.py"
        raise UsageError(
            f"{root} holds no CPython {VERSION}: there is no lib/{missing}",
            hint="give --python-root the folder above lib/, of a build with a shared library",
        )
    standard = standard.parent
    present = tuple(f for f in folders if f.is_dir())
    return TargetPython(arch, shared, standard, standard / "lib-dynload", present, origin or {})


def packages() -> list[str]:
    """The Debian packages: CPython and the libraries it and NumPy need, but no libc."""
    python = [f"libpython{VERSION}{part}" for part in ("", "-minimal", "-stdlib")]
    return [*python, "zlib1g", "libexpat1", "libffi8", "libstdc++6", "libgcc-s1"]


def debian(arch: str) -> tuple[Path, dict[str, str]]:
    """The unpacked Debian packages, and their checksums by file name."""
    if VERSION not in SUITES:
        raise UnsupportedError(
            f"Debian has no packages of Python {VERSION} that edgerun knows",
            hint="use Python " + " or ".join(SUITES) + ", or --python-root with python-build-standalone",
        )
    return sysroot(arch, packages())


def sysroot(arch: str, names: Sequence[str]) -> tuple[Path, dict[str, str]]:
    """A folder with Debian packages of `arch` unpacked, and the packages' SHA-256 by file name.

    Downloads them once; raises BackendUnavailable with apt's message when that fails.
    """
    suite = SUITES[VERSION]
    digest = "-".join(n.removeprefix("lib") for n in names)
    folder = cache_folder() / f"debian-{suite}-{ARCHITECTURES[arch]}" / digest[:100]
    once(folder, lambda work: _download(arch, suite, names, work))
    origin = {p.name: sha256(p) for p in sorted((folder / "packages").glob("*.deb"))}
    return folder / "root", origin


def _download(arch: str, suite: str, names: Sequence[str], work: Path) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise BackendUnavailable(
                f"CPython for {arch} comes as Debian packages, and {tool} is not installed",
                hint="give --python-root DIR (python-build-standalone, unpacked)",
            )
    if not KEYRING.exists():
        raise BackendUnavailable(
            f"{KEYRING} is missing: packages could not be checked", hint="apt install debian-archive-keyring"
        )
    state = work / "apt"
    for name in ("lists/partial", "cache/archives/partial", "etc/sources.list.d", "etc/preferences.d"):
        (state / name).mkdir(parents=True)
    (state / "status").touch()
    lines = [f"deb [signed-by={KEYRING}] {MIRROR} {suite} main"]
    lines += [f"deb [signed-by={KEYRING}] {MIRROR}-security {suite}-security main"]
    (state / "etc" / "sources.list").write_text("\n".join(lines) + "\n")
    (state / "apt.conf").write_text(
        f'APT::Architecture "{ARCHITECTURES[arch]}";\nAPT::Architectures {{ "{ARCHITECTURES[arch]}"; }};\n'
        f'Dir::State "{state}";\nDir::State::status "{state}/status";\nDir::State::lists "{state}/lists";\n'
        f'Dir::Cache "{state}/cache";\nDir::Etc "{state}/etc";\nDir::Etc::sourceparts "{state}/etc/sources.list.d";\n'
        'APT::Sandbox::User "";\nAcquire::Languages "none";\nAcquire::Retries "3";\n'
        'Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";\n'
    )
    packages_folder = work / "packages"
    packages_folder.mkdir()
    _apt(state, ["update", "-q"], work)
    _apt(state, ["download", "-q", *names], packages_folder)
    for package in sorted(packages_folder.glob("*.deb")):
        done = subprocess.run(["dpkg-deb", "-x", str(package), str(work / "root")], capture_output=True, text=True)
        if done.returncode:
            raise InputOutputError(f"cannot unpack {package.name}: {done.stderr.strip()}")
    shutil.rmtree(state)


def _apt(state: Path, arguments: list[str], folder: Path) -> None:
    environment = {**os.environ, "APT_CONFIG": str(state / "apt.conf"), "LC_ALL": "C"}
    done = subprocess.run(["apt-get", *arguments], capture_output=True, text=True, env=environment, cwd=folder)
    errors = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:"))]
    if done.returncode or any("Failed to fetch" in line for line in errors):
        raise BackendUnavailable(
            "the target's CPython cannot be downloaded: " + "; ".join(errors or ["apt-get failed"])[:600],
            hint="connect once (later it comes from the cache), or give --python-root",
        )
