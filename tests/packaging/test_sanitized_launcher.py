"""The launcher under the address and undefined behaviour sanitizers: mutated files, arrays, manifests and requests.

EDGERUN_FUZZ_ROUNDS=2000 looks for longer than the tests do.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from edgerun.packed import assemble, map_plan, read_footer
from edgerun.plan import PlanReader
from edgerun.plan.layout import fnv1a
from edgerun_packaging.extras import Vector, with_extras
from tests.native import sanitize
from tests.packaging.conftest import HOST
from tests.packaging.namespaces import unavailable
from tests.packaging.test_serve import Server

ROUNDS = int(os.environ.get("EDGERUN_FUZZ_ROUNDS", "60"))
BYTES = [0, 1, 9, 10, 13, 34, 39, 40, 44, 46, 47, 57, 58, 91, 93, 123, 125, 127, 128, 255]
MANIFEST = {
    "model": {"name": "m", "sha256": "0" * 64, "opset": {"ai.onnx": 17}},
    "budgets": {"max_latency_ms": 5},
    "threads": 1,
    "ram": [{"part": "weights", "bytes": 4096}, {"part": "arena", "bytes": 8192}],
    "ram_bytes": 12288,
    "golden": [{"seed": None, "shapes": [[2, 3, 3]]}],
}


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The program without a plan."""
    if shutil.which("gcc") is None:
        unavailable("gcc is not installed: the address sanitizer comes with it")
    path = tmp_path_factory.mktemp("sanitized") / "launcher"
    sanitize.gcc_launcher(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A plan with free dimensions, a manifest and golden vectors."""
    free = sanitize.copy_plans(tmp_path_factory.mktemp("plans"))[1].read_bytes()
    x = np.arange(18, dtype=np.float32)
    vectors = [Vector(0, 0, x.tobytes(), 0, 0), Vector(0, 1, x.tobytes(), 1e-6, 0), Vector(0, 2, x.tobytes(), 1e-6, 0)]
    return with_extras(free, json.dumps(MANIFEST).encode() + b"\0", vectors)


@pytest.fixture
def call(launcher: bytes, plan: bytes, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """call(words, plan=..., stdin=...): runs it and demands a clean exit."""

    def run(words: list[str], data: bytes = plan, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        path = tmp_path / "m"
        path.write_bytes(b"".join(assemble(launcher, data, HOST)))
        path.chmod(0o755)
        done = subprocess.run([path, *words], input=stdin, capture_output=True, timeout=60)
        assert done.returncode in (0, 1, 2, 3, 5), (words, done.returncode, done.stderr.decode(errors="replace"))
        assert b"Sanitizer" not in done.stderr and b"runtime error" not in done.stderr, done.stderr.decode()
        return done

    return run


def _mutations(data: bytes, seed: int, low: int = 0, high: int | None = None) -> Iterator[bytes]:
    generator = random.Random(seed)
    for number in range(ROUNDS):
        changed = bytearray(data)
        for _ in range(generator.randrange(1, 5)):
            changed[generator.randrange(low, high or len(data))] = generator.choice(BYTES)
        if number % 6 == 0 and high is None:
            del changed[generator.randrange(low, len(changed)) :]
        yield bytes(changed)


VERBS = [
    ["info"], ["info", "--json"], ["selftest"], ["run", "--input", "random", "--shape", "x=2,3,3", "--json"],
    ["bench", "--shape", "x=2,1,3", "--runs", "2", "--layers", "--json"], ["run", "--input", "zeros"],
]  # fmt: skip


def test_the_original_is_right(call: Callable[..., subprocess.CompletedProcess[bytes]]) -> None:
    for words in VERBS[:5]:
        done = call(words)
        assert done.returncode == 0, done.stderr
        if "--json" in words:
            json.loads(done.stdout)


def test_plans(call: Callable[..., subprocess.CompletedProcess[bytes]], plan: bytes) -> None:
    """Tables, manifest and golden vectors changed, all checksums renewed."""
    weights = len(PlanReader(plan).weights)
    for number, changed in enumerate(_mutations(plan, 1, low=16, high=len(plan) - weights)):
        data = bytearray(changed)
        data[56:64] = fnv1a(bytes(data[128 : len(data) - weights])).to_bytes(8, "little")
        call(VERBS[number % len(VERBS)], bytes(data))


def test_manifests(call: Callable[..., subprocess.CompletedProcess[bytes]], plan: bytes) -> None:
    text = json.dumps(MANIFEST).encode()
    for number, changed in enumerate(_mutations(text, 2)):
        call(VERBS[number % len(VERBS)], with_extras(plan, changed + b"\0" * (number % 2), []))


@pytest.mark.parametrize("kind", ["npy", "npz", "-"])
def test_arrays(call: Callable[..., subprocess.CompletedProcess[bytes]], tmp_path: Path, kind: str) -> None:
    stream = io.BytesIO()
    array = np.ones((2, 3, 3), np.float32)
    if kind == "npz":
        np.savez(stream, x=array, other=array)
    else:
        np.save(stream, array)
    data = stream.getvalue() * (2 if kind == "-" else 1)
    path = tmp_path / f"a.{kind}"
    for changed in _mutations(data, 3):
        if kind == "-":
            call(["run", "--stream", "--input", "-", "--output", "-"], stdin=changed)
        else:
            path.write_bytes(changed)
            call(["run", "--input", f"x={path}", "--output", str(tmp_path / "o.npz"), "--force"])


def test_command_lines(call: Callable[..., subprocess.CompletedProcess[bytes]]) -> None:
    line = b"run --input x=zeros --shape x=2,3,3 --threads 1,2 --runs 9 --output raw:- --isa sse2 --seed 1"
    for changed in _mutations(line.replace(b" ", b"\n"), 4):
        words = [w for w in changed.replace(b"\0", b"").decode("latin-1").split("\n") if "/" not in w]
        if "generate" not in words and "serve" not in words:
            call(words)


def test_requests(launcher: bytes, plan: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"".join(assemble(launcher, plan, HOST)))
    path.chmod(0o755)
    server = Server(path, "--timeout", "2", "--max-body", "4096")
    stream = io.BytesIO()
    np.save(stream, np.ones((2, 3, 3), np.float32))
    text = json.dumps({"inputs": [{"name": "\u00fcx\\", "shape": [2, 3, 3], "values": [[1.5, "nan"]] * 9}]})
    bodies = [
        ("application/x-npy", stream.getvalue()),
        ("application/json", text.replace("\\u00fcx\\\\", "\\u0078").encode()),
    ]
    for kind, body in bodies:
        head = f"POST /infer HTTP/1.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        assert server.raw(head + body).startswith(b"HTTP/1.1 200 OK")
        for low in (0, len(head)):
            for changed in _mutations(head + body, 5 + low, low=low):
                server.raw(changed)
        for changed in _mutations(body, 6):
            head = f"POST /infer HTTP/1.1\r\nContent-Type: {kind}\r\nContent-Length: {len(changed)}\r\n\r\n".encode()
            assert server.raw(head + changed).startswith(b"HTTP/1.1 ")
    assert server.request("GET", "/healthz")[0] == 200
    assert server.stop() == 0


def test_the_footer(launcher: bytes, plan: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m"
    data = b"".join(assemble(launcher, plan, HOST))
    path.write_bytes(data)
    start = read_footer(path).plan_offset
    assert bytes(map_plan(path)) == plan
    for changed in _mutations(data[start:], 7):
        path.write_bytes(data[:start] + changed)
        path.chmod(0o755)
        done = subprocess.run([path, "info"], capture_output=True, timeout=60)
        assert done.returncode in (0, 1, 2, 3, 5) and b"Sanitizer" not in done.stderr, done.stderr
