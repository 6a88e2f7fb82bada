"""Records on standard input, results on standard output: the packed file and the Python tool alike."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.dtypes import DType
from edgerun.graph import Graph
from edgerun.samples import random_values
from tests.packaging.conftest import DIGITS, call

ROOT = Path(__file__).parents[2]
Run = Callable[[list[str], bytes], "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(params=["packed", "python"])
def run(request: pytest.FixtureRequest, model: Path) -> Run:
    """`run` of the packed file, and of the Python tool on the same model."""
    if request.param == "packed":
        return lambda words, stdin: call(model, "run", *words, stdin=stdin)
    paths = os.pathsep.join(str(ROOT / p) for p in (".", "converters", "packaging", "targets"))
    command = [sys.executable, "-m", "edgerun", "run", str(DIGITS / "digits.onnx"), "--dim", "batch=1..8"]
    environment = os.environ | {"PYTHONPATH": paths}
    return lambda words, stdin: subprocess.run([*command, *words], input=stdin, capture_output=True, env=environment)


def _npy(*arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    for array in arrays:
        np.save(stream, array)
    return stream.getvalue()


IMAGES = [random_values(DType.F32, (n, 1, 8, 8), n) for n in (1, 3, 1, 1)]


def _want(digits: Graph) -> list[np.ndarray]:
    return [NumpyExecutor(digits).run({"image": image})["probabilities"] for image in IMAGES]


def test_npy_to_npy(run: Run, digits: Graph) -> None:
    """The batch may change from record to record."""
    done = run(["--stream", "--input", "-", "--output", "-"], _npy(*IMAGES))
    assert done.returncode == 0, done.stderr
    stream = io.BytesIO(done.stdout)
    for want in _want(digits):
        np.testing.assert_allclose(np.load(stream), want, rtol=1e-4, atol=1e-6)
    assert stream.read() == b""


def test_raw_to_raw(run: Run, digits: Graph) -> None:
    data = b"".join(image.tobytes() for image in IMAGES if len(image) == 1)
    words = ["--stream", "--input", "image=raw:-", "--output", "raw:-", "--shape", "image=1,1,8,8"]
    done = run(words, data)
    assert done.returncode == 0, done.stderr
    want = np.concatenate([w for w in _want(digits) if len(w) == 1])
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32).reshape(-1, 10), want, rtol=1e-4, atol=1e-6)


def test_a_line_of_json_for_each_record(run: Run, digits: Graph) -> None:
    done = run(["--stream", "--input", "-"], _npy(*IMAGES))
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for line, want in zip(lines, _want(digits), strict=True):
        output = line["outputs"][0]
        np.testing.assert_allclose(np.reshape(output["values"], output["shape"]), want, rtol=1e-4, atol=1e-6)
        assert set(line) == {"backend", "load_ms", "run_ms", "outputs", "memory"}


def test_npz(run: Run, digits: Graph, tmp_path: Path) -> None:
    words = ["--input", "-", "--output", str(tmp_path / "out.npz")]
    assert run(words, _npy(IMAGES[1])).returncode == 0
    with np.load(tmp_path / "out.npz", allow_pickle=False) as archive:
        np.testing.assert_allclose(archive["probabilities"], _want(digits)[1], rtol=1e-4, atol=1e-6)
    assert run(words, _npy(IMAGES[1])).returncode == 5
    assert run([*words, "--force"], _npy(IMAGES[1])).returncode == 0


@pytest.mark.parametrize(
    ("words", "stdin", "code", "message"),
    [
        (["--stream", "--input", "zeros", "--shape", "image=1,1,8,8"], b"", 2, "--input NAME=-"),
        (["--stream", "--input", "-", "--output-dir", "x"], _npy(IMAGES[0]), 2, "standard output"),
        (["--input", "-", "--output", "x.npz", "--output-dir", "x"], _npy(IMAGES[0]), 2, "not both"),
        (["--input", "-", "--output", "x.txt"], _npy(IMAGES[0]), 2, ".npz"),
        (["--stream", "--input", "-", "--output", "-"], b"", 5, ""),
        (["--stream", "--input", "-", "--output", "-"], _npy(IMAGES[0])[:-1], 5, ""),
        (["--stream", "--input", "-", "--output", "-"], _npy(IMAGES[0]) + b"\x93NUM", 5, ""),
        (["--stream", "--input", "-", "--output", "-"], _npy(IMAGES[0], np.zeros((1, 1, 8, 9), "f4")), None, "8"),
    ],
)
def test_what_goes_wrong(run: Run, words: list[str], stdin: bytes, code: int | None, message: str) -> None:
    done = run(words, stdin)
    assert done.returncode == code if code is not None else done.returncode in (1, 2), done.stderr
    assert message in done.stderr.decode() and b"Traceback" not in done.stderr


def test_several_inputs_from_one_stream(mixed: Path) -> None:
    """In the order of the inputs, record after record."""
    a, b = random_values(DType.F32, (2, 3), 1), random_values(DType.F32, (3, 2), 2)
    n = np.array([2**60, -5])
    words = [w for name in "abn" for w in ("--input", f"{name}=-")]
    done = call(mixed, "run", "--stream", "--output", "-", *words, stdin=_npy(a, b, n, a + 1, b, -n))
    assert done.returncode == 0, done.stderr
    stream = io.BytesIO(done.stdout)
    for want in (a @ b, n * 2, (a + 1) @ b, n * -2):
        np.testing.assert_allclose(np.load(stream), want, rtol=1e-5)
