"""A model of more than 2 GB: its weights lie beside it, are mapped, and never lie in memory as a whole."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from edgerun import bundle
from edgerun.files import PIECE, content_hash
from edgerun.session import load

ROWS, WIDTH = 8_700_000, 64
MEGABYTE = 1_000_000
MOST = 250 * MEGABYTE
"""Peak of the whole converter's process, the interpreter and its libraries (about 90 MB) included."""
CONVERT = """
import json, sys
from edgerun.cli.main import main
try:
    main(["convert", sys.argv[1], "-o", sys.argv[2]])
except SystemExit as e:
    assert not e.code, e.code
# Not ru_maxrss, which begins with that of the process that started this one.
print(next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def make(folder: Path) -> Path:
    """Rows of an embedding table, all zero but the last: the file has holes and takes no room on the disk."""
    table = TensorProto(name="table", data_type=1, dims=[ROWS, WIDTH], data_location=TensorProto.EXTERNAL)
    size = ROWS * WIDTH * 4
    for key, text in (("location", "weights.bin"), ("offset", "0"), ("length", str(size))):
        table.external_data.add(key=key, value=text)
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(size)
        file.seek(size - WIDTH * 4)
        file.write(np.arange(WIDTH, dtype=np.float32).tobytes())
    nodes = [helper.make_node("Gather", ["table", "i"], ["rows"]), helper.make_node("Relu", ["rows"], ["y"])]
    ports = [helper.make_tensor_value_info("i", 7, [2])], [helper.make_tensor_value_info("y", 1, [2, WIDTH])]
    graph = helper.make_graph(nodes, "large", *ports, [table])
    path = folder / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


def test_two_gigabytes_are_converted_in_pieces(tmp_path: Path):
    source, made = make(tmp_path), tmp_path / "large.edge"
    command = [sys.executable, "-c", CONVERT, str(source), str(made)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peak = json.loads(done.stdout.splitlines()[-1])
    print(f"peak of convert: {peak / MEGABYTE:.0f} MB for {made.stat().st_size / MEGABYTE:.0f} MB")
    assert made.stat().st_size > 2**31 and peak < MOST
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    indices = np.array([ROWS - 1, 5])
    for path in (made, source):
        y = load(path, backend="numpy").run({"i": indices})["y"]
        np.testing.assert_array_equal(y, np.stack([np.arange(WIDTH), np.zeros(WIDTH)]))
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 50 * MEGABYTE
    made.unlink()


def test_pieces_of_a_mapped_weight_are_all_of_it(tmp_path: Path):
    """The hash over a mapping, which leaves the memory as it goes, is that over a copy."""
    from edgerun.dtypes import from_numpy
    from edgerun.graph import Graph

    data = np.random.default_rng(0).integers(0, 99, 3 * PIECE // 4 + 77, np.int32)
    graph = Graph(outputs=["w"])
    graph.add_tensor("w", from_numpy(data.dtype), data.shape, data)
    bundle.save(graph, tmp_path / "w.edge")
    mapped = bundle.load(tmp_path / "w.edge").tensors["w"].data
    assert mapped is not None and content_hash(mapped) == content_hash(data)
    np.testing.assert_array_equal(mapped, data)
