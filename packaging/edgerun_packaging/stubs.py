"""The prebuilt files that plans are put into, for each architecture: executable, shared library, static library.

One is up to date when the key stored beside it equals the hash of its sources. They live next to this module; where
that is read-only, in the user's cache folder. `python -m edgerun_packaging.stubs ARCH...` builds them.
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
KINDS = {"executable": "launcher", "shared": "library", "static": "library", "wasm": "library"}
"""What can be built, and the folder of C sources that it adds to the runtime."""
_NAMES = {"executable": "stub-{}", "shared": "library-{}.so", "static": "library-{}.a", "wasm": "library-{}.wasm"}
_SUFFIXES = (".c", ".h", ".def", ".map")


def _folders() -> list[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return [Path(__file__).parent / "stubs", cache / "edgerun" / "stubs"]


@lru_cache(maxsize=len(KINDS))
def source_key(kind: str = "executable") -> str:
    """SHA-256 over the names and bytes of all C sources of a kind, and over how they are compiled."""
    digest = hashlib.sha256(Path(__file__).with_name("zig.py").read_bytes())
    roots = [Path(str(files("edgerun.backends.native") / "csrc")), Path(__file__).parent / KINDS[kind]]
    for root in roots:
        for path in sorted(p for p in root.rglob("*") if p.suffix in _SUFFIXES):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def available() -> dict[str, Path | None]:
    """For each architecture the up-to-date stub, or None."""
    return {arch: _current(arch, "executable") for arch in ARCHES}


def _current(arch: str, kind: str) -> Path | None:
    name = _NAMES[kind].format(arch)
    for folder in _folders():
        file, key = folder / name, folder / f"{name}.key"
        if file.exists() and key.exists() and key.read_text().strip() == source_key(kind):
            return file
    return None


def find(arch: str, kind: str = "executable") -> Path:
    """The prebuilt file for `arch`, built now when it is missing or older than its sources.

    Raises UsageError for an unknown architecture, BackendUnavailable when it would have to be built and there is no
    compiler.
    """
    if arch not in ARCHES and (arch, kind) != ("wasm32", "wasm"):
        raise UsageError(f"there is no stub for {arch!r}", hint="one of " + ", ".join(ARCHES))
    return _current(arch, kind) or build(arch, kind)


def build(arch: str, kind: str = "executable") -> Path:
    """Compile it and return its path. Raises BackendUnavailable when ziglang is not installed."""
    name = _NAMES[kind].format(arch)
    if importlib.util.find_spec("ziglang") is None:
        raise BackendUnavailable(
            f"{name} is not built, and the compiler is not installed", hint="pip install 'edgerun[host]'"
        )
    from edgerun_packaging import zig

    builders = {
        "executable": zig.build_stub,
        "shared": zig.build_shared_model,
        "static": zig.build_static_model,
        "wasm": zig.build_wasm_model,
    }
    folder = next((f for f in _folders() if _writable(f)), None)
    if folder is None:
        raise BackendUnavailable(f"no folder for {name} is writable", hint="set XDG_CACHE_HOME")
    final, temporary = folder / name, folder / f".{name}.{os.getpid()}"
    try:
        builders[kind](arch, temporary)
        temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
    (folder / f"{name}.key").write_text(source_key(kind) + "\n")
    return final


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def main(arguments: Sequence[str]) -> int:
    """Build what is named: ARCH, or ARCH:KIND (default: all executables). Prints path and size of each."""
    for word in arguments or ARCHES:
        arch, _, kind = word.partition(":")
        try:
            if kind and kind not in KINDS:
                raise UsageError(f"there is no kind {kind!r}", hint="one of " + ", ".join(KINDS))
            path = find(arch, kind or "executable")
        except EdgerunError as e:
            print(f"edgerun_packaging.stubs: {e}", file=sys.stderr)
            return e.exit_code
        print(f"{arch:<8} {path.stat().st_size:>9} bytes  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
