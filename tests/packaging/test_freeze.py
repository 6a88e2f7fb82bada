"""Engine python: files with CPython and NumPy inside, written here for this machine and for another."""

from __future__ import annotations

import http.client
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgerun import bench, bundle
from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.dtypes import DType
from edgerun.errors import BudgetExceeded, UnsupportedError, UsageError
from edgerun.graph import Graph
from edgerun.packed import read_footer
from edgerun.samples import random_values
from edgerun.session import load_graph
from edgerun_packaging.budgets import Budgets
from edgerun_packaging.freeze.build import PythonOptions, freeze
from edgerun_packaging.freeze.target_python import sysroot
from edgerun_packaging.pack import Options
from edgerun_targets import load
from tests.packaging.conftest import DIGITS, HOST, call

Freeze = Callable[..., Path]
SCRIPT = """
import numpy as np

INPUTS = {"photo": ("u8", [None, None])}


def prepare(inputs):
    photo = inputs["photo"].astype(np.float32) / 255
    return {"image": photo[None, None, ::2, ::2].copy()}


def finish(outputs):
    return {"digit": np.array([outputs["probabilities"].argmax()])}
"""


@pytest.fixture(scope="session")
def frozen(digits: Graph, tmp_path_factory: pytest.TempPathFactory) -> Freeze:
    """frozen(arch): the digits model as a file of engine python."""
    folder = tmp_path_factory.mktemp("frozen")

    def make(arch: str = HOST) -> Path:
        path = folder / f"digits-{arch}"
        if not path.exists():
            freeze(digits, load(arch), path, source=DIGITS / "digits.onnx", options=Options(threads=1))
        return path

    return make


def _json(done: subprocess.CompletedProcess[bytes]) -> Any:
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_verbs_and_fields_are_those_of_engine_native(frozen: Freeze, model: Path) -> None:
    image = ["--shape", "image=2,1,8,8", "--input", "random", "--seed", "3"]
    mine, native = (_json(call(p, "run", "--json", *image)) for p in (frozen(), model))
    assert mine.keys() == native.keys()
    np.testing.assert_allclose(mine["outputs"][0].pop("values"), native["outputs"][0].pop("values"), rtol=1e-5)
    assert mine["outputs"] == native["outputs"]
    timing = ["--shape", "image=1,1,8,8", "--runs", "3", "--threads", "1", "--layers", "--json"]
    mine, native = (_json(call(p, "bench", *timing)) for p in (frozen(), model))
    assert mine.keys() == native.keys() and mine["rows"][0].keys() >= set(bench.ROW_FIELDS)
    assert mine["layers"][0].keys() == native["layers"][0].keys()
    assert mine["memory"]["ram_predicted_bytes"] == pytest.approx(mine["memory"]["rss_peak_bytes"], rel=0.2)
    assert mine["memory"].keys() == native["memory"].keys()
    mine, native = (_json(call(p, "selftest", "--json")) for p in (frozen(), model))
    assert mine.keys() == native.keys() and mine["ok"] and mine["values"] == native["values"] > 0
    mine, native = (_json(call(p, "info", "--json")) for p in (frozen(), model))
    assert mine.keys() >= native.keys()
    assert mine["inputs"] == native["inputs"] and mine["outputs"] == native["outputs"]
    assert mine["manifest"]["engine"] == "python" and mine["file_bytes"] == frozen().stat().st_size
    assert any(name.startswith("numpy-") for name in mine["manifest"]["contents"])


def test_streams_and_files_of_outputs(frozen: Freeze, tmp_path: Path) -> None:
    images = [random_values(DType.F32, (1, 1, 8, 8), seed) for seed in range(3)]
    stream = io.BytesIO()
    for image in images:
        np.save(stream, image)
    words = ["run", "--stream", "--input", "-"]
    lines = call(frozen(), *words, stdin=stream.getvalue()).stdout.decode().splitlines()
    got = [json.loads(line)["outputs"][0]["values"] for line in lines]
    binary = io.BytesIO(call(frozen(), *words, "--output", "-", stdin=stream.getvalue()).stdout)
    for values in got:
        np.testing.assert_allclose(np.load(binary).ravel(), values, rtol=1e-6)
    np.save(tmp_path / "x.npy", images[0])
    call(frozen(), "run", "--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npz"))
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["probabilities"].ravel(), got[0], rtol=1e-6)
    call(frozen(), "run", "--input", str(tmp_path / "x.npy"), "--output-dir", str(tmp_path / "out"))
    np.testing.assert_allclose(np.load(tmp_path / "out" / "probabilities.npy").ravel(), got[0], rtol=1e-6)
    assert call(frozen(), "run", "--stream", "--input", "random").returncode == 2


