"""Damaged and hostile model files: each ends in one of our own errors (or imports), never a traceback or a runaway."""

from __future__ import annotations

import random
import resource
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgerun.errors import EdgerunError, ImportFailure, UnsupportedError
from edgerun_converters.onnx.importer import import_model

SEED = 20240229


def model(nodes: list[onnx.NodeProto], inputs=("x",), outputs=("y",), initializers=(), opset: int = 17, **kwargs):
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(i, TensorProto.FLOAT, ["N", 4]) for i in inputs],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        list(initializers),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **kwargs)


def sample() -> onnx.ModelProto:
    """A model with weights in several encodings, a sub-graph, a function and declared shapes."""
    branch = helper.make_graph(
        [helper.make_node("SequenceEmpty", [], ["s"]), helper.make_node("SequenceLength", ["s"], ["l"])],
        "branch",
        [],
        [helper.make_tensor_value_info("l", TensorProto.INT64, [])],
    )
    nodes = [
        helper.make_node("Identity", ["x"], ["a"], name="first"),
        helper.make_node("SequenceConstruct", ["a", "w", "v"], ["q"], name="second"),
        helper.make_node("Twice", ["q"], ["n"], domain="local", name="third"),
        helper.make_node("If", ["c"], ["m"], then_branch=branch, else_branch=branch, name="fourth"),
        helper.make_node("SequenceAt", ["q", "n"], ["y"], name="fifth"),
    ]
    function = helper.make_function(
        "local",
        "Twice",
        ["p"],
        ["r"],
        [helper.make_node("SequenceLength", ["p"], ["r"])],
        [helper.make_opsetid("", 17)],
    )
    graph = helper.make_graph(
        nodes,
        "sample",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None), helper.make_tensor_value_info("m", 7, [])],
        [
            numpy_helper.from_array(np.arange(8, dtype=np.float32).reshape(2, 4), "w"),
            helper.make_tensor("v", TensorProto.FLOAT, [1, 4], [1.0, 2.0, 3.0, 4.0]),
            numpy_helper.from_array(np.array(["one", "two"], object), "t"),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)


def outcome(data: bytes) -> str:
    """Import and print; only our own errors may come out, in one line of bounded length."""
    start = time.monotonic()
    try:
        str(import_model(data))
        result = "imported"
    except EdgerunError as e:
        assert str(e)
        result = type(e).__name__
    assert time.monotonic() - start < 5
    return result


def test_the_sample_itself_imports():
    assert outcome(sample().SerializeToString()) == "imported"


def test_every_truncation_is_reported():
    data = sample().SerializeToString()
    results = {outcome(data[:n]) for n in range(0, len(data), 3)}
    assert results <= {"ImportFailure", "UnsupportedError", "ShapeError", "imported"}
    assert "ImportFailure" in results


@pytest.mark.parametrize("kind", ["bits", "bytes", "splice"])
def test_mutations_never_escape(kind: str):
    data = sample().SerializeToString()
    generator = random.Random(SEED)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(400):
        mutant = bytearray(data)
        if kind == "bits":
            for _ in range(generator.randint(1, 4)):
                mutant[generator.randrange(len(mutant))] ^= 1 << generator.randrange(8)
        elif kind == "bytes":
            for _ in range(generator.randint(1, 4)):
                mutant[generator.randrange(len(mutant))] = generator.choice([0, 1, 0x7F, 0x80, 0xFF])
        else:
            a, b = sorted(generator.randrange(len(data)) for _ in range(2))
            c = generator.randrange(len(data))
            mutant[c:c] = data[a:b]
        outcome(bytes(mutant))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 512 * 1024, f"{grown} KiB more memory"


@pytest.mark.parametrize("data", [b"", b"\x00", b"not a model at all", b"version https://git-lfs.github.com/spec/v1\n"])
def test_other_files_are_named_as_such(data: bytes):
    with pytest.raises(ImportFailure):
        import_model(data)


# -- structure


