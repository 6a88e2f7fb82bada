"""WebAssembly modules: run by node (with its WASI and without), by a browser, against the NumPy kernels."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import random
import shutil
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.cli.main import run
from edgerun.errors import BudgetExceeded, FileFormatError
from edgerun.graph import Graph
from edgerun.session import load_graph
from edgerun_packaging import stubs
from edgerun_packaging.budgets import Budgets
from edgerun_packaging.wasm_module import memory_bytes, with_plan
from edgerun_packaging.wasm_pack import pack_wasm
from edgerun_targets import load
from tests.packaging.conftest import DIGITS


def tool(*names: str) -> str:
    """Path of the first program that is there. Skips the test where none is; in CI that is a failure."""
    for name in names:
        if found := shutil.which(name):
            return found
    message = f"{names[0]} is not installed"
    if os.environ.get("EDGERUN_CI"):
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wasm") / "digits"
    graph = load_graph(DIGITS / "digits.onnx", dims={"batch": (1, 8)})
    pack_wasm(graph, load("wasm32"), path, source=DIGITS / "digits.onnx")
    return path


def node(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool("node", "nodejs"), str(folder / "run.mjs"), *arguments], capture_output=True, text=True, timeout=120
    )


def test_values_equal_the_numpy_kernels(folder: Path, digits: Graph, tmp_path: Path) -> None:
    images = np.random.default_rng(3).random((8, 1, 8, 8), np.float32)
    (tmp_path / "images.raw").write_bytes(images.tobytes())
    done = node(folder, "--shape", "image=8,1,8,8", f"image={tmp_path / 'images.raw'}")
    assert done.returncode == 0, done.stderr
    (output,) = json.loads(done.stdout)["outputs"]
    assert (output["name"], output["dtype"], output["shape"]) == ("probabilities", "f32", [8, 10])
    expected = NumpyExecutor(digits).run({"image": images})["probabilities"]
    np.testing.assert_allclose(np.array(output["values"]).reshape(8, 10), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shape", "image=9,1,8,8"], "has size 9; the plan is made for 1 to 8"),
        (["--shape", "image=1,1,8"], "rank 4, not 3"),
        (["image"], "cannot read image"),
    ],
)
def test_errors_are_sentences(folder: Path, arguments: list[str], words: str) -> None:
    done = node(folder, *arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_wasi_host(folder: Path, tmp_path: Path) -> None:
    """node's own WASI initialises the module; no other import than WASI's is needed."""
    script = tmp_path / "wasi.mjs"
    script.write_text(
        "import { WASI } from 'node:wasi'; import { readFile } from 'node:fs/promises';\n"
        "const wasi = new WASI({ version: 'preview1' });\n"
        "const bytes = await readFile(process.argv[2]);\n"
        "const { instance } = await WebAssembly.instantiate(bytes, wasi.getImportObject());\n"
        "wasi.initialize(instance);\n"
        "const e = instance.exports, at = e.malloc(4);\n"
        "const status = e.edgerun_open(0, 0, 1, at);\n"
        "console.log(status, e.edgerun_count(new DataView(e.memory.buffer).getUint32(at, true), 0));\n"
    )
    command = [tool("node", "nodejs"), "--no-warnings", str(script), str(folder / "model.wasm")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "0 1\n", done.stderr


def test_opened_again_and_again_takes_no_more_memory(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "again.mjs"
    script.write_text(
        f"import {{ Model }} from {json.dumps(str(folder / 'edgerun.mjs'))};\n"
        "import { readFile } from 'node:fs/promises';\n"
        "const first = await Model.load(await readFile(process.argv[2]));\n"
        "const image = { image: { data: new Float32Array(512), shape: [8, 1, 8, 8] } };\n"
        "first.run(image); first.close();\n"
        "const before = first.memoryBytes;\n"
        "for (let i = 0; i < 50; i++) { const m = new Model(first.wasm); m.run(image); m.close(); }\n"
        "console.log(first.memoryBytes - before);\n"
    )
    done = subprocess.run(
        [tool("node", "nodejs"), str(script), str(folder / "model.wasm")], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 1 << 16


def test_memory_is_as_predicted(folder: Path, digits: Graph, tmp_path: Path) -> None:
    packed = pack_wasm(digits, load("wasm32"), tmp_path / "again")
    done = node(folder, "--shape", "image=8,1,8,8")
    measured = json.loads(done.stdout)["memory_bytes"]
    assert abs(measured - packed.footprint.ram_bytes) <= 3 * 65536


def test_page_in_a_browser(folder: Path) -> None:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        command = [
            tool("chromium", "chromium-browser", "google-chrome"), "--headless", "--no-sandbox", "--disable-gpu",
            "--virtual-time-budget=20000", "--dump-dom", f"http://127.0.0.1:{server.server_address[1]}/index.html#run",
        ]  # fmt: skip
        page = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    finally:
        server.shutdown()
        server.server_close()
    assert "<td>probabilities</td><td>1 x 10</td><td>largest 0." in page, page[-3000:]
    assert '<p id="error"></p>' in page


def test_budgets(digits: Graph, tmp_path: Path) -> None:
    with pytest.raises(BudgetExceeded, match="size budget exceeded"):
        pack_wasm(digits, load("wasm32"), tmp_path / "none", budgets=Budgets(max_size=100_000))
    assert not (tmp_path / "none").exists()


def test_cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "web"
    arguments = ["pack", str(DIGITS / "digits.onnx"), "--target", "wasm32", "--dim", "batch=1..8", "-o", str(out)]
    assert run([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bytes"] == (out / "model.wasm").stat().st_size == sum(p["bytes"] for p in document["size"])
    assert run(arguments) == 5
    assert run([*arguments, "--force", "--max-latency", "1ms"]) == 2


def test_slot_and_memory() -> None:
    library = stubs.find("wasm32", "wasm").read_bytes()
    plan = bytes(range(256)) * 1000
    module = with_plan(library, plan)
    assert module.count(plan) == 1
    assert memory_bytes(module) == memory_bytes(library) + 4 * 65536
    with pytest.raises(FileFormatError, match="not one that plans are put into"):
        with_plan(library.replace(b"edgerun: plan at", b"edgerun: plan a_"), plan)


def test_mutated_modules_are_refused_or_parsed() -> None:
    library = stubs.find("wasm32", "wasm").read_bytes()
    generator = random.Random(1)
    for _ in range(300):
        broken = bytearray(library)
        for _ in range(3):
            broken[generator.randrange(200 if generator.random() < 0.7 else len(broken))] = generator.randrange(256)
        data = bytes(broken[: generator.randrange(len(broken))]) if generator.random() < 0.3 else bytes(broken)
        with contextlib.suppress(FileFormatError):
            with_plan(data, b"x" * 100)
