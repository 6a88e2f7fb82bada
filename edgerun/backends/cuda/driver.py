"""NVIDIA's driver library by ctypes: all that a board needs to run CUDA kernels."""

from __future__ import annotations

import ctypes as c
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np

from edgerun.errors import BackendUnavailable

REMEDY = "install NVIDIA's driver, or use --backend native"
PROBE_SECONDS = 20
"""A driver that hangs is given up after this time."""
_NAMES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")


def probe() -> str:
    """The name of the device, found by a child process, so that a broken driver can neither crash nor hang this one.

    Raises BackendUnavailable with the reason when there is none.
    """
    try:
        command = [sys.executable, "-m", "edgerun.backends.cuda.driver"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        message = f"asking for CUDA devices took more than {PROBE_SECONDS} s: the driver hangs"
        raise BackendUnavailable(message, hint=REMEDY) from None
    if done.returncode:
        words = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise BackendUnavailable(words[:200], hint=REMEDY)
    return done.stdout.strip()


@cache
def device() -> Device:
    """The first CUDA device. Raises BackendUnavailable when there is none."""
    return Device()


class Device:
    """One GPU with its primary context and a stream. Handles are freed with the process."""

    def __init__(self) -> None:
        self.lib = self._load()
        self.check(self.lib.cuInit(0), "cuInit")
        count = c.c_int()
        self.check(self.lib.cuDeviceGetCount(c.byref(count)), "cuDeviceGetCount")
        if not count.value:
            raise BackendUnavailable("NVIDIA's driver is installed, but it reports no GPU", hint=REMEDY)
        number, context, self.stream = c.c_int(), c.c_void_p(), c.c_void_p()
        self.check(self.lib.cuDeviceGet(c.byref(number), 0), "cuDeviceGet")
        name = c.create_string_buffer(100)
        self.check(self.lib.cuDeviceGetName(name, 100, number), "cuDeviceGetName")
        self.name = name.value.decode()
        self.check(self.lib.cuDevicePrimaryCtxRetain(c.byref(context), number), "cuDevicePrimaryCtxRetain")
        self.check(self.lib.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        self.check(self.lib.cuStreamCreate(c.byref(self.stream), 1), "cuStreamCreate")
        self.lib.cuLaunchKernel.argtypes = [c.c_void_p, *[c.c_uint] * 7, c.c_void_p, c.c_void_p, c.c_void_p]
        self.lib.cuGraphLaunch.argtypes = [c.c_void_p, c.c_void_p]

    @staticmethod
    def _load() -> Any:
        for name in _NAMES:
            try:
                return c.CDLL(name)
            except OSError:
                continue
        raise BackendUnavailable("NVIDIA's driver library (libcuda) is not installed", hint=REMEDY)

    def check(self, status: int, what: str) -> None:
        """Raises BackendUnavailable with the driver's name for a failure."""
        if status:
            name = c.c_char_p()
            self.lib.cuGetErrorName(status, c.byref(name))
            raise BackendUnavailable(f"{what} failed: {(name.value or b'').decode() or status}", hint=REMEDY)

    def take(self, size: int) -> int:
        """Memory of the GPU, as an address."""
        address = c.c_uint64()
        self.check(self.lib.cuMemAlloc_v2(c.byref(address), c.c_size_t(size)), f"cuMemAlloc of {size} bytes")
        return address.value

    def give(self, address: int) -> None:
        """Free memory."""
        self.lib.cuMemFree_v2(c.c_uint64(address))

    def upload(self, address: int, data: np.ndarray) -> None:
        """Copy a contiguous array to the GPU, in the order of the stream."""
        pointer = data.ctypes.data_as(c.c_void_p)
        self.synchronize()
        self.check(self.lib.cuMemcpyHtoD_v2(c.c_uint64(address), pointer, c.c_size_t(data.nbytes)), "cuMemcpyHtoD")

    def download(self, address: int, count: int) -> bytes:
        """Bytes of the GPU, after all that the stream holds."""
        self.synchronize()
        data = c.create_string_buffer(count)
        self.check(self.lib.cuMemcpyDtoH_v2(data, c.c_uint64(address), c.c_size_t(count)), "cuMemcpyDtoH")
        return data.raw

    def synchronize(self) -> None:
        """Wait for the stream."""
        self.check(self.lib.cuStreamSynchronize(self.stream), "cuStreamSynchronize")

    def function(self, ptx: bytes) -> c.c_void_p:
        """The kernel `kernel_main` of a PTX module."""
        module, function = c.c_void_p(), c.c_void_p()
        self.check(self.lib.cuModuleLoadData(c.byref(module), ptx), "cuModuleLoadData")
        self.check(self.lib.cuModuleGetFunction(c.byref(function), module, b"kernel_main"), "cuModuleGetFunction")
        return function

    def launch(self, function: c.c_void_p, groups: tuple[int, int, int], threads: int, addresses: list[int]) -> None:
        """Add a kernel to the stream."""
        values = [c.c_uint64(a) for a in addresses]
        pointers = (c.c_void_p * len(values))(*[c.cast(c.pointer(v), c.c_void_p) for v in values])
        status = self.lib.cuLaunchKernel(function, *groups, threads, 1, 1, 0, self.stream, pointers, None)
        self.check(status, "cuLaunchKernel")

    def begin_graph(self) -> None:
        """From here on, launches are recorded."""
        self.check(self.lib.cuStreamBeginCapture_v2(self.stream, 0), "cuStreamBeginCapture")

    def end_graph(self) -> c.c_void_p:
        """What was recorded, ready to be replayed."""
        graph, ready = c.c_void_p(), c.c_void_p()
        self.check(self.lib.cuStreamEndCapture(self.stream, c.byref(graph)), "cuStreamEndCapture")
        status = self.lib.cuGraphInstantiateWithFlags(c.byref(ready), graph, c.c_ulonglong(0))
        self.check(status, "cuGraphInstantiate")
        return ready

    def replay(self, graph: c.c_void_p) -> None:
        """Run a recorded graph in the order of the stream."""
        self.check(self.lib.cuGraphLaunch(graph, self.stream), "cuGraphLaunch")


def main() -> int:
    """The child: the name of the device, or the reason on standard error and exit status 3."""
    try:
        print(device().name)
    except BackendUnavailable as e:
        print(e.message, file=sys.stderr)
        return e.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
