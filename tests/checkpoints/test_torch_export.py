"""Modules and exported programs: what is asked of PyTorch (a stand-in for it), and PyTorch itself where it is there."""

import importlib.util
import sys
import types

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import edgerun
from edgerun.errors import BackendUnavailable, ImportFailure, InputOutputError
from edgerun.session import load_graph


def model() -> onnx.ModelProto:
    """y = x @ w."""
    w = helper.make_tensor("w", TensorProto.FLOAT, (3, 2), np.arange(6, dtype=np.float32))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ("n", c)) for n, c in (("x", 3), ("y", 2)))
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


class Module:
    """As much of nn.Module as is used."""

    training = True

    def eval(self):
        self.training = False

    def train(self, mode):
        self.training = mode


@pytest.fixture
def torch(monkeypatch):
    """A stand-in that exports every module as `model()` and notes the calls."""
    fake = types.ModuleType("torch")
    fake.calls = []

    def export(program, inputs, **options):
        fake.calls.append((program, inputs, options, getattr(program, "training", None)))
        if program == "broken" or inputs == ("bad",):
            raise RuntimeError("no such operator\nmore")
        return types.SimpleNamespace(model_proto=model())

    def load(path):
        if path.endswith("bad.pt2"):
            raise ValueError("not an archive")
        return "program"

    fake.onnx = types.SimpleNamespace(export=export)
    fake.export = types.SimpleNamespace(load=load)
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setitem(sys.modules, "onnxscript", types.ModuleType("onnxscript"))
    return fake


def test_a_module_is_exported_in_evaluation_mode_and_left_as_it_was(torch):
    module = Module()
    session = edgerun.from_torch(module, "example", dynamic_shapes={"x": 1}, backend="numpy")
    ((program, inputs, options, training),) = torch.calls
    assert program is module and inputs == ("example",) and training is False and module.training is True
    assert options["dynamo"] is True and options["dynamic_shapes"] == {"x": 1}
    x = np.ones((4, 3), np.float32)
    np.testing.assert_allclose(session.run({"x": x})["y"], x @ np.arange(6, dtype=np.float32).reshape(3, 2))
    assert session.graph.meta["source"] == "Module"


def test_errors_of_the_exporter_are_one_line(torch):
    module = Module()
    with pytest.raises(ImportFailure, match=r"cannot export Module to ONNX: no such operator$"):
        edgerun.from_torch(module, "bad")
    assert module.training is True


def test_exported_programs_are_model_files(torch, tmp_path):
    path = tmp_path / "m.pt2"
    path.write_bytes(b"x")
    graph = load_graph(path, shapes={"x": (2, 3)})
    assert torch.calls[0][0] == "program" and [str(graph.tensors[i]) for i in graph.inputs] == ["x: f32[2, 3]"]
    bad = tmp_path / "bad.pt2"
    bad.write_bytes(b"x")
    with pytest.raises(ImportFailure, match="no exported program: not an archive"):
        load_graph(bad)
    with pytest.raises(InputOutputError):
        load_graph(tmp_path / "none.pt2")


def test_without_pytorch_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "onnxscript", types.ModuleType("onnxscript"))
    with pytest.raises(BackendUnavailable, match="pip install torch"):
        edgerun.from_torch(Module(), 1)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_pytorch_itself(tmp_path):
    import torch

    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(512, 4)
    )
    x = torch.randn(2, 3, 8, 8)
    expected = net.eval()(x).detach().numpy()
    for session in (
        edgerun.from_torch(net, x),
        edgerun.from_torch(net, x, dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=8)},)),
    ):
        name = session.inputs[0].name
        np.testing.assert_allclose(next(iter(session.run({name: x.numpy()}).values())), expected, atol=1e-5)
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, (x,)), path)
    session = edgerun.load(path)
    found = session.run({session.inputs[0].name: x.numpy()})
    np.testing.assert_allclose(next(iter(found.values())), expected, atol=1e-5)
