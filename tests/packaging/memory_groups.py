"""A memory limit that the kernel enforces on a child: by a cgroup of version 1 or 2, whichever may be made here."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def _candidates() -> Iterator[tuple[Path, str]]:
    """Folders in which a group may be made, and the file that holds its limit: inside this process's own groups."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
        elif number == "0" and not controllers:
            yield ROOT / path.lstrip("/"), "memory.max"


@contextlib.contextmanager
def limited_group(limit: int) -> Iterator[Path | None]:
    """A new group with `limit` bytes, None where none can be made. Write a process number to its cgroup.procs."""
    made = None
    for folder, name in _candidates():
        group = folder / f"edgerun-{uuid.uuid4().hex[:8]}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / name).exists():
            with contextlib.suppress(OSError):
                (group / name).write_text(str(limit))
                made = group
                break
        with contextlib.suppress(OSError):
            group.rmdir()
    try:
        yield made
    finally:
        if made is not None:
            made.rmdir()


def enter(group: Path) -> None:
    """Move this process there: for subprocess's preexec_fn."""
    (group / "cgroup.procs").write_text(str(os.getpid()))
