"""The bundle format: round trips, the safetensors promise, and hostile files."""

import json
import random

import numpy as np
import pytest

from edgerun import bundle
from edgerun.dims import symbol
from edgerun.dtypes import DType
from edgerun.errors import BundleError, EdgerunError, InputOutputError
from edgerun.graph import Graph, Node
from edgerun.ops.elementwise import single


def example() -> Graph:
    """Two weights, a symbolic dimension, a sub-graph, every kind of attribute value."""
    graph = Graph("example", ["x"], ["y"], symbols={"N": (1, 8)}, meta={"opset": {"": 17}})
    graph.add_tensor("x", DType.F32, (symbol("N"), 3))
    graph.add_constant(np.arange(3, dtype=np.float32), "scale")
    graph.add_constant(np.array([[1, 2, 3]], np.float32), "offset")
    graph.add_constant(np.array(["a", "bé"], object), "names")
    graph.add_tensor("y", DType.F32, (symbol("N"), 3))
    program = (("const", DType.F32, float("inf")), ("mul", DType.F32, 0, 1), ("add", DType.F32, 4, 2))
    program = (*program, ("min", DType.F32, 5, 3))
    graph.nodes = [Node("elementwise", ["x", "scale", "offset"], ["y"], {"program": program}, "fused")]
    return graph


def test_round_trip(tmp_path):
    path = tmp_path / "m.edge"
    bundle.save(example(), path)
    graph = bundle.load(path)
    assert str(graph) == str(example())
    assert graph.meta == {"opset": {"": 17}} and graph.symbols == {"N": (1, 8)}
    np.testing.assert_array_equal(graph.tensors["names"].data, ["a", "bé"])
    assert not graph.tensors["scale"].data.flags.writeable


def test_weights_are_aligned_and_safetensors_can_read_them(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "m.edge"
    bundle.save(example(), path)
    loaded = safetensors.load_file(path)
    np.testing.assert_array_equal(loaded["w0"], [0, 1, 2])
    header_size = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + header_size])
    assert (header_size + 8) % 64 == 0
    assert all(header[k]["data_offsets"][0] % 64 == 0 for k in header if k.startswith("w"))


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.STRING], ids=lambda d: d.short)
def test_every_dtype_survives(dtype):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype.numpy)
    graph = Graph(outputs=["w"])
    graph.add_constant(array, "w")
    loaded = bundle.from_buffer(bundle.to_bytes(graph)).tensors["w"]
    assert loaded.dtype is dtype and loaded.data.dtype == array.dtype
    assert loaded.data.tobytes() == array.tobytes()


def test_an_existing_file_is_kept(tmp_path):
    path = tmp_path / "m.edge"
    path.write_text("precious")
    with pytest.raises(InputOutputError, match="--force"):
        bundle.save(example(), path)
    bundle.save(example(), path, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["m.edge"]


def test_plain_safetensors_are_told_apart():
    data = json.dumps({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    with pytest.raises(BundleError, match="holds no graph"):
        bundle.from_buffer(len(data).to_bytes(8, "little") + data + b"x")


def rewrite(change):
    """The example's bytes with its parsed header or graph document changed."""
    data = bundle.to_bytes(example())
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    document = json.loads(header["__metadata__"]["edgerun.graph"])
    change(header, document)
    header["__metadata__"]["edgerun.graph"] = json.dumps(document)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


HOSTILE = {
    "huge shape": lambda h, d: h["w0"].update(shape=[1 << 40, 1 << 40]),
    "negative shape": lambda h, d: h["w0"].update(shape=[-1]),
    "boolean shape": lambda h, d: h["w0"].update(shape=[True]),
    "offsets beyond the file": lambda h, d: h["w0"].update(data_offsets=[0, 1 << 50]),
    "overlap": lambda h, d: h["w1"].update(data_offsets=h["w0"]["data_offsets"]),
    "unknown dtype": lambda h, d: h["w0"].update(dtype="F1"),
    "unknown op": lambda h, d: d["nodes"][0].update(op="system"),
    "unknown attribute": lambda h, d: d["nodes"][0]["attrs"].update(cmd="x"),
    "attribute of the wrong type": lambda h, d: d["nodes"][0].update(attrs={"program": 3}),
    "operand out of range": lambda h, d: d["nodes"][0]["attrs"]["program"][1].__setitem__(2, 99),
    "undeclared tensor": lambda h, d: d["nodes"][0].update(inputs=["ghost", "scale", "offset"]),
    "undeclared output": lambda h, d: d.update(outputs=["ghost"]),
    "wrong declared shape": lambda h, d: d["tensors"]["y"].update(shape=["N", 4]),
    "wrong declared dtype": lambda h, d: d["tensors"]["y"].update(dtype="i8"),
    "weight number out of range": lambda h, d: d["tensors"]["scale"].update(weight=77),
    "deep dimension": lambda h, d: d["tensors"]["y"].update(shape=["(" * 5000 + "N" + ")" * 5000, 3]),
    "deep attribute": lambda h, d: d["nodes"][0].update(attrs={"program": json.loads("[" * 200 + "]" * 200)}),
    "list instead of an object": lambda h, d: d.update(tensors=[]),
    "malformed symbol bounds": lambda h, d: d.update(symbols={"N": [5, 1]}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bundles_are_refused(name):
    with pytest.raises(EdgerunError):
        bundle.from_buffer(rewrite(HOSTILE[name]))


def test_mutated_files_never_crash():
    """Truncated, flipped, spliced: a clean error or a graph that is still valid."""
    data = bundle.to_bytes(example())
    generator = random.Random(1)
    refused = 0
    for _ in range(600):
        mutant = bytearray(data)
        for _ in range(generator.randint(1, 4)):
            kind = generator.randrange(4)
            at = generator.randrange(len(mutant))
            if kind == 0:
                mutant[at] ^= 1 << generator.randrange(8)
            elif kind == 1:
                del mutant[at:]
            elif kind == 2:
                mutant[at:at] = mutant[: generator.randrange(64)]
            else:
                mutant[at] = generator.choice(b'0123456789{}[]",-')
            if not mutant:
                mutant = bytearray(b"\0")
        try:
            bundle.from_buffer(bytes(mutant)).check()
        except EdgerunError as e:
            assert "\n" not in str(e)
            refused += 1
    assert refused > 300


def test_nested_json_is_refused():
    text = b'{"__metadata__":' + b"[" * 100_000
    with pytest.raises(BundleError, match="not valid JSON"):
        bundle.from_buffer(len(text).to_bytes(8, "little") + text)


def test_states_and_assets_round_trip():
    graph = Graph()
    graph.add_tensor("past", DType.F32, (2,))
    graph.add_tensor("x", DType.F32, (2,))
    graph.inputs = ["past", "x"]
    graph.add_tensor("y", DType.F32, (2,))
    graph.nodes.append(Node("elementwise", ["past", "x"], ["y"], {"program": single("add", DType.F32)}, "n"))
    graph.outputs = ["y", "y"]
    graph.states = {"past": 1}
    graph.assets = {"tokenizer": np.arange(7, dtype=np.uint8)}
    found = bundle.from_buffer(bundle.to_bytes(graph))
    assert found.states == {"past": 1} and found.feeds == ["x"] and found.results == ["y"]
    np.testing.assert_array_equal(found.assets["tokenizer"], graph.assets["tokenizer"])
    for states in ({"past": 5}, {"x": -1}, {"nothing": 1}, {"past": 1, "x": 1}):
        graph.states = states
        with pytest.raises(BundleError):
            bundle.from_buffer(bundle.to_bytes(graph))
