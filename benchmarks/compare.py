"""Compare runtimes, interleaved: every arm is loaded in its own process, and they take turns.

    python -m benchmarks.compare --peers edgerun,onnxruntime --models mobilenet_v2 --threads 1,2

Prints one row per model and thread count: the median milliseconds of each peer, the ratio of each peer's median to
edgerun's (above 1 = edgerun is faster), and the spread. `--json FILE` keeps every sample's summary with the machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.arms import PEERS
from benchmarks.models import MODELS

TURN_MS = 120.0
"""Length of one turn: long against timer and cache effects, short against clock drift."""


@dataclass
class Result:
    """One arm's summary; times in milliseconds."""

    model: str
    peer: str
    threads: int
    median: float
    best: float
    p90: float
    samples: int
    load: float
    first: float
    rss_mib: float
    error: str = ""


class Arm:
    """A child process that runs one model on one runtime; see `benchmarks.arms`."""

    def __init__(self, peer: str, model: str, threads: int) -> None:
        self.peer, self.model, self.threads = peer, model, threads
        self.times: list[float] = []
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
        executable = os.environ.get(f"EDGERUN_BENCH_PYTHON_{peer.upper()}", sys.executable)
        self.process = subprocess.Popen(
            [executable, "-m", "benchmarks.arms", peer, model, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.info: dict[str, Any] = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        if not line:
            message = self.process.stderr.read().strip().splitlines() or ["no message"]
            raise RuntimeError(f"{self.peer} on {self.model}: {message[-1][:200]}")
        return json.loads(line)

    def ask(self, question: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self._answer()

    def turn(self) -> None:
        """One timed turn of about TURN_MS."""
        guess = statistics.median(self.times) if self.times else self.info["first_ms"]
        self.times += self.ask(str(max(1, min(2000, int(TURN_MS / max(guess, 1e-3))))))

    def warm_up(self) -> None:
        self.ask("3")

    def result(self) -> Result:
        memory = self.ask("rss")
        ordered = sorted(self.times)
        return Result(
            self.model, self.peer, self.threads, statistics.median(ordered), ordered[0],
            ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))], len(ordered),
            self.info["load_ms"], self.info["first_ms"], memory["rss_mib"],
        )  # fmt: skip

    def stop(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(timeout=20)


def measure(model: str, peers: list[str], threads: int, rounds: int) -> list[Result]:
    """Interleaved turns of all peers on one model; a peer that fails gives a Result with `error`."""
    arms: list[Arm] = []
    failed: list[Result] = []
    for peer in peers:
        try:
            arms.append(Arm(peer, model, threads))
        except RuntimeError as e:
            failed.append(Result(model, peer, threads, math.nan, math.nan, math.nan, 0, 0, 0, 0, str(e)))
    for arm in arms:
        arm.warm_up()
    for turn in range(rounds):
        for arm in arms[turn % len(arms) :] + arms[: turn % len(arms)]:
            arm.turn()
            time.sleep(0.02)  # lets the previous runtime's spinning threads go to sleep
    results = [arm.result() for arm in arms]
    for arm in arms:
        arm.stop()
    return results + failed


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = platform.processor()
    try:
        with Path("/proc/cpuinfo").open() as file:
            model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def table(results: list[Result], peers: list[str]) -> str:
    """Rows of model x threads as a Markdown table."""
    lines = [
        "| model | threads | " + " | ".join(f"{p} ms" for p in peers) + " | " + " | ".join(
            f"{p} / edgerun" for p in peers if p != "edgerun"
        ) + " |",
        "|" + "---|" * (1 + 2 * len(peers)),
    ]  # fmt: skip
    ratios: dict[tuple[str, int], list[float]] = {}
    keys = list(dict.fromkeys((r.model, r.threads) for r in results))
    for model, threads in keys:
        row = {r.peer: r for r in results if (r.model, r.threads) == (model, threads)}
        ours = row.get("edgerun")
        cells = [f"{row[p].median:.3f}" if p in row and not row[p].error else "-" for p in peers]
        for peer in peers:
            if peer == "edgerun":
                continue
            other = row.get(peer)
            if ours is None or ours.error or other is None or other.error:
                cells.append("-")
                continue
            ratio = other.median / ours.median
            ratios.setdefault((peer, threads), []).append(ratio)
            cells.append(f"{ratio:.2f}")
        lines.append(f"| {model} | {threads} | " + " | ".join(cells) + " |")
    for (peer, threads), values in ratios.items():
        mean = math.exp(statistics.fmean(math.log(v) for v in values))
        lines.append(f"\ngeometric mean, {peer} / edgerun at {threads} thread(s): {mean:.3f} over {len(values)} rows")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="edgerun,onnxruntime", help="comma-separated: " + ", ".join(PEERS))
    parser.add_argument("--models", default="", help="comma-separated names; default: every model that is present")
    parser.add_argument("--threads", default="1", help="comma-separated thread counts")
    parser.add_argument("--rounds", type=int, default=8, help="turns per arm")
    parser.add_argument("--json", help="write all results to this file")
    options = parser.parse_args(arguments)
    peers = options.peers.split(",")
    names = options.models.split(",") if options.models else [m.name for m in MODELS if m.path() is not None]
    if not names:
        raise SystemExit("no benchmark model is present: set EDGERUN_CORPUS or EDGERUN_BENCH_MODELS")
    results: list[Result] = []
    for name in names:
        for threads in (int(t) for t in options.threads.split(",")):
            results += measure(name, peers, threads, options.rounds)
            for result in results:
                if result.error and result.model == name and result.threads == threads:
                    print(result.error, file=sys.stderr)
    print(table(results, peers))
    if options.json:
        with Path(options.json).open("w") as file:
            json.dump({"machine": machine(), "results": [asdict(r) for r in results]}, file, indent=1)


if __name__ == "__main__":
    main()
