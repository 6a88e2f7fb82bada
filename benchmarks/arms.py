"""One arm of a comparison: a runtime with one model, alone in its process.

    python -m benchmarks.arms PEER MODEL THREADS

The process loads the model, prints one JSON line about it, then answers each line "N" on standard input by timing N
runs and printing them as a JSON list of milliseconds. On "rss" it prints its peak resident memory in MiB, on
"outputs FILE" it writes the values of the first run there (.npz, in the runtime's order).
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import TextIO

import numpy as np

from benchmarks import conversions
from benchmarks.models import MODELS, BenchModel
from benchmarks.peers import PEERS, Feeds


def make_feeds(model: BenchModel, path: Path) -> Feeds:
    """Seeded inputs with the dtypes the file declares."""
    import onnx

    declared = {v.name: v.type.tensor_type.elem_type for v in onnx.load(path, load_external_data=False).graph.input}
    generator = np.random.default_rng(0)
    feeds: Feeds = {}
    for name, shape in model.shapes.items():
        dtype = onnx.helper.tensor_dtype_to_np_dtype(declared[name])
        if name in model.integers:
            low, high = model.integers[name]
            feeds[name] = generator.integers(low, high, shape).astype(dtype)
        else:
            feeds[name] = generator.standard_normal(shape).astype(dtype)
    return feeds


def own_stdout() -> TextIO:
    """Standard output for the answers alone: what runtimes print themselves goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return answers


def main() -> None:
    answers = own_stdout()
    peer, name, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    model = next(m for m in MODELS if m.name == name)
    path = model.path()
    if path is None:
        raise SystemExit(f"{model.file} is in neither $EDGERUN_BENCH_MODELS nor $EDGERUN_CORPUS/models")
    feeds = make_feeds(model, path)
    conversions.prepare(peer, path, feeds)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    run = PEERS[peer](path, feeds, threads)
    load = time.perf_counter() - start
    start = time.perf_counter()
    outputs = run()
    first = time.perf_counter() - start
    print(json.dumps({"load_ms": load * 1e3, "first_ms": first * 1e3}), file=answers)
    for line in sys.stdin:
        if line.strip() == "rss":
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            print(json.dumps({"rss_mib": peak / 1024, "rss_before_mib": before / 1024}), file=answers)
            continue
        if line.startswith("outputs "):
            np.savez(line.removeprefix("outputs ").strip(), *outputs)
            print("{}", file=answers)
            continue
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
        print(json.dumps(times), file=answers)


if __name__ == "__main__":
    main()
