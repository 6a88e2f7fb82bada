"""Measuring on a board over ssh: the packed file goes there through the connection that starts it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

from edgerun.cli.launch import document_of
from edgerun.errors import BackendUnavailable, InputOutputError, UsageError

_SCRIPT = """
d=$(mktemp -d {folder}/edgerun.XXXXXX) || exit 5
trap 'rm -rf "$d"' EXIT
trap 'exit 130' HUP INT TERM
cat >"$d/{name}" && chmod 700 "$d/{name}" || exit 5
"$d/{name}" bench --json {arguments}
"""
"""Needs nothing but a shell, mktemp, cat, chmod and rm. No scp: small boards often lack its server side."""


def architecture(host: str) -> str:
    """What `uname -m` says on the board, in our words. Raises BackendUnavailable when it cannot be reached."""
    from edgerun.machine import arch_name

    done = subprocess.run([*_ssh(host), "uname -m"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise BackendUnavailable(f"cannot reach {host}: {_last_line(done.stderr)}", hint=f"try `ssh {host}` by hand")
    return arch_name(done.stdout.strip())


def bench(host: str, packed: Path, arguments: list[str], *, folder: str = "/tmp") -> dict[str, Any]:
    """Copy `packed` into a new folder inside `folder` on the board, run its bench, remove it, return the document.

    Raises BackendUnavailable when the board cannot be reached or cannot run the file, EdgerunError with the message
    and exit code of the file otherwise.
    """
    script = _SCRIPT.format(
        folder=shlex.quote(folder), name="model", arguments=" ".join(shlex.quote(a) for a in arguments)
    ).strip()
    try:
        with packed.open("rb") as file:
            done = subprocess.run(
                [*_ssh(host), f"sh -c {shlex.quote(script)}"], stdin=file, capture_output=True, text=True
            )
    except OSError as e:
        raise InputOutputError(f"cannot read {packed}: {e.strerror or e}") from e
    if done.returncode == 255:
        raise BackendUnavailable(f"cannot reach {host}: {_last_line(done.stderr)}", hint=f"try `ssh {host}` by hand")
    if done.returncode in (126, 127):
        raise BackendUnavailable(
            f"{host} cannot run {packed}: {_last_line(done.stderr)}",
            hint="pack it for the board's architecture, and give --remote-dir where files may be executed",
        )
    if done.returncode == 5 and not done.stderr.startswith("model: "):
        raise InputOutputError(f"cannot copy to {host}:{folder}: {_last_line(done.stderr)}", hint="give --remote-dir")
    return document_of(done, "model", f"{packed} on {host}")


def _ssh(host: str) -> list[str]:
    program = shutil.which("ssh")
    if program is None:
        raise BackendUnavailable("ssh is not installed", hint="apt install openssh-client")
    if not host or host.startswith("-"):
        raise UsageError(f"{host!r} is no host", hint="write --ssh user@board")
    return [program, host]


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it gave no reason"
