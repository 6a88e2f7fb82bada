"""Packed files that several tests share. Each is made once in a session."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from edgerun.graph import Graph
from edgerun.machine import host_arch
from edgerun.session import load_graph
from edgerun_packaging.pack import Options, pack
from edgerun_targets import load

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
HOST = host_arch()
Call = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(scope="session")
def digits() -> Graph:
    """The example's graph with its batch free from 1 to 8."""
    return load_graph(DIGITS / "digits.onnx", dims={"batch": (1, 8)})


@pytest.fixture(scope="session")
def packed(digits: Graph, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """packed(arch): the digits model packed for it."""
    folder = tmp_path_factory.mktemp("packed")

    def make(arch: str) -> Path:
        path = folder / f"digits-{arch}"
        if not path.exists():
            pack(digits, load(arch), path, source=DIGITS / "digits.onnx", options=Options(threads=1))
        return path

    return make


@pytest.fixture(scope="session")
def model(packed: Callable[[str], Path]) -> Path:
    """Packed for this machine."""
    return packed(HOST)


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed for this machine: product = a[2, 3] @ b[3, 2] in f32, and twice = n[2] + n in i64."""
    from onnx import TensorProto, helper, save

    folder = tmp_path_factory.mktemp("mixed")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["product"]), helper.make_node("Add", ["n", "n"], ["twice"])],
        "mixed",
        [
            value("a", TensorProto.FLOAT, [2, 3]),
            value("b", TensorProto.FLOAT, [3, 2]),
            value("n", TensorProto.INT64, [2]),
        ],
        [value("product", TensorProto.FLOAT, [2, 2]), value("twice", TensorProto.INT64, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    save(model, folder / "mixed.onnx")
    pack(load_graph(folder / "mixed.onnx"), load(HOST), folder / "mixed", options=Options(threads=1))
    return folder / "mixed"


def emulator(arch: str) -> list[str]:
    """The command prefix that runs `arch` here. Skips the test where qemu is missing; in CI that is a failure."""
    if arch == HOST:
        return []
    name = "qemu-" + {"armv7": "arm"}.get(arch, arch)
    found = shutil.which(name) or shutil.which(f"{name}-static")
    if found is None:
        message = f"{name} is not installed (apt install qemu-user)"
        if os.environ.get("EDGERUN_CI"):
            pytest.fail(message)
        pytest.skip(message)
    return [found]


def call(path: Path, *arguments: str, arch: str = HOST, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a packed file. Times out after a minute."""
    return subprocess.run([*emulator(arch), str(path), *arguments], input=stdin, capture_output=True, timeout=60)