def test_serve(frozen: Freeze) -> None:
    image = random_values(DType.F32, (1, 1, 8, 8), 1)
    with subprocess.Popen([frozen(), "serve", "--listen", "0"], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        port = int(process.stderr.readline().split(b":")[0].split()[-1])

        def ask(path: str, body: bytes | None = None, kind: str = "application/json") -> tuple[int, bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("POST" if body is not None else "GET", path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            return answer.status, answer.read()

        assert ask("/healthz") == (200, b'{"status": "ok"}\n')
        assert json.loads(ask("/metadata")[1])["inputs"][0]["name"] == "image"
        entry = {"name": "image", "shape": [1, 1, 8, 8], "values": image.ravel().tolist()}
        status, answer = ask("/infer", json.dumps({"inputs": [entry]}).encode())
        assert status == 200
        stream = io.BytesIO()
        np.save(stream, image)
        status, binary = ask("/infer", stream.getvalue(), "application/x-npy")
        values = json.loads(answer)["outputs"][0]["values"]
        np.testing.assert_allclose(np.load(io.BytesIO(binary)).ravel(), values, rtol=1e-6)
        for body in (b"", b"{}", b'{"inputs": [{"name": "x"}]}', b'{"inputs": [{"values": ["a"]}]}', b"[" * 5000):
            status, answer = ask("/infer", body)
            assert status == 400 and "error" in json.loads(answer)
        assert ask("/infer", b"xx", "application/x-npy")[0] == 400
        assert ask("/nothing")[0] == 404 and ask("/infer")[0] == 405
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM


def test_errors_have_the_codes_of_engine_native(frozen: Freeze) -> None:
    for words, code, text in [
        (["rnu"], 2, "did you mean 'run'?"),
        (["run", "--inptu", "x"], 2, "there is no option"),
        (["run", "--seed", "x", "--input", "random"], 2, "whole number"),
        (["run"], 2, "input image"),
        (["run", "--input", "nothing.npy"], 5, "nothing.npy"),
        (["run", "--input", "random", "--isa", "mmx", "--shape", "image=1,1,8,8"], 2, "no level"),
    ]:
        done = call(frozen(), *words)
        assert done.returncode == code, done.stderr
        assert text in done.stderr.decode() and done.stderr.count(b"\n") == 1
    assert b"selftest" in call(frozen(), "--help").stdout
    assert b"--output-dir" in call(frozen(), "run", "--help").stdout


def test_weights_stay_in_the_file_and_the_archive_is_pyinstallers(frozen: Freeze) -> None:
    from PyInstaller.archive.readers import CArchiveReader

    footer = read_footer(frozen())
    data = frozen().read_bytes()
    assert data[footer.plan_offset :][:8] == b"EDGEPLAN" and footer.archive_bytes > 1_000_000
    archive = CArchiveReader(str(frozen()))
    assert "PYZ.pyz" in archive.toc and not any("EDGEPLAN" in name for name in archive.toc)
    assert len(data) < 12_000_000


def test_nothing_is_left_in_the_temporary_folder(frozen: Freeze, tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([frozen(), "selftest"], env=environment, check=True, capture_output=True)
    assert list(tmp_path.iterdir()) == []
    words = [frozen(), "bench", "--shape", "image=1,1,8,8", "--seconds", "60"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as process:
        while not list(tmp_path.glob("*/*")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) != 0
    assert list(tmp_path.iterdir()) == []


def test_a_model_with_strings_runs_on_numpy(tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.STRING, ["N"]) for n in ("words", "marked"))
    mark = helper.make_tensor("mark", TensorProto.STRING, [1], [b"!"])
    graph = helper.make_graph([helper.make_node("StringConcat", ["words", "mark"], ["marked"])], "g", [x], [y], [mark])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), tmp_path / "s.onnx")
    np.savez(tmp_path / "golden.npz", words=np.array(["a", "bc"]))
    strings = load_graph(tmp_path / "s.onnx")
    freeze(strings, load(HOST), tmp_path / "s", options=Options(golden_file=tmp_path / "golden.npz"))
    (tmp_path / "in.txt").write_text("one\ntwo\nthree\n")
    document = _json(call(tmp_path / "s", "run", "--json", "--input", f"words={tmp_path / 'in.txt'}"))
    assert document["outputs"][0]["values"] == ["one!", "two!", "three!"]
    assert document["outputs"][0]["dtype"] == "string"
    test = _json(call(tmp_path / "s", "selftest", "--json"))
    assert test["ok"] and test["golden_sets"] == 1 and test["values"] == 2
    with pytest.raises(UnsupportedError):
        freeze(strings, load(HOST), tmp_path / "n", python=PythonOptions("native"))


def test_numpy_runs_a_numeric_model_with_its_own_blas(digits: Graph, tmp_path: Path) -> None:
    freeze(digits, load(HOST), tmp_path / "m", python=PythonOptions("numpy"))
    words = ["run", "--json", "--input", "random", "--seed", "1", "--shape", "image=2,1,8,8"]
    got = _json(call(tmp_path / "m", *words))["outputs"][0]["values"]
    want = NumpyExecutor(digits).run({"image": random_values(DType.F32, (2, 1, 8, 8), 1)})["probabilities"]
    np.testing.assert_allclose(np.reshape(got, (2, 10)), want, rtol=1e-4, atol=1e-6)
    assert _json(call(tmp_path / "m", "selftest", "--json"))["ok"]
    rows = _json(call(tmp_path / "m", "bench", "--runs", "2", "--json", "--layers", "--shape", "image=1,1,8,8"))
    assert rows["layers"][0]["kernel"] == "reshape" or rows["layers"]


def test_a_script_before_and_after_the_model(digits: Graph, tmp_path: Path) -> None:
    script = tmp_path / "digit.py"
    script.write_text(SCRIPT)
    freeze(digits, load(HOST), tmp_path / "m", python=PythonOptions(script=script))
    photo = np.zeros((16, 16), np.uint8)
    photo[2:14, 6:10] = 255
    np.save(tmp_path / "photo.npy", photo)
    outputs = _json(call(tmp_path / "m", "run", "--json", "--input", f"photo={tmp_path / 'photo.npy'}"))["outputs"]
    image = (photo.astype(np.float32) / 255)[None, None, ::2, ::2]
    want = NumpyExecutor(digits).run({"image": image})["probabilities"].argmax()
    assert outputs[0]["name"] == "digit" and outputs[0]["values"] == [int(want)]
    info = _json(call(tmp_path / "m", "info", "--json"))
    assert info["inputs"] == [{"name": "photo", "dtype": "u8", "shape": [None, None]}]
    np.save(tmp_path / "line.npy", np.zeros((4,), np.uint8))
    done = call(tmp_path / "m", "run", "--input", f"photo={tmp_path / 'line.npy'}")
    assert done.returncode == 1 and b"prepare of the script failed in line" in done.stderr


def test_a_script_may_not_import_what_is_not_there(digits: Graph, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import cv2\n")
    with pytest.raises(UnsupportedError, match="imports cv2"):
        freeze(digits, load(HOST), tmp_path / "m", python=PythonOptions(script=tmp_path / "s.py"))
    assert not (tmp_path / "m").exists()


def test_budgets_cover_this_engine(digits: Graph, tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded, match="NumPy") as caught:
        freeze(digits, load(HOST), tmp_path / "m", budgets=Budgets(max_size=5_000_000, max_ram=10_000_000))
    assert "ram budget exceeded" in caught.value.message and "--engine native" in caught.value.message
    with pytest.raises(UsageError, match="holds no CPython"):
        freeze(digits, load(HOST), tmp_path / "m", python=PythonOptions(python_root=tmp_path))
    with pytest.raises(UnsupportedError, match="does not support riscv64"):
        freeze(digits, load("riscv64"), tmp_path / "m")


def test_stock_pyinstaller(digits: Graph, tmp_path: Path) -> None:
    bundle.save(digits, tmp_path / "digits.edge")
    spec = Path(__file__).parents[2] / "packaging" / "edgerun.spec"
    words = [
        sys.executable,
        "-m",
        "PyInstaller",
        "--noconfirm",
        "--log-level",
        "ERROR",
        "--distpath",
        "dist",
        str(spec),
    ]
    environment = {
        **os.environ, "EDGERUN_MODEL": "digits.edge", "PYTHONPATH": os.pathsep.join(sys.path),
        "PYINSTALLER_CONFIG_DIR": str(tmp_path / "config"),
    }  # fmt: skip
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    program = tmp_path / "dist" / "digits"
    document = _json(call(program, "run", "--json", "--input", "random", "--seed", "4", "--shape", "image=1,1,8,8"))
    want = NumpyExecutor(digits).run({"image": random_values(DType.F32, (1, 1, 8, 8), 4)})["probabilities"]
    np.testing.assert_allclose(document["outputs"][0]["values"], want.ravel(), rtol=1e-4, atol=1e-6)
    assert _json(call(program, "info", "--json"))["backend"] == "native"


def test_wgpu_inside_on_a_software_adapter(digits: Graph, tmp_path: Path) -> None:
    if not list(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json")):
        if os.environ.get("EDGERUN_CI"):
            pytest.fail("lavapipe is not installed (apt install mesa-vulkan-drivers)")
        pytest.skip("lavapipe is not installed")
    fixed = load_graph(DIGITS / "digits.onnx", dims={"batch": 2})
    freeze(fixed, load(HOST), tmp_path / "m", python=PythonOptions("wgpu"))
    words = ["run", "--json", "--input", "random", "--seed", "1", "--allow-software-adapter"]
    got = _json(call(tmp_path / "m", *words))["outputs"][0]["values"]
    want = NumpyExecutor(digits).run({"image": random_values(DType.F32, (2, 1, 8, 8), 1)})["probabilities"]
    np.testing.assert_allclose(np.reshape(got, (2, 10)), want, rtol=1e-4, atol=1e-6)
    assert _json(call(tmp_path / "m", "selftest", "--json", "--allow-software-adapter"))["ok"]
    refused = subprocess.run([tmp_path / "m", "selftest"], capture_output=True, env={"VK_DRIVER_FILES": "/none"})
    assert refused.returncode == 3 and b"--backend native" in refused.stderr


def test_aarch64_runs_under_emulation(frozen: Freeze) -> None:
    """In a user and mount namespace of its own, where qemu runs what the file starts."""
    root, _ = sysroot("aarch64", ["libc6", "zlib1g"])
    path = frozen("aarch64")
    document = _json(_emulated(root, path, "run", "--json", "--input", "random", "--shape", "image=2,1,8,8"))
    native = _json(call(frozen(), "run", "--json", "--input", "random", "--shape", "image=2,1,8,8"))
    np.testing.assert_allclose(document["outputs"][0]["values"], native["outputs"][0]["values"], rtol=1e-4, atol=1e-7)
    assert _json(_emulated(root, path, "selftest", "--json"))["ok"]


def _emulated(root: Path, *words: Any) -> subprocess.CompletedProcess[bytes]:
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        if os.environ.get("EDGERUN_CI"):
            pytest.fail("qemu-user is not installed")
        pytest.skip("qemu-user is not installed")
    magic = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    mask = r"\xff\xff\xff\xff\xff\xff\xff\x00" + r"\xff" * 8 + r"\xfe\xff\xff\xff"
    script = (
        "mount -t binfmt_misc none /proc/sys/fs/binfmt_misc && "
        f"""printf '%s' ':arm:M::{magic}:{mask}:{emulator}:F' > /proc/sys/fs/binfmt_misc/register && exec "$@" """
    )
    return subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "--", *map(str, words)],
        env={**os.environ, "QEMU_LD_PREFIX": str(root)}, capture_output=True, timeout=180,
    )  # fmt: skip