def identity(a: str, b: str) -> onnx.NodeProto:
    return helper.make_node("Identity", [a], [b], name=f"{a}_{b}")


def test_dangling_input():
    with pytest.raises(ImportFailure, match="'ghost' is read but never defined"):
        import_model(model([identity("ghost", "y")]))


def test_cycle_names_its_nodes():
    with pytest.raises(ImportFailure, match="cycle: a_b -> b_a"):
        import_model(model([identity("a", "b"), identity("b", "a"), identity("x", "y")]))


def test_nodes_in_the_wrong_order_are_sorted():
    graph = import_model(
        model([helper.make_node("SequenceLength", ["q"], ["y"]), helper.make_node("SequenceConstruct", ["x"], ["q"])])
    )
    assert [n.op for n in graph.nodes] == ["sequence_construct", "sequence_length"]


def test_value_defined_twice():
    with pytest.raises(ImportFailure, match="'y' is defined by two nodes"):
        import_model(model([identity("x", "y"), identity("x", "y")]))


def test_missing_output():
    with pytest.raises(ImportFailure, match="'y' is read but never defined"):
        import_model(model([identity("x", "z")]))


def test_function_that_calls_itself():
    function = helper.make_function(
        "local",
        "F",
        ["a"],
        ["b"],
        [helper.make_node("F", ["a"], ["b"], domain="local")],
        [helper.make_opsetid("local", 1)],
    )
    m = model([helper.make_node("F", ["x"], ["y"], domain="local")], functions=[function])
    m.opset_import.append(helper.make_opsetid("local", 1))
    with pytest.raises(ImportFailure, match="nested"):
        import_model(m)


def test_functions_that_multiply_are_bounded(monkeypatch: pytest.MonkeyPatch):
    from edgerun_converters.onnx import importer

    monkeypatch.setattr(importer, "MAX_NODES", 1000)
    opsets = [helper.make_opsetid("local", 1), helper.make_opsetid("", 17)]
    functions = []
    for i in range(20):
        inner = "Identity" if i == 0 else f"F{i - 1}"
        domain = "" if i == 0 else "local"
        body = [
            helper.make_node(inner, ["a"], ["m"], domain=domain),
            helper.make_node(inner, ["m"], ["b"], domain=domain),
        ]
        functions.append(helper.make_function("local", f"F{i}", ["a"], ["b"], body, opsets))
    m = model([helper.make_node("F19", ["x"], ["y"], domain="local")], functions=functions)
    m.opset_import.append(helper.make_opsetid("local", 1))
    with pytest.raises(ImportFailure, match="more than 1000 nodes"):
        import_model(m)


def test_deeply_nested_branches():
    nest = helper.make_graph([identity("x", "r")], "g", [], [helper.make_tensor_value_info("r", 1, None)])
    for _ in range(30):
        node = helper.make_node("If", ["c"], ["r"], then_branch=nest)
        nest = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("r", 1, None)])
    m = model([helper.make_node("If", ["c"], ["y"], then_branch=nest)], inputs=("x", "c"))
    with pytest.raises(ImportFailure, match=r"nested|damaged"):
        import_model(m.SerializeToString())


# -- opsets


@pytest.mark.parametrize("opset", [1, 5])
def test_old_opsets_name_the_remedy(opset: int):
    with pytest.raises(UnsupportedError, match="version_converter"):
        import_model(model([helper.make_node("Cast", ["x"], ["y"], to="INT32")], opset=opset))


def test_operators_that_never_changed_are_taken_from_any_opset():
    assert import_model(model([helper.make_node("Abs", ["x"], ["y"])], opset=6)).outputs == ["y"]
    assert import_model(model([identity("x", "y")], opset=1)).outputs == ["y"]


def test_opset_zero():
    with pytest.raises(ImportFailure, match="does not exist"):
        import_model(model([identity("x", "y")], opset=0))


def test_future_opset():
    with pytest.raises(UnsupportedError, match="upgrade the onnx package"):
        import_model(model([identity("x", "y")], opset=10_000))


