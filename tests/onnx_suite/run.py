"""Run the suite from the command line; see README.md in this folder.

$ python -m tests.onnx_suite.run --backend numpy --match '^test_conv' --report
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter

from tests.onnx_suite import judge, ledger
from tests.onnx_suite.cases import GROUPS, Case, inference_cases, load
from tests.onnx_suite.judge import Verdict

_STATUSES = ("pass", "fail", "unsupported", "error", "timeout")


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 when every case ends as the ledger says."""
    options = _parse(arguments)
    cases = [c for c in inference_cases() if c.group in options.groups.split(",")]
    if options.match:
        cases = [c for c in cases if re.search(options.match, c.name)]
    if options.shard:
        index, count = (int(n) for n in options.shard.split("/"))
        cases = cases[index::count]
    start = time.perf_counter()
    results = []
    for case in cases:
        verdict = judge.run(case, options.backend, optimize=not options.no_optimize, limit=options.limit)
        results.append((case, verdict))
        if options.verbose:
            print(f"{verdict.status:12} {case.name}  {verdict.message}", flush=True)
    surprises = _surprises(results, options.backend)
    if options.report:
        _print_report(results)
    _print_table(results, time.perf_counter() - start)
    for text in surprises if not options.report else ():
        print(text)
    if options.json:
        rows = [{"group": c.group, "name": c.name, "status": v.status, "message": v.message} for c, v in results]
        with open(options.json, "w") as file:  # noqa: PTH123
            json.dump(rows, file, indent=1)
    return 1 if surprises else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.onnx_suite.run", description=__doc__)
    parser.add_argument("--backend", default="numpy", choices=("numpy", "native"))
    parser.add_argument("--groups", default=",".join(GROUPS), help="comma-separated (default: all)")
    parser.add_argument("--match", help="regular expression that the case's name must contain")
    parser.add_argument("--shard", help="I/N: only every Nth case, starting with the Ith")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds per case (default 20)")
    parser.add_argument("--no-optimize", action="store_true", help="run the graph as imported")
    parser.add_argument("--report", action="store_true", help="list every case that does not pass, by reason")
    parser.add_argument("--verbose", action="store_true", help="a line per case as it ends")
    parser.add_argument("--json", help="write all verdicts to this file")
    return parser.parse_args(arguments)


def _surprises(results: list[tuple[Case, Verdict]], backend: str) -> list[str]:
    entries = ledger.load()
    lines = []
    for case, verdict in results:
        expected = ledger.expected(case.name, backend, entries)
        if not ledger.agrees(verdict.status, expected):
            lines.append(f"{case.name}: {verdict.status}, the ledger says {expected}  {verdict.message}")
    return lines


def _print_report(results: list[tuple[Case, Verdict]]) -> None:
    for case, verdict in results:
        if verdict.status != "pass":
            print(f"{verdict.status:12} {case.name}  {' '.join(verdict.message.split())[:260]}")


def _print_table(results: list[tuple[Case, Verdict]], seconds: float) -> None:
    print(f"{'group':20} {'cases':>6} " + " ".join(f"{s:>12}" for s in _STATUSES))
    for group in (*GROUPS, "all"):
        statuses = Counter(v.status for c, v in results if group in (c.group, "all"))
        if statuses:
            print(f"{group:20} {sum(statuses.values()):6} " + " ".join(f"{statuses[s] or '':>12}" for s in _STATUSES))
    training = sum(c.is_training for c in load())
    print(f"{seconds:.0f} s; {training} training cases are out of scope and not counted")


if __name__ == "__main__":
    sys.exit(main())
