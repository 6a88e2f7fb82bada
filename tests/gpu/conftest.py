"""The adapter that the tests of the GPU backends use."""

from __future__ import annotations

import os

import pytest

from edgerun.backends.wgpu import adapters
from edgerun.errors import BackendUnavailable


@pytest.fixture(scope="session", autouse=True)
def adapter() -> None:
    """Skips where wgpu finds no adapter at all, not even one in software; in CI that is a failure."""
    try:
        adapters.choose(allow_software=True)
    except BackendUnavailable as e:
        if os.environ.get("EDGERUN_CI"):
            pytest.fail(f"{e} (apt install mesa-vulkan-drivers)")
        pytest.skip(str(e))
