"""Latency of a session on this machine: load, first run and steady runs apart.

The field names are those that a packed file's `bench --json` prints.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.session import Session

ROW_FIELDS = (
    "threads", "isa", "cold_ms", "first_ms", "runs", "min_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms", "mean_ms",
    "sd_ms", "per_second", "mhz", "celsius", "throttled",
)  # fmt: skip
MEMORY_FIELDS = ("rss_peak_bytes", "rss_anonymous_bytes", "rss_file_bytes", "ram_predicted_bytes")
LAYER_FIELDS = ("index", "node", "kernel", "us", "percent")


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure. `runs` counts timed runs; when None, as many as fit into `seconds`."""

    runs: int | None = None
    seconds: float = 2.0
    warmup: int = 3


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
        samples = _steady(session, arrays, settings)
        isa = getattr(session.runner, "isa", None)
        rows.append({"threads": count, "isa": isa, "cold_ms": cold * 1e3, "first_ms": first * 1e3} | summarise(samples))
    return rows


def _run(session: Session, arrays: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    session.run(arrays)
    return time.perf_counter() - start


def _steady(session: Session, arrays: Mapping[str, Any], settings: Settings) -> list[float]:
    for _ in range(settings.warmup):
        session.run(arrays)
    samples: list[float] = []
    end = time.perf_counter() + settings.seconds
    while len(samples) < settings.runs if settings.runs else (len(samples) < 2 or time.perf_counter() < end):
        samples.append(_run(session, arrays))
    return samples


def summarise(samples: Sequence[float]) -> dict[str, Any]:
    """Statistics of run times in seconds, and the state of the clock afterwards."""
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
    } | clock_state()


def clock_state() -> dict[str, Any]:
    """Fastest core's clock, hottest zone, throttle word of a Raspberry Pi; None where /sys does not say."""
    clocks = _numbers("/sys/devices/system/cpu", "cpu[0-9]*/cpufreq/scaling_cur_freq")
    zones = _numbers("/sys/class/thermal", "thermal_zone*/temp")
    throttled = Path("/sys/devices/platform/soc/soc:firmware/get_throttled")
    return {
        "mhz": max(clocks) / 1000 if clocks else None,
        "celsius": max(zones) / 1000 if zones else None,
        "throttled": int(throttled.read_text(), 16) if throttled.exists() else None,
    }


def _numbers(folder: str, pattern: str) -> list[float]:
    found = []
    for path in Path(folder).glob(pattern):
        try:
            found.append(float(path.read_text()))
        except (OSError, ValueError):
            continue
    return found


def memory() -> dict[str, int | None]:
    """Memory of this process in bytes, Python included; None where /proc does not say."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        status = ""

    def field(key: str) -> int | None:
        match = re.search(rf"^{key}:\s+(\d+) kB", status, re.MULTILINE)
        return int(match.group(1)) * 1024 if match else None

    return {
        "rss_peak_bytes": field("VmHWM"),
        "rss_anonymous_bytes": field("RssAnon"),
        "rss_file_bytes": field("RssFile"),
        "ram_predicted_bytes": None,
    }


def thread_counts(text: str | None) -> list[int]:
    """`4`, `1,2,4` or `sweep` (powers of two up to the cores, and the cores). ValueError for anything else."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if text is None:
        return [cores]
    if text == "sweep":
        return sorted({2**i for i in range(cores.bit_length()) if 2**i <= cores} | {cores})
    counts = [int(part) for part in text.split(",")]
    if min(counts) < 1 or max(counts) > 1024:
        raise ValueError("thread counts lie between 1 and 1024")
    return counts