def test_missing_opset_import():
    m = model([identity("x", "y")])
    del m.opset_import[:]
    with pytest.raises(ImportFailure, match="opset_import"):
        import_model(m)


def test_domain_alias():
    m = model([helper.make_node("Identity", ["x"], ["y"], domain="ai.onnx")])
    assert import_model(m).outputs == ["y"]


# -- initialisers


def tensor(**fields) -> onnx.TensorProto:
    t = TensorProto(name="w", data_type=TensorProto.FLOAT)
    for key, value in fields.items():
        if key == "dims":
            t.dims.extend(value)
        else:
            setattr(t, key, value)
    return t


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (tensor(dims=[2, 2], raw_data=b"\0" * 15), "needs 16 bytes of data but has 15"),
        (tensor(dims=[2, 2]), "has 0 elements"),
        (tensor(dims=[-1], raw_data=b""), "impossible shape"),
        (tensor(dims=[1 << 40, 1 << 40], raw_data=b"\0" * 4), "needs"),
        (tensor(dims=[1] * 100, raw_data=b"\0" * 4), "impossible shape"),
        (tensor(dims=[1], raw_data=b"\0" * 4, data_type=99), "unknown element type 99"),
    ],
    ids=["short", "missing", "negative", "overflow", "rank", "type"],
)
def test_bad_initializers(bad: onnx.TensorProto, message: str):
    with pytest.raises(ImportFailure, match=message):
        import_model(model([identity("x", "y")], initializers=[bad]))


def test_huge_sparse_tensor_is_not_allocated():
    sparse = onnx.SparseTensorProto(dims=[1 << 20, 1 << 20])
    sparse.values.CopyFrom(numpy_helper.from_array(np.ones(1, np.float32), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.zeros(1, np.int64), "i"))
    m = model([identity("x", "y")])
    m.graph.sparse_initializer.append(sparse)
    with pytest.raises(ImportFailure, match="too large"):
        import_model(m)


# -- external data


def external(location: str, offset: str = "0", length: str = "32") -> onnx.ModelProto:
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        t.external_data.add(key=key, value=value)
    return model(
        [helper.make_node("SequenceConstruct", ["x", "w"], ["q"]), helper.make_node("SequenceLength", ["q"], ["y"])],
        initializers=[t],
    )


def save(m: onnx.ModelProto, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    path.write_bytes(m.SerializeToString())
    return path


def test_external_data_is_mapped(tmp_path: Path):
    weights = np.arange(8, dtype=np.float32)
    path = save(external("w.bin", offset="8"), tmp_path)
    (tmp_path / "w.bin").write_bytes(b"\0" * 8 + weights.tobytes())
    data = import_model(path).tensors["w"].data
    assert data is not None
    np.testing.assert_array_equal(data.reshape(-1), weights)
    assert not data.flags.writeable


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../w.bin", "sub/../../w.bin", "", "C:\\w.bin", "..\\w.bin", "a\0b", "missing.bin"]
)
def test_locations_outside_the_folder_are_refused(tmp_path: Path, location: str):
    (tmp_path / "w.bin").write_bytes(b"\0" * 64)
    path = save(external(location), tmp_path / "model")
    with pytest.raises(ImportFailure, match="data file"):
        import_model(path)


def test_symbolic_link_out_of_the_folder_is_refused(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 64)
    path = save(external("w.bin"), tmp_path / "model")
    (tmp_path / "model" / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ImportFailure, match="outside the model's folder"):
        import_model(path)


@pytest.mark.parametrize(
    ("offset", "length"), [("64", "32"), ("0", "999999999999"), ("-1", "32"), ("x", "32"), ("0", "31"), ("9" * 30, "1")]
)
def test_offsets_are_checked(tmp_path: Path, offset: str, length: str):
    path = save(external("w.bin", offset, length), tmp_path)
    (tmp_path / "w.bin").write_bytes(b"\0" * 64)
    with pytest.raises(ImportFailure):
        import_model(path)
