"""Calling packed files as processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from edgerun.errors import BackendUnavailable, EdgerunError
from edgerun.machine import host_arch
from edgerun.packed import read_footer


def run_packed(model: str, verb: str, arguments: list[str]) -> Any:
    """Call a packed file with --json (through qemu for another architecture) and return its document.

    Raises BackendUnavailable when it cannot run here, EdgerunError with its own message when it fails.
    """
    arch, here = read_footer(model).arch, host_arch()
    prefix: list[str] = []
    if arch != here:
        name = {"armv7": "arm"}.get(arch, arch)
        emulator = shutil.which(f"qemu-{name}") or shutil.which(f"qemu-{name}-static")
        if emulator is None:
            raise BackendUnavailable(
                f"{model} is for {arch}, this machine is {here}", hint="run it on the board, or apt install qemu-user"
            )
        prefix = [emulator]
    path = Path(model).absolute()
    done = subprocess.run([*prefix, str(path), verb, "--json", *arguments], capture_output=True, text=True)
    return document_of(done, path.name, model)


def document_of(done: subprocess.CompletedProcess[str], program: str, what: str) -> Any:
    """The JSON that a packed file printed. Its messages beside a negative result are passed on to standard error.

    Raises EdgerunError with the message and exit code of the file when it failed.
    """
    messages = [line.removeprefix(f"{program}: ") for line in done.stderr.strip().splitlines()]
    if done.returncode not in (0, 1) or not done.stdout.strip():
        error = EdgerunError("\n".join(messages) or f"{what} died")
        error.exit_code = done.returncode if done.returncode > 0 else 70
        raise error
    for message in messages:
        print(f"edgerun: {message}", file=sys.stderr)
    return json.loads(done.stdout)
