"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from edgerun.errors import InputOutputError


@contextlib.contextmanager
def atomic_write(path: Path, *, force: bool = False, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """A file object whose content becomes `path` when the block ends without an error, Ctrl-C included.

    Raises InputOutputError when `path` exists and `force` is false, or cannot be written.
    """
    if path.exists() and not force:
        raise InputOutputError(f"{path} exists already", hint="use --force to replace it, or -o for another name")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as e:
        raise InputOutputError(f"cannot write {path}: {e.strerror}") from e
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as e:
        temporary.unlink(missing_ok=True)
        raise InputOutputError(f"cannot write {path}: {e.strerror}") from e
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
