"""`bench`: cold start, first run and steady state apart; one row for each thread count."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgerun import __version__
from edgerun.bench import machine, summarise, thread_counts
from edgerun.board.common import inputs_of, memory_of, memory_text, open_file, show
from edgerun.board.hooks import Hooks
from edgerun.board.model import BoardModel
from edgerun.board.options import Options
from edgerun.clock import ClockWatch
from edgerun.errors import UsageError
from edgerun.report import Column, Report, Table, number


def command(file: Path, options: Options, started: float) -> int:
    """Cold start, first run and steady state apart; one row for each thread count."""
    try:
        counts = thread_counts(options.threads)
    except ValueError as e:
        raise UsageError(f"--threads takes a number, a list such as 1,2,4, or sweep, not '{options.threads}'") from e
    rows: list[dict[str, Any]] = []
    layers: list[dict[str, Any]] = []
    for i, threads in enumerate(counts):
        begin = started if i == 0 else time.perf_counter()
        model, hooks = open_file(file, options, threads)
        arrays = inputs_of(model, hooks, options, "random")
        cold = time.perf_counter() - begin
        first = _time(model, hooks, arrays)
        for _ in range(options.warmup):
            _time(model, hooks, arrays)
        end = time.perf_counter() + options.seconds
        samples: list[float] = []
        clock = ClockWatch()
        while len(samples) < options.runs if options.runs else len(samples) < 2 or time.perf_counter() < end:
            samples.append(_time(model, hooks, arrays))
            clock.sample_sometimes()
        clock.sample()
        head = {"threads": model.threads, "isa": model.isa, "cold_ms": cold * 1e3, "first_ms": first * 1e3}
        rows.append(head | summarise(samples) | clock.result(allow_throttled=options.allow_throttled))
        if options.layers and i + 1 == len(counts):
            layers = model.profile(hooks.prepare(arrays), min(options.runs or 20, 20))
        if model.backend != "native":
            break
    return _report(model, rows, layers, options)


def _time(model: BoardModel, hooks: Hooks, arrays: Mapping[str, Any]) -> float:
    start = time.perf_counter()
    hooks.finish(model.run(hooks.prepare(arrays)))
    return time.perf_counter() - start


def _report(model: BoardModel, rows: list[dict[str, Any]], layers: list[dict[str, Any]], options: Options) -> int:
    use = memory_of(model)
    source = model.manifest.get("model") or {}
    document: dict[str, Any] = {
        "version": __version__, "model": source.get("name"), "sha256": source.get("sha256"), "machine": machine(),
        "rows": rows, "memory": use,
    }  # fmt: skip
    if options.layers:
        document["layers"] = layers
    ms = number(3)
    names = ("min_ms", "p50_ms", "p90_ms", "p99_ms", "max_ms", "mean_ms", "sd_ms")
    columns = [Column("threads"), Column("runs"), *(Column(n, ms) for n in names), Column("per_second", number(1))]
    tables = [Table(rows, columns)]
    if options.layers:
        layer = [Column("index"), Column("us", number(2)), Column("percent", number(2))]
        tables.append(Table(layers, [*layer, Column("kernel", left=True), Column("node", left=True)]))
    if not options.json:
        cold, first = rows[0]["cold_ms"], rows[0]["first_ms"]
        print(f"isa {rows[0]['isa']}, cold start {cold:.3f} ms, first run {first:.3f} ms")
    show(Report(document, tables, [memory_text(use)]), options)
    limit = (model.manifest.get("budgets") or {}).get("max_latency_ms")
    median = min(row["p50_ms"] for row in rows)
    if limit is not None and median > limit:
        print(f"the median of {median:.3f} ms is over the budget of {limit:.3f} ms", file=sys.stderr)
        return 1
    if any(row["rejected"] for row in rows):
        print("the CPU was throttled meanwhile (--allow-throttled accepts that)", file=sys.stderr)
        return 1
    return 0
