"""The folder of downloads, and files that appear in it whole or not at all."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/edgerun/freeze; what is in it is used without a network."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgerun" / "freeze"


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, filled by `make(temporary folder)` when it is not there yet. Safe among several processes."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as work:
        made = Path(work) / "made"
        made.mkdir()
        make(made)
        try:
            made.rename(folder)
        except OSError:  # another process was quicker
            if not folder.exists():
                raise
    return folder


def sha256(path: Path) -> str:
    """The file's SHA-256, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
