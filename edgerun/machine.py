"""This machine in our words."""

from __future__ import annotations

import platform

_NAMES = {"amd64": "x86_64", "arm64": "aarch64", "armv7l": "armv7", "armv8l": "armv7"}


def arch_name(machine: str) -> str:
    """What `uname -m` says, as targets and plans name it; as it is when it is none of ours."""
    return _NAMES.get(machine.lower(), machine.lower())


def host_arch() -> str:
    """The architecture of this machine."""
    return arch_name(platform.machine())
