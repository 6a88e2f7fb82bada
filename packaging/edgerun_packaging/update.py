"""Another model for a packed file: its plan is replaced, its executable part stays, the file before is kept."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from edgerun.errors import InputOutputError, UsageError
from edgerun.files import atomic_write
from edgerun.packed import assemble, map_plan, read_footer
from edgerun.plan import PlanReader
from edgerun_packaging.signing import signature_of, verify

SUFFIX = ".old"
"""Of the file that a rollback brings back."""


def update(path: Path, new: Path) -> None:
    """Give the packed file `path` the plan of the packed file `new`. The file is whole at any time, also when the power
    fails: the new one appears by a rename, the one before stays as `path`.old.

    A signed file takes only plans that the owner of its key signed; the signature comes along, and the demand to verify
    it at every start stays. Raises UsageError when
    architectures differ or the signature is missing or wrong, and what reading raises.
    """
    old_footer, new_footer = read_footer(path), read_footer(new)
    if old_footer.arch != new_footer.arch:
        raise UsageError(f"{new} is for {new_footer.arch}, {path} for {old_footer.arch}")
    plan = bytes(map_plan(new))
    PlanReader(plan)
    trusted, offered = signature_of(path), signature_of(new)
    if trusted is not None and not verify(new, key=trusted.key):
        state = "is not signed" if offered is None else "was not signed with the key of the installed model, or changed"
        raise UsageError(f"{new} {state}: the update is refused", hint=f"the key is {trusted.fingerprint}")
    if trusted is not None and offered is not None and trusted.required:
        offered = replace(offered, required=True)
    with path.open("rb") as file:
        stub = file.read(old_footer.stub_bytes)
    mode = path.stat().st_mode & 0o7777
    backup = path.with_name(path.name + SUFFIX)
    waiting = path.with_name(path.name + SUFFIX + ".new")
    waiting.unlink(missing_ok=True)
    try:
        os.link(path, waiting)
        waiting.replace(backup)
    except OSError as e:
        raise InputOutputError(f"cannot keep {path} as {backup}: {e.strerror}") from e
    with atomic_write(path, force=True, mode=mode) as target:
        for piece in assemble(stub, plan, old_footer.arch, offered.encode() if offered else b""):
            target.write(piece)
        target.flush()
        os.fsync(target.fileno())
    _sync_folder(path.parent)


def rollback(path: Path) -> None:
    """Bring back the file before the last update. Raises InputOutputError when there is none."""
    backup = path.with_name(path.name + SUFFIX)
    try:
        backup.replace(path)
    except OSError as e:
        raise InputOutputError(f"cannot bring {backup} back: {e.strerror}") from e
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
