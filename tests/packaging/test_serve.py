"""`serve`: right answers, and no crash or growth whatever arrives."""

from __future__ import annotations

import http.client
import io
import json
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.dtypes import DType
from edgerun.graph import Graph
from edgerun.samples import random_values
from tests.packaging.conftest import call, emulator

NPY, JSON = "application/x-npy", "application/json"
POST = b"POST /infer HTTP/1.1\r\nContent-Type: application/x-npy\r\n"
A, B, N = random_values(DType.F32, (2, 3), 1), random_values(DType.F32, (3, 2), 2), np.array([2**60, -5])


class Server:
    """A packed file that serves on a free port."""

    def __init__(self, path: Path, *words: str, prefix: Sequence[str] = ()) -> None:
        command = [*prefix, str(path), "serve", "--listen", "0", *words]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        first = self.process.stderr.readline()
        match = re.search(r"listening on port (\d+)", first)
        assert match, first
        self.port = int(match.group(1))

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str, bytes]:
        """(status, content type, body)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        names = {k.replace("_", "-"): v for k, v in headers.items()}
        connection.request(method, path, body if method == "POST" else None, names)
        answer = connection.getresponse()
        result = answer.status, answer.headers["Content-Type"], answer.read()
        connection.close()
        return result

    def raw(self, data: bytes) -> bytes:
        """Everything the server sends until it closes, after `data` and the end of what we send."""
        with self.connect() as s:
            try:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
            except OSError:  # it has refused and closed already
                pass
            parts = []
            try:
                while part := s.recv(65536):
                    parts.append(part)
            except ConnectionResetError:
                pass
            return b"".join(parts)

    def resident(self) -> int:
        """Bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", text)[0]) * 1024

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(30)
        finally:
            self.process.kill()
            assert self.process.stderr is not None
            self.process.stderr.close()


@pytest.fixture(scope="module")
def digits_server(model: Path) -> Iterator[Server]:
    server = Server(model, "--timeout", "2")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def mixed_server(mixed: Path) -> Iterator[Server]:
    server = Server(mixed, "--timeout", "2")
    yield server
    assert server.stop() == 0


def npy(*arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    for array in arrays:
        np.save(stream, array)
    return stream.getvalue()


def entry(name: str, array: np.ndarray, **changes: Any) -> dict[str, Any]:
    return {"name": name, "shape": list(array.shape), "values": array.tolist()} | changes


def document(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"inputs": entries}).encode()


def test_health_and_metadata(digits_server: Server, model: Path) -> None:
    assert digits_server.request("GET", "/healthz") == (200, JSON, b'{"status": "ok"}\n')
    status, kind, body = digits_server.request("GET", "/metadata")
    assert (status, kind) == (200, JSON)
    assert json.loads(body) == json.loads(call(model, "info", "--json").stdout)


@pytest.mark.parametrize("kind", [NPY, JSON])
@pytest.mark.parametrize("accept", [NPY, JSON, ""])
def test_values(digits_server: Server, digits: Graph, kind: str, accept: str) -> None:
    """The batch changes from request to request; the metadata stays."""
    for count in (1, 5, 2):
        image = random_values(DType.F32, (count, 1, 8, 8), count)
        want = NumpyExecutor(digits).run({"image": image})["probabilities"]
        body = npy(image) if kind == NPY else document(entry("image", image))
        status, got, answer = digits_server.request("POST", "/infer", body, Content_Type=kind, Accept=accept)
        assert (status, got) == (200, accept or kind), answer
        if got == NPY:
            values = np.load(io.BytesIO(answer))
        else:
            output = json.loads(answer)["outputs"][0]
            assert list(output) == ["name", "dtype", "shape", "values"]
            values = np.reshape(output["values"], output["shape"])
        np.testing.assert_allclose(values, want, rtol=1e-4, atol=1e-6)
    assert json.loads(digits_server.request("GET", "/metadata")[2])["inputs"][0]["shape"] == [None, 1, 8, 8]


def test_several_inputs_and_outputs(mixed_server: Server) -> None:
    """npy arrays in the order of the inputs; JSON in any order; 64-bit integers exactly."""
    _, _, answer = mixed_server.request("POST", "/infer", npy(A, B, N), Content_Type=NPY)
    stream = io.BytesIO(answer)
    np.testing.assert_allclose(np.load(stream), A @ B, rtol=1e-5)
    np.testing.assert_array_equal(np.load(stream), N * 2)
    body = document(entry("n", N), entry("b", B, shape=[3, 2]), {"name": "a", "values": A.ravel().tolist()})
    status, _, answer = mixed_server.request("POST", "/infer", body, Content_Type=JSON)
    outputs = {o["name"]: o["values"] for o in json.loads(answer)["outputs"]}
    assert status == 200 and outputs["twice"] == [2**61, -10]
    np.testing.assert_allclose(outputs["product"], (A @ B).ravel(), rtol=1e-5)


