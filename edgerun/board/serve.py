"""`serve`: GET /healthz, GET /metadata, POST /infer with the bodies of the native launcher's (infer.c)."""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.board.common import open_file
from edgerun.board.hooks import Hooks
from edgerun.board.info import document_of
from edgerun.board.model import BoardModel
from edgerun.board.options import Options, count
from edgerun.board.run import output_of, plain_array
from edgerun.errors import EdgerunError, InputOutputError, UsageError
from edgerun.report import plain
from edgerun.session import PortInfo

DEFAULT_BODY = 64 << 20


def command(file: Path, options: Options, started: float) -> int:
    """Serve until a signal ends the process. Raises InputOutputError when the address is taken."""
    host, _, port = (options.listen or "8080").rpartition(":")
    number = count(port, "--listen", 0, 65535)
    model, hooks = open_file(file, options)

    class Handler(_Handler):
        pass

    Handler.model, Handler.hooks, Handler.timeout = model, hooks, options.timeout
    Handler.metadata = (json.dumps(plain(document_of(file, model, hooks))) + "\n").encode()
    Handler.max_body = options.max_body or DEFAULT_BODY
    try:
        server = HTTPServer((host or "127.0.0.1", number), Handler)
    except (OSError, socket.gaierror) as e:
        raise InputOutputError(f"cannot listen on {options.listen or '8080'}: {e.strerror}") from e
    where = server.server_address[1]
    print(f"listening on port {where}: GET /healthz, GET /metadata, POST /infer", file=sys.stderr, flush=True)
    server.serve_forever()
    return 0


class _Handler(BaseHTTPRequestHandler):
    """One request after the other: the model is used by one at a time."""

    model: BoardModel
    hooks: Hooks
    metadata: bytes
    max_body: int
    protocol_version = "HTTP/1.1"
    server_version = "edgerun"

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._answer(200, b'{"status": "ok"}\n')
        elif self.path == "/metadata":
            self._answer(200, self.metadata)
        elif self.path == "/infer":
            self._refuse(405, "POST is the method of /infer")
        else:
            self._refuse(404, "there are /healthz, /metadata and /infer")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.path != "/infer":
            self._refuse(405 if self.path in ("/healthz", "/metadata") else 404, "POST is for /infer")
        elif not length.isdecimal():
            self._refuse(411, "Content-Length is missing")
        elif int(length) > self.max_body:
            self._refuse(413, f"the body is larger than {self.max_body} bytes")
        else:
            self._infer(self.rfile.read(int(length)))

    def _infer(self, body: bytes) -> None:
        npy = self.headers.get_content_type() == "application/x-npy"
        ports = self.hooks.inputs(self.model.inputs)
        try:
            arrays = _from_npy(body, ports) if npy else _from_json(body, ports)
            start = time.perf_counter()
            results = self.hooks.finish(self.model.run(self.hooks.prepare(arrays)))
            ms = (time.perf_counter() - start) * 1e3
        except UsageError as e:
            return self._refuse(400, str(e))
        except EdgerunError as e:
            return self._refuse(422, str(e))
        named = {name: plain_array(value) for name, value in results.items()}
        if npy:
            out = io.BytesIO()
            for array in named.values():
                np.save(out, array, allow_pickle=False)
            return self._answer(200, out.getvalue(), "application/x-npy")
        document = {"run_ms": ms, "outputs": [output_of(name, a, True) for name, a in named.items()]}
        return self._answer(200, (json.dumps(plain(document)) + "\n").encode())

    def _refuse(self, status: int, reason: str) -> None:
        self.close_connection = True  # a body that was not read would be taken for the next request
        self._answer(status, (json.dumps({"error": reason}) + "\n").encode())

    def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed for a request."""


def _from_npy(body: bytes, ports: Sequence[PortInfo]) -> dict[str, np.ndarray]:
    """One array for each input, one after another. Raises UsageError."""
    stream = io.BytesIO(body)
    try:
        arrays = {p.name: np.load(stream, allow_pickle=False) for p in ports}
    except (ValueError, EOFError, OSError) as e:
        raise UsageError(f"the body is not one npy array for each input: {e}") from e
    if stream.read(1):
        raise UsageError("bytes follow the last array")
    return arrays


def _from_json(body: bytes, ports: Sequence[PortInfo]) -> dict[str, np.ndarray]:
    """{"inputs": [{"name": ..., "shape": [...], "values": [...]}]}. Raises UsageError."""
    try:
        entries = json.loads(body)["inputs"]
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise UsageError('the body has no list "inputs"') from e
    by_name = {p.name: p for p in ports}
    arrays: dict[str, np.ndarray] = {}
    for entry in entries if isinstance(entries, list) else []:
        name = entry.get("name", ports[0].name if len(ports) == 1 else None) if isinstance(entry, Mapping) else None
        port = by_name.get(name) if isinstance(name, str) else None
        if port is None:
            raise UsageError('an entry of "inputs" names no input of the model (see /metadata)')
        try:
            values = np.array(entry["values"], port.dtype.numpy)
            shape = entry.get("shape") or [d for d in port.shape or () if isinstance(d, int)]
            arrays[port.name] = values.reshape(shape)
        except (KeyError, ValueError, TypeError, OverflowError) as e:
            raise UsageError(f"input {port.name!r}: {e}") from e
    missing = [n for n in by_name if n not in arrays]
    if missing:
        raise UsageError(f'input {missing[0]!r} is missing in "inputs"')
    return arrays
