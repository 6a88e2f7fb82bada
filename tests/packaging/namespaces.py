"""Root file systems of our own making for packed files: what the kernel tells is then ours to choose."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def unavailable(what: str) -> None:
    """Skips the test; in CI that is a failure."""
    if os.environ.get("EDGERUN_CI"):
        pytest.fail(what)
    pytest.skip(what)


def as_root() -> list[str]:
    """The prefix that makes a command root, in a user namespace where this process is not."""
    return [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]


def call_in_root(
    root: Path, model: Path, *words: str, files: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a copy of `model` in `root` by chroot, with `files` as the only other files: text by absolute path."""
    shutil.copy(model, root / "m")
    for path, text in (files or {}).items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    command = [*as_root(), "chroot", str(root), "/m", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.stderr.startswith(("unshare:", "chroot:")):
        unavailable(f"no chroot here: {done.stderr.strip()}")
    return done


def call_in_prison(model: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `model` in namespaces of its own: read-only root with nothing in it but the file, no /proc, no /sys, no
    network, a /tmp of 16 MB without execution."""
    script = """
set -e
root=$(mktemp -d)
mount -t tmpfs -o size=64m tmpfs "$root"
mkdir "$root/tmp"
cp "$1" "$root/m"
chmod 555 "$root/m"
mount -t tmpfs -o size=16m,noexec,nosuid,nodev tmpfs "$root/tmp"
mount -o remount,ro,size=64m "$root"
shift
exec chroot "$root" /m "$@"
"""
    namespaces = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--mount", "--net", "--ipc"]
    command = [*namespaces, "sh", "-c", script, "sh", str(model), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.stderr.startswith(("unshare:", "mount:", "sh:")):
        unavailable(f"no namespaces here: {done.stderr.strip()}")
    return done