def test_names_with_escapes_and_special_numbers(mixed_server: Server) -> None:
    values = ["nan", "inf", "-inf", 1e-40, -0.0, 1e300]
    text = json.dumps({"inputs": [entry("a", A, values=values), entry("b", B), entry("n", N)]})
    text = text.replace('"a"', '"\\u0061"').replace('"inputs"', ' \n"inputs" ')
    status, _, answer = mixed_server.request("POST", "/infer", text.encode(), Content_Type=JSON)
    assert status == 200 and json.loads(answer)["outputs"][0]["values"][0] == "nan"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (document(entry("a", A), entry("b", B)), "input 'n' is missing"),
        (document(entry("a", A), entry("a", A)), "given twice"),
        (document(entry("z", A)), "names no input"),
        (document(entry("a", A.T), entry("b", B), entry("n", N)), "shape [3, 2] does not fit input 'a'"),
        (document(entry("a", A, values=[1, 2]), entry("b", B), entry("n", N)), "has 2 values"),
        (document(entry("a", A, values=[1] * 7), entry("b", B), entry("n", N)), "more values"),
        (document(entry("a", A, values=["x"] * 6), entry("b", B), entry("n", N)), "is no number"),
        (document(entry("a", A, values=[{}] * 6), entry("b", B), entry("n", N)), "is no number"),
        (document(entry("a", A, values=3), entry("b", B), entry("n", N)), "no list"),
        (document(entry("a", A, shape=[2, -3]), entry("b", B), entry("n", N)), "whole numbers"),
        (document(entry("a", A), entry("b", B), entry("n", N, values=[1.5, 2])), "no whole number"),
        (document(entry("a", A), entry("b", B), entry("n", N, values=[2**63, 2])), "out of range"),
        (document(entry("a", A)) + b"x", "no valid JSON"),
        (b'{"inputs": [1,]}', "no valid JSON"),
        (b"[" * 100000, "no valid JSON"),
        (b"{}", 'no list "inputs"'),
        (b"", "no valid JSON"),
    ],
)
def test_wrong_json_is_explained(mixed_server: Server, body: bytes, message: str) -> None:
    status, kind, answer = mixed_server.request("POST", "/infer", body[:4000], Content_Type=JSON)
    assert (status, kind) == (400, JSON) and message in json.loads(answer)["error"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (npy(A, B), "ends too early"),
        (npy(A, B, N)[:-1], "ends before array 3"),
        (npy(A, B, N) + b"x", "1 bytes follow"),
        (npy(A, A, N), "shape [2, 3] does not fit input 'b'"),
        (npy(A, B.astype(np.float64), N), "holds f64"),
        (npy(A)[:5], "ends too early"),
        (b"x" * 500, "not an .npy"),
    ],
)
def test_wrong_npy_is_explained(mixed_server: Server, body: bytes, message: str) -> None:
    status, kind, answer = mixed_server.request("POST", "/infer", body, Content_Type=NPY)
    assert (status, kind) == (400, JSON) and message in json.loads(answer)["error"]


