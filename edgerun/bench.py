"""Latency of a session on this machine: load, first run and steady runs apart.

The documents follow docs/bench.schema.json, as those of a packed file's `bench --json` do.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.clock import ClockWatch
from edgerun.machine import host_arch
from edgerun.session import Session

ROW_FIELDS = (
    "threads", "isa", "cold_ms", "first_ms", "runs", "min_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms", "mean_ms",
    "sd_ms", "per_second", "mhz_min", "mhz_max", "celsius_max", "throttled", "throttle_reasons", "rejected",
)  # fmt: skip
MEMORY_FIELDS = (
    "rss_peak_bytes", "rss_bytes", "rss_anonymous_bytes", "rss_file_bytes", "ram_predicted_bytes", "ram_error_percent",
    "parts",
)  # fmt: skip
LAYER_FIELDS = ("index", "node", "kernel", "us", "percent")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure. `runs` counts timed runs; when None, as many as fit into `seconds`."""

    runs: int | None = None
    seconds: float = 2.0
    warmup: int = 3
    allow_throttled: bool = False


def measure(
    open_session: Callable[[int], Session],
    inputs: Callable[[Session], Mapping[str, Any]],
    threads: Sequence[int],
    settings: Settings,
) -> list[dict[str, Any]]:
    """One row (ROW_FIELDS) for each thread count. `open_session(threads)` is timed as the cold start."""
    rows = []
    for count in threads:
        start = time.perf_counter()
        session = open_session(count)
        cold = time.perf_counter() - start
        arrays = inputs(session)
        first = _run(session, arrays)
        samples, clock = _steady(session, arrays, settings)
        isa = getattr(session.runner, "isa", None)
        row = {"threads": count, "isa": isa, "cold_ms": cold * 1e3, "first_ms": first * 1e3}
        rows.append(row | summarise(samples) | clock.result(allow_throttled=settings.allow_throttled))
    return rows


def _run(session: Session, arrays: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    session.run(arrays)
    return time.perf_counter() - start


def _steady(session: Session, arrays: Mapping[str, Any], settings: Settings) -> tuple[list[float], ClockWatch]:
    for _ in range(settings.warmup):
        session.run(arrays)
    clock = ClockWatch()
    samples: list[float] = []
    end = time.perf_counter() + settings.seconds
    while len(samples) < settings.runs if settings.runs else (len(samples) < 2 or time.perf_counter() < end):
        samples.append(_run(session, arrays))
        clock.sample_sometimes()
    clock.sample()
    return samples, clock


def summarise(samples: Sequence[float]) -> dict[str, Any]:
    """Statistics of run times in seconds."""
    ms = np.asarray(samples) * 1e3
    p50, p90, p99 = np.percentile(ms, (50, 90, 99))
    return {
        "runs": len(ms),
        "min_ms": float(ms.min()),
        "p50_ms": float(p50),
        "p90_ms": float(p90),
        "p99_ms": float(p99),
        "max_ms": float(ms.max()),
        "mean_ms": float(ms.mean()),
        "sd_ms": float(ms.std(ddof=1)) if len(ms) > 1 else 0.0,
        "per_second": float(1e3 / ms.mean()),
    }


def machine() -> dict[str, Any]:
    """What this machine is: the board's name in the device tree, else the CPU's; None where the system does not say."""
    board = _text("/proc/device-tree/model").rstrip("\0") or _text("/sys/firmware/devicetree/base/model").rstrip("\0")
    cpu = re.search(r"^(?:model name|Model)\s*: (.*)$", _text("/proc/cpuinfo"), re.MULTILINE)
    return {
        "name": board or (cpu.group(1) if cpu else None),
        "arch": host_arch(),
        "cores": cores(),
        "governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None,
        "kernel": platform.release(),
    }


def memory() -> dict[str, Any]:
    """Memory of this process in bytes, Python included; None where /proc does not say. Nothing is predicted for it."""
    status, rollup = _text("/proc/self/status"), _text("/proc/self/smaps_rollup")

    def field(text: str, key: str) -> int | None:
        match = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
        return int(match.group(1)) * 1024 if match else None

    peak, now = field(status, "VmHWM"), field(rollup, "Rss") or field(status, "VmRSS")
    return {
        "rss_peak_bytes": max(peak, now) if peak is not None and now is not None else peak,
        "rss_bytes": now,
        "rss_anonymous_bytes": field(status, "RssAnon"),
        "rss_file_bytes": field(status, "RssFile"),
        "ram_predicted_bytes": None,
        "ram_error_percent": None,
        "parts": [],
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def thread_counts(text: str | None) -> list[int]:
    """`4`, `1,2,4` or `sweep` (powers of two up to the cores, and the cores). ValueError for anything else."""
    if text is None:
        return [cores()]
    if text == "sweep":
        return sorted({2**i for i in range(cores().bit_length()) if 2**i <= cores()} | {cores()})
    parts = text.split(",")
    if not all(part.isdecimal() and 1 <= int(part) <= 1024 for part in parts):
        raise ValueError("thread counts are whole numbers from 1 to 1024")
    return [int(part) for part in parts]
