"""Compare runtimes, interleaved: every arm is loaded in its own process, and they take turns.

    python -m benchmarks.compare --peers edgerun,onnxruntime --models mobilenet_v2 --threads 1,2

Prints one row per model and thread count: the median milliseconds of each peer, the ratio of each peer's median to
edgerun's (above 1 = edgerun is faster), and the geometric means against each peer and against the best peer of each
row. The outputs of all arms are compared: a peer whose values are far from the others' is shown, marked, and left out
of the means. `--json FILE` keeps every arm's summary with the machine, `--plot FILE` draws it.

Runtimes installed elsewhere: EDGERUN_BENCH_PYTHON_OPENVINO=/path/to/python (any peer's name) runs that arm there.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.models import MODELS
from benchmarks.peers import PEERS
from benchmarks.report import Result

TURN_MS = 120.0
"""Length of one turn: long against timer and cache effects, short against clock drift."""


class Arm:
    """A child process that runs one model on one runtime; see `benchmarks.arms`."""

    def __init__(self, peer: str, model: str, threads: int) -> None:
        self.peer, self.model, self.threads = peer, model, threads
        self.times: list[float] = []
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
        executable = os.environ.get(f"EDGERUN_BENCH_PYTHON_{peer.upper()}", sys.executable)
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (as long as the process)
        self.process = subprocess.Popen(
            [executable, "-m", "benchmarks.arms", peer, model, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=environment,
        )
        self.info: dict[str, Any] = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            message = self.log.read().strip().splitlines() or ["no message"]
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

    def outputs(self) -> list[np.ndarray]:
        """The values of the first run, in the runtime's own order."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "outputs.npz"
            self.ask(f"outputs {file}")
            with np.load(file) as values:
                return [values[k] for k in values.files]

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
        self.log.close()


def measure(model: str, peers: list[str], threads: int, rounds: int) -> list[Result]:
    """Interleaved turns of all peers on one model; a peer that fails gives a Result with `error`."""
    arms: list[Arm] = []
    failed: list[Result] = []
    for peer in peers:
        try:
            arms.append(Arm(peer, model, threads))
        except RuntimeError as e:
            failed.append(Result(model, peer, threads, math.nan, math.nan, math.nan, 0, 0, 0, 0, error=str(e)))
    for arm in arms:
        arm.warm_up()
    if not arms:
        return failed
    reference = next((arm for arm in arms if arm.peer == "onnxruntime"), arms[0]).outputs()
    differences = [difference(arm.outputs(), reference) for arm in arms]
    for turn in range(rounds):
        for arm in arms[turn % len(arms) :] + arms[: turn % len(arms)]:
            arm.turn()
            time.sleep(0.02)  # lets the previous runtime's spinning threads go to sleep
    results = [replace(arm.result(), difference=d) for arm, d in zip(arms, differences, strict=True)]
    for arm in arms:
        arm.stop()
    return results + failed


def difference(values: list[np.ndarray], reference: list[np.ndarray]) -> float:
    """Largest difference relative to the largest reference value; outputs pair by size, in any layout and order."""
    worst = 0.0
    for expected in reference:
        scale = float(np.abs(expected).max(initial=0)) or 1.0
        found = math.inf
        for value in values:
            if value.size != expected.size:
                continue
            forms = [value.ravel()]
            if value.ndim == 4:
                forms.append(value.transpose(0, 3, 1, 2).ravel())
            for form in forms:
                delta = np.abs(form.astype(np.float64) - expected.ravel().astype(np.float64))
                found = min(found, float(delta.max(initial=0)) / scale)
        worst = max(worst, found)
    return worst


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


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="edgerun,onnxruntime", help="comma-separated: " + ", ".join(PEERS))
    parser.add_argument("--models", default="", help="comma-separated names; default: every model that is present")
    parser.add_argument("--threads", default="1", help="comma-separated thread counts")
    parser.add_argument("--rounds", type=int, default=8, help="turns per arm")
    parser.add_argument("--json", help="write all results to this file")
    parser.add_argument("--plot", help="draw the results into this file (.svg or .png; needs matplotlib)")
    options = parser.parse_args(arguments)
    peers = options.peers.split(",")
    known = [m.name for m in MODELS]
    names = options.models.split(",") if options.models else [m.name for m in MODELS if m.path() is not None]
    _known_or_exit("peer", peers, list(PEERS))
    _known_or_exit("model", names, known)
    if not names:
        raise SystemExit("no benchmark model is present: set EDGERUN_CORPUS or EDGERUN_BENCH_MODELS")
    results: list[Result] = []
    for name in names:
        for threads in (int(t) for t in options.threads.split(",")):
            row = measure(name, peers, threads, options.rounds)
            for result in row:
                if result.error:
                    print(result.error, file=sys.stderr)
            results += row
    print(report.table(results, peers))
    if options.json:
        with Path(options.json).open("w") as file:
            json.dump({"machine": machine(), "results": [asdict(r) for r in results]}, file, indent=1)
    if options.plot:
        report.plot(results, peers, Path(options.plot), machine())


def _known_or_exit(kind: str, names: list[str], known: list[str]) -> None:
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
            raise SystemExit(f"no {kind} is named {name}{hint}")


if __name__ == "__main__":
    main()
