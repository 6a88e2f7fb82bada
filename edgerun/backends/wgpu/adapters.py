"""Which GPU is used, and why not another.

A driver can pretend: without a GPU, Vulkan's lavapipe and OpenGL's llvmpipe compute on the CPU, slower than the native
backend does. Such adapters are never chosen unless asked for, and OpenGL is not asked at all.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

from edgerun.errors import BackendUnavailable

PROBE_SECONDS = 20
"""A loader or driver that hangs is given up after this time."""
REMEDY = "install the GPU's Vulkan driver, or use --backend native"
INSTANCES = {"darwin": ("Metal",), "win32": ("DX12", "Vulkan")}
_ORDER = {"DiscreteGPU": 0, "IntegratedGPU": 1, "VirtualGPU": 2, "CPU": 3}


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter as the system reports it. `refusal`: why it is not used, empty when it can be."""

    name: str
    kind: str
    api: str
    driver: str
    refusal: str = ""


def judge(name: str, kind: str, api: str, driver: str, *, allow_software: bool) -> Adapter:
    """An adapter with the reason for not using it."""
    refusal = ""
    if api in ("OpenGL", "OpenGLES", "Null"):
        refusal = f"{api} adapters are not used: Vulkan, Metal and D3D12 are"
    elif kind == "CPU" and not allow_software:
        refusal = "this is a program on the CPU, slower than --backend native; --allow-software-adapter uses it"
    return Adapter(name, kind, api, driver, refusal)


def listed(*, allow_software: bool = False) -> list[Adapter]:
    """All adapters, found by a child process, so that a broken driver can neither crash nor hang this one.

    Raises BackendUnavailable when the package is missing or the child fails.
    """
    if importlib.util.find_spec("wgpu") is None:
        raise BackendUnavailable("the package wgpu is not installed", hint="pip install 'edgerun[wgpu]'")
    command = [sys.executable, "-m", "edgerun.backends.wgpu.adapters"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        message = f"asking for GPUs took more than {PROBE_SECONDS} s: a driver hangs"
        raise BackendUnavailable(message, hint=REMEDY) from None
    if done.returncode:
        words = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise BackendUnavailable(f"asking for GPUs failed: {words[:200]}", hint=REMEDY)
    rows = json.loads(done.stdout.splitlines()[-1])
    return [judge(*row, allow_software=allow_software) for row in rows]


@functools.cache
def _instance() -> Any:
    """The package wgpu, which asks for adapters of Vulkan, Metal or Direct3D 12 alone."""
    import wgpu
    from wgpu.backends.wgpu_native.extras import set_instance_extras

    # Without a display the window-system part of a driver complains on standard error when this is not set.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    set_instance_extras(backends=INSTANCES.get(sys.platform, ("Vulkan",)))
    return wgpu.gpu


@functools.cache
def choose(*, allow_software: bool = False) -> Any:
    """The best usable adapter (wgpu.GPUAdapter): discrete, then integrated, then virtual, then software.

    Raises BackendUnavailable, naming every adapter and why it is not used.
    """
    found = listed(allow_software=allow_software)
    usable = [a for a in found if not a.refusal]
    if not usable:
        reasons = "; ".join(f"{a.name} ({a.api}): {a.refusal}" for a in found) or "the system reports no adapter"
        raise BackendUnavailable(f"there is no GPU that wgpu can use: {reasons}", hint=REMEDY)
    best = min(usable, key=lambda a: _ORDER.get(a.kind, 4))
    for adapter in _instance().enumerate_adapters_sync():
        info = adapter.info
        if (info["device"], info["adapter_type"], info["backend_type"]) == (best.name, best.kind, best.api):
            return adapter
    raise BackendUnavailable(f"the adapter {best.name} went away", hint=REMEDY)


def main() -> None:
    """The child: one line of JSON, a list of [name, type, API, driver]."""
    rows = []
    for adapter in _instance().enumerate_adapters_sync():
        info = adapter.info
        rows.append([info["device"], info["adapter_type"], info["backend_type"], info.get("description", "")])
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
