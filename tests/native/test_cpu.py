"""The ISA levels that the library says it can use are those that the kernel's CPU flags allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgerun.backends.native.binding import host_arch, levels

FLAGS = {
    "sse2": {"sse2"},
    "avx2": {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"},
    "avxvnni": {"avx2", "fma", "avx_vnni"},
    "avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "avx512vnni": {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"},
    "neon": {"asimd"},
    "neon-dotprod": {"asimd", "asimddp", "asimdhp"},
    "neon-i8mm": {"asimd", "asimddp", "asimdhp", "i8mm"},
}


def test_levels_agree_with_the_kernel() -> None:
    if host_arch() not in ("x86_64", "aarch64"):
        pytest.skip("the flags in /proc/cpuinfo are listed for x86-64 and aarch64")
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next(line for line in lines if line.startswith(("flags", "Features"))).split(":")[1].split())
    names = [n for n, needed in FLAGS.items() if needed <= flags]
    assert levels() == [n for n in FLAGS if n in names]