def test_requests_that_are_refused(mixed_server: Server) -> None:
    post = b"POST /infer HTTP/1.1\r\nHost: x\r\n"
    for data, status in [
        (b"GET /nowhere HTTP/1.1\r\n\r\n", 404),
        (b"DELETE /infer HTTP/1.1\r\n\r\n", 405),
        (b"GET /infer HTTP/1.1\r\n\r\n", 405),
        (post + b"\r\n", 411),
        (post + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (post + b"Content-Length: 3\r\n\r\nabc", 415),
        (post + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
        (post + b"Content-Length: -3\r\n\r\n", 400),
        (post + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
        (post + b"Content-Type: application/json\r\nContent-Length: 999999999\r\n\r\n", 413),
        (b"GET /healthz HTTP/2.0\r\n\r\n", 505),
        (b"GET  /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\nHost: x\n\n", 400),
        (b"GET /healthz HTTP/1.1\r\nBroken\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n: x\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 3000 + b"\r\n", 431),
        (b"\r\n\r\n", 400),
    ]:
        answer = mixed_server.raw(data)
        assert answer.startswith(b"HTTP/1.1 %d " % status), (data[:60], answer[:60])
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]


def test_a_connection_serves_many_requests_and_pipelines(mixed_server: Server) -> None:
    body = npy(A, B, N)
    one = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    answer = mixed_server.raw(one + one + b"GET /healthz HTTP/1.0\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 3 and answer.endswith(b'{"status": "ok"}\n')
    bye = mixed_server.raw(b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n")
    assert bye.count(b"HTTP/1.1 200 OK") == 1 and b"Connection: close" in bye


def test_expect_continue(mixed_server: Server) -> None:
    body = npy(A, B, N)
    head = (
        b"POST /infer HTTP/1.1\r\nContent-Type: application/x-npy\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    )
    with mixed_server.connect() as s:
        s.sendall(head % len(body))
        assert s.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(body)
        assert s.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_slow_clients_do_not_hold_up_others_and_are_cut_off(mixed_server: Server) -> None:
    slow = [mixed_server.connect() for _ in range(12)]
    for number, s in enumerate(slow):
        s.sendall(
            b"POST /infer HTTP/1.1\r\nContent-Type: application/x-npy\r\nContent-Length: 900\r\n\r\nx"[
                : 20 + 9 * number
            ]
        )
    start = time.monotonic()
    assert mixed_server.request("GET", "/healthz")[0] == 200
    assert time.monotonic() - start < 2, "the time-out of the slow ones"
    for s in slow:
        answer = b""
        while part := s.recv(1000):
            answer += part
        assert answer.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 503 "))
        s.close()


def test_more_clients_than_places(mixed_server: Server) -> None:
    results: list[int] = []

    def work() -> None:
        results.extend(mixed_server.request("POST", "/infer", npy(A, B, N), Content_Type=NPY)[0] for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [200] * 200


def test_ten_thousand_requests_without_growth(mixed: Path) -> None:
    server = Server(mixed)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    bodies = [(npy(A, B, N), NPY), (document(entry("a", A), entry("b", B), entry("n", N)), JSON), (b"{", JSON)]

    def many(count: int) -> None:
        for number in range(count):
            body, kind = bodies[number % 3]
            connection.request("POST", "/infer", body, {"Content-Type": kind})
            answer = connection.getresponse()
            assert answer.status == (400 if number % 3 == 2 else 200)
            answer.read()

    many(30)
    before = server.resident()
    many(10_000)
    assert server.resident() <= before + 8192
    connection.close()
    assert server.stop() == 0


def test_mutated_requests_never_end_it(mixed_server: Server) -> None:
    generator = random.Random(5)
    bodies = [(npy(A, B, N), NPY), (document(entry("a", A), entry("b", B), entry("n", N)), JSON)]
    for number in range(300):
        body, kind = bodies[number % 2]
        head = f"POST /infer HTTP/1.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        data = bytearray(head + body)
        low = 0 if number % 3 == 0 else len(head)
        for _ in range(generator.randrange(1, 6)):
            data[generator.randrange(low, len(data))] = generator.choice([0, 10, 13, 34, 44, 57, 91, 93, 123, 125, 255])
        if number % 5 == 0:
            del data[generator.randrange(len(data)) :]
        answer = mixed_server.raw(bytes(data))
        assert answer == b"" or answer.startswith(b"HTTP/1.1 "), (number, answer)
    assert mixed_server.request("GET", "/healthz")[0] == 200


def test_a_request_in_progress_is_answered_before_the_end(mixed: Path) -> None:
    server = Server(mixed)
    body = npy(A, B, N)
    with server.connect() as idle, server.connect() as s:
        s.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body))
        assert server.request("GET", "/healthz")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert idle.recv(10) == b""
        s.sendall(body)
        assert s.recv(100).startswith(b"HTTP/1.1 200 OK")
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--listen", "example.org:80"], 2, "numeric host"),
        (["--listen", "127.0.0.1:99999"], 2, "65535"),
        (["--listen", "[::1"], 2, "numeric host"),
        (["--max-body", "10"], 2, "--max-body"),
        (["--timeout", "0"], 2, "--timeout"),
    ],
)
def test_wrong_options(mixed: Path, words: list[str], code: int, message: str) -> None:
    done = call(mixed, "serve", *words)
    assert done.returncode == code and message in done.stderr.decode()


@pytest.mark.parametrize("arch", ["aarch64", "armv7", "riscv64"])
def test_under_emulation(packed: Callable[[str], Path], digits: Graph, arch: str) -> None:
    server = Server(packed(arch), prefix=emulator(arch))
    image = random_values(DType.F32, (2, 1, 8, 8), 3)
    status, _, answer = server.request("POST", "/infer", document(entry("image", image)), Content_Type=JSON, Accept=NPY)
    assert status == 200
    want = NumpyExecutor(digits).run({"image": image})["probabilities"]
    np.testing.assert_allclose(np.load(io.BytesIO(answer)), want, rtol=1e-4, atol=1e-6)
    assert server.stop() == 0


def test_a_port_in_use(mixed_server: Server, mixed: Path) -> None:
    done = call(mixed, "serve", "--listen", str(mixed_server.port))
    assert done.returncode == 5 and b"cannot listen" in done.stderr
