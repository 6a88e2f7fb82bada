"""This machine in our words."""

from __future__ import annotations

import platform

_NAMES = {"amd64": "x86_64", "arm64": "aarch64", "armv7l": "armv7", "armv8l": "armv7"}


def host_arch() -> str:
    """The architecture's name as in targets and plans; the platform's own name when it is none of ours."""
    machine = platform.machine().lower()
    return _NAMES.get(machine, machine)
