"""One arm of a comparison: a runtime with one model, alone in its process.

    python -m benchmarks.arms PEER MODEL THREADS

The process loads the model, prints one JSON line about it, then answers each line "N" on standard input by timing N
runs and printing them as a JSON list of milliseconds. On "rss" it prints its peak resident memory in MiB.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import MODELS, BenchModel

Feeds = dict[str, np.ndarray]
Run = Callable[[], Any]


def edgerun(path: Path, feeds: Feeds, threads: int) -> Run:
    from edgerun.session import from_graph, load_graph

    graph = load_graph(path, shapes={k: v.shape for k, v in feeds.items()})
    session = from_graph(graph, "native", threads=threads)
    return lambda: session.run(feeds)


def numpy(path: Path, feeds: Feeds, threads: int) -> Run:
    from edgerun.session import from_graph, load_graph

    session = from_graph(load_graph(path, shapes={k: v.shape for k, v in feeds.items()}), "numpy")
    return lambda: session.run(feeds)


def onnxruntime(path: Path, feeds: Feeds, threads: int) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def openvino(path: Path, feeds: Feeds, threads: int) -> Run:
    import openvino as ov

    core = ov.Core()
    model = core.read_model(path)
    model.reshape({k: list(v.shape) for k, v in feeds.items()})
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    return lambda: [np.array(v) for v in request.infer(feeds).values()]


PEERS: dict[str, Callable[[Path, Feeds, int], Run]] = {
    "edgerun": edgerun,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "numpy": numpy,
}


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


def main() -> None:
    peer, name, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)
    model = next(m for m in MODELS if m.name == name)
    path = model.path()
    if path is None:
        raise SystemExit(f"{model.file} is in neither $EDGERUN_BENCH_MODELS nor $EDGERUN_CORPUS/models")
    feeds = make_feeds(model, path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    run = PEERS[peer](path, feeds, threads)
    load = time.perf_counter() - start
    start = time.perf_counter()
    run()
    first = time.perf_counter() - start
    print(json.dumps({"load_ms": load * 1e3, "first_ms": first * 1e3}), flush=True)
    for line in sys.stdin:
        if line.strip() == "rss":
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            print(json.dumps({"rss_mib": peak / 1024, "rss_before_mib": before / 1024}), flush=True)
            continue
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
