"""The prebuilt executables that plans are appended to: one static file for each architecture.

A stub is up to date when the key stored beside it equals the hash of the C sources. Stubs live next to this module;
where that is read-only, in the user's cache folder. `python -m edgerun_packaging.stubs ARCH...` builds them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from edgerun.errors import BackendUnavailable, EdgerunError, UsageError

ARCHES = ("aarch64", "armv7", "riscv64", "x86_64")
_SUFFIXES = (".c", ".h", ".def")


def _folders() -> list[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [Path(__file__).parent / "stubs", cache / "edgerun" / "stubs"]


@lru_cache(maxsize=1)
def source_key() -> str:
    """SHA-256 over the names and bytes of all C sources of runtime and launcher."""
    digest = hashlib.sha256()
    roots = [Path(str(files("edgerun.backends.native") / "csrc")), Path(__file__).parent / "launcher"]
    for root in roots:
        for path in sorted(p for p in root.rglob("*") if p.suffix in _SUFFIXES):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def available() -> dict[str, Path | None]:
    """For each architecture the up-to-date stub, or None."""
    return {arch: _current(arch) for arch in ARCHES}


def _current(arch: str) -> Path | None:
    for folder in _folders():
        stub, key = folder / f"stub-{arch}", folder / f"stub-{arch}.key"
        if stub.exists() and key.exists() and key.read_text().strip() == source_key():
            return stub
    return None


def find(arch: str) -> Path:
    """The stub for `arch`, built now when it is missing or older than its sources.

    Raises BackendUnavailable when it would have to be built and there is no compiler.
    """
    if arch not in ARCHES:
        raise UsageError(f"there is no stub for {arch!r}", hint="one of " + ", ".join(ARCHES))
    return _current(arch) or build(arch)


def build(arch: str) -> Path:
    """Compile the stub for `arch` and return its path. Raises BackendUnavailable when ziglang is not installed."""
    if importlib.util.find_spec("ziglang") is None:
        raise BackendUnavailable(
            f"the stub for {arch} is not built, and the compiler is not installed", hint="pip install 'edgerun[host]'"
        )
    from edgerun_packaging.zig import build_stub

    folder = next((f for f in _folders() if _writable(f)), None)
    if folder is None:
        raise BackendUnavailable(f"no folder for the stub of {arch} is writable", hint="set XDG_CACHE_HOME")
    final, temporary = folder / f"stub-{arch}", folder / f".stub-{arch}.{os.getpid()}"
    try:
        build_stub(arch, temporary)
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
    (folder / f"stub-{arch}.key").write_text(source_key() + "\n")
    return final


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def main(arguments: Sequence[str]) -> int:
    """Build the stubs named (default: all); prints path and size of each."""
    for arch in arguments or ARCHES:
        try:
            path = find(arch)
        except EdgerunError as e:
            print(f"edgerun_packaging.stubs: {e}", file=sys.stderr)
            return e.exit_code
        print(f"{arch:<8} {path.stat().st_size:>9} bytes  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
