"""The runtimes a comparison can load: each loader takes a model file and gives a function that runs it once.

Runtimes that do not read ONNX get the model through `benchmarks.conversions`. Every loader asks for the same thing:
float32 arithmetic, the stated number of threads, one stream, the runtime's own default optimisations. A run writes the
inputs and reads the outputs back as NumPy arrays, since an application does both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import conversions

Feeds = dict[str, np.ndarray]
Run = Callable[[], list[np.ndarray]]


def edgerun(path: Path, feeds: Feeds, threads: int) -> Run:
    from edgerun.session import from_graph, load_graph

    graph = load_graph(path, shapes={k: v.shape for k, v in feeds.items()})
    session = from_graph(graph, "native", threads=threads)
    return lambda: list(session.run(feeds).values())


def numpy(path: Path, feeds: Feeds, threads: int) -> Run:
    from edgerun.session import from_graph, load_graph

    session = from_graph(load_graph(path, shapes={k: v.shape for k, v in feeds.items()}), "numpy")
    return lambda: list(session.run(feeds).values())


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


def ncnn(path: Path, feeds: Feeds, threads: int) -> Run:
    import ncnn as runtime

    parameters, weights = conversions.ncnn(path, feeds)
    net = runtime.Net()
    net.opt.num_threads = threads
    net.opt.use_vulkan_compute = False
    for option in (
        "use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage", "use_bf16_packed",
    ):  # fmt: skip
        if hasattr(net.opt, option):
            setattr(net.opt, option, False)
    if net.load_param(str(parameters)) or net.load_model(str(weights)):
        raise RuntimeError("ncnn refuses its converted file")
    arrays = [np.ascontiguousarray(v[0] if v.ndim > 1 else v) for v in feeds.values()]
    inputs, outputs = list(net.input_names()), list(net.output_names())

    def run() -> list[np.ndarray]:
        extractor = net.create_extractor()
        for name, array in zip(inputs, arrays, strict=True):
            extractor.input(name, runtime.Mat(array))
        results = []
        for name in outputs:
            status, value = extractor.extract(name)
            if status:
                raise RuntimeError(f"ncnn does not compute {name}")
            results.append(np.array(value))
        return results

    return run


def mnn(path: Path, feeds: Feeds, threads: int) -> Run:
    import MNN as runtime

    file, outputs = conversions.mnn(path)
    settings = {"precision": "high", "backend": "CPU", "numThread": threads}
    manager = runtime.nn.create_runtime_manager((settings,))
    module = runtime.nn.load_module_from_file(str(file), list(feeds), outputs, runtime_manager=manager)
    expr = runtime.expr
    slots = []
    for value in feeds.values():
        array = np.ascontiguousarray(value.astype(np.int32) if value.dtype == np.int64 else value)
        kind = expr.int if array.dtype == np.int32 else expr.float
        slots.append((expr.placeholder(list(array.shape), expr.NCHW, kind), array))

    def run() -> list[np.ndarray]:
        for slot, array in slots:
            slot.write(array)
        results = module.forward([slot for slot, _ in slots])
        results = results if isinstance(results, list | tuple) else [results]
        return [np.array(r.read()) for r in results]

    return run


def litert(path: Path, feeds: Feeds, threads: int) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(conversions.litert(path, feeds)), num_threads=threads)
    interpreter.allocate_tensors()
    outputs = interpreter.get_output_details()
    slots = []
    for detail in interpreter.get_input_details():
        value = _matching(detail, feeds)
        slots.append((detail["index"], np.ascontiguousarray(value.astype(detail["dtype"]))))

    def run() -> list[np.ndarray]:
        for index, array in slots:
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(d["index"]) for d in outputs]

    return run


def _matching(detail: dict[str, Any], feeds: Feeds) -> np.ndarray:
    """The input of a converted model: by name where the converter kept it, images with their channels innermost."""
    shape = tuple(int(d) for d in detail["shape"])
    stem = detail["name"].removeprefix("serving_default_").split(":")[0]
    ordered = sorted(feeds.items(), key=lambda item: item[0].split(":")[0] != stem)
    for _, value in ordered:
        if value.shape == shape:
            return value
        if value.ndim == 4 and value.transpose(0, 2, 3, 1).shape == shape:
            return value.transpose(0, 2, 3, 1)
    raise RuntimeError(f"no input has the shape {shape} of {detail['name']}")


PEERS: dict[str, Callable[[Path, Feeds, int], Run]] = {
    "edgerun": edgerun,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
    "ncnn": ncnn,
    "mnn": mnn,
    "litert": litert,
    "numpy": numpy,
}
