"""`bench`: one schema for all, boards over ssh, comparison with an earlier result."""

from __future__ import annotations

import copy
import json
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from edgerun.cli.main import run
from edgerun.errors import FileFormatError, UsageError
from edgerun.machine import host_arch
from edgerun.regression import compare, differences, read_document

ROOT = Path(__file__).parents[2]
ONNX = str(ROOT / "examples" / "digits" / "digits.onnx")
ONE = ["--shape", "image=1,1,8,8"]
QUICK = ["--runs", "3", "--threads", "1"]
SCHEMA = json.loads((ROOT / "docs" / "bench.schema.json").read_text())


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bench") / "digits"
    assert run(["pack", ONNX, "--dim", "batch=1..8", "-o", str(path)]) == 0
    return str(path)


def _bench(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["bench", *words, "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    return document


@pytest.mark.parametrize(
    ("backend", "layers"),
    [("packed", []), ("packed", ["--layers"]), ("native", []), ("native", ["--layers"]), ("numpy", [])],
)
def test_one_schema(capsys: pytest.CaptureFixture[str], packed: str, backend: str, layers: list[str]) -> None:
    words = [packed] if backend == "packed" else [ONNX, "--backend", backend]
    document = _bench(capsys, *words, *ONE, *QUICK, *layers)
    assert document["model"] == "digits" and document["machine"]["arch"] == host_arch()
    assert ("layers" in document) == bool(layers)


def test_packed_and_python_name_the_same_model_and_machine(capsys: pytest.CaptureFixture[str], packed: str) -> None:
    a, b = _bench(capsys, packed, *ONE, *QUICK), _bench(capsys, ONNX, *ONE, *QUICK)
    for field in ("version", "model", "sha256", "machine"):
        assert a[field] == b[field] != {}


# -- boards


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the board's /tmp, behind a program called ssh."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "board").mkdir()
    program = tmp_path / "bin" / "ssh"
    log = shlex.quote(str(tmp_path / "log"))
    program.write_text(
        f'#!/bin/sh\necho "$1" >>{log}\n'
        'if [ "$1" = down ]; then echo "ssh: connect to host down port 22: No route to host" >&2; exit 255; fi\n'
        'shift; exec sh -c "$*"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path / "board"


def test_bench_on_a_board(capsys: pytest.CaptureFixture[str], packed: str, board: Path) -> None:
    words = [packed, "--ssh", "pi@board", "--remote-dir", str(board), *ONE, *QUICK, "--layers"]
    document = _bench(capsys, *words)
    assert document["rows"][0]["runs"] == 3 and document["layers"]
    assert (board.parent / "log").read_text() == "pi@board\n"
    assert list(board.iterdir()) == [], "the copy is removed"
    assert run(["bench", *words]) == 0
    assert "peak RSS" in capsys.readouterr().out


def test_a_model_is_packed_for_the_board(capsys: pytest.CaptureFixture[str], board: Path) -> None:
    document = _bench(capsys, ONNX, "--ssh", "board", "--remote-dir", str(board), *ONE, *QUICK)
    assert document["memory"]["ram_predicted_bytes"] and document["model"] == "digits"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--ssh", "down"], 3, "cannot reach down: ssh: connect to host down port 22: No route to host"),
        (["--ssh", "board", "--remote-dir", "/nowhere"], 5, "--remote-dir"),
        (["--ssh", "board", "--input", "image=x.npy"], 2, "not copied"),
        (["--ssh", "-oProxyCommand=x"], 2, "no host"),
        (["--ssh", ""], 2, "no host"),
        (["--ssh", "board", "--shape", "image=1,1,8,9"], 2, "does not fit"),
        (["--ssh", "board", "--threads", "x y; touch z"], 2, "--threads"),
    ],
)
def test_what_goes_wrong_on_a_board(
    capsys: pytest.CaptureFixture[str], packed: str, board: Path, words: list[str], code: int, message: str
) -> None:
    base = [] if "--remote-dir" in words else ["--remote-dir", str(board)]
    assert run(["bench", packed, *base, *words]) == code
    assert message in capsys.readouterr().err
    assert list(board.iterdir()) == []


@pytest.mark.parametrize("threads", ["abc", "0", "1,,2", "", "-1", "2000", "1.5"])
def test_wrong_thread_counts(capsys: pytest.CaptureFixture[str], threads: str) -> None:
    assert run(["bench", ONNX, *ONE, "--threads", threads]) == 2
    error = capsys.readouterr().err
    assert "whole numbers from 1 to 1024; write a number" in error and "literal" not in error


def test_without_ssh(
    capsys: pytest.CaptureFixture[str], packed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["bench", packed, "--ssh", "board"]) == 3
    assert "ssh is not installed" in capsys.readouterr().err


# -- comparison

OLD: dict[str, Any] = {
    "sha256": "a",
    "machine": {"name": "board"},
    "rows": [{"threads": 1, "p50_ms": 10.0, "isa": "neon"}, {"threads": 4, "p50_ms": 4.0, "isa": "neon"}],
    "memory": {"rss_peak_bytes": 1000},
}


def _changed(**changes: float) -> dict[str, Any]:
    new = copy.deepcopy(OLD)
    new["rows"][0]["p50_ms"] = changes.get("one", 10.0)
    new["memory"]["rss_peak_bytes"] = int(changes.get("peak", 1000))
    return new


def test_compare() -> None:
    assert all(row["ok"] for row in compare(OLD, _changed(one=10.5, peak=1050), 0.05))
    slower = compare(OLD, _changed(one=10.6), 0.05)
    assert [row["ok"] for row in slower] == [False, True, True]
    assert slower[0]["change_percent"] == pytest.approx(6)
    assert [row["ok"] for row in compare(OLD, _changed(peak=1051), 0.05)] == [True, True, False]
    assert len(compare(OLD, OLD | {"rows": OLD["rows"][1:], "memory": {}}, 0.05)) == 1
    with pytest.raises(UsageError, match="no thread count in common") as caught:
        compare(OLD, OLD | {"rows": [{"threads": 2, "p50_ms": 1.0}]}, 0.05)
    assert "1,4" in caught.value.hint


def test_differences() -> None:
    assert differences(OLD, OLD) == []
    other = OLD | {"sha256": "b", "machine": {"name": "laptop"}, "rows": [OLD["rows"][0] | {"isa": "avx2"}]}
    assert [note.split()[2] for note in differences(OLD, other)] == ["machine:", "model:", "instruction"]


def test_compare_on_the_command_line(capsys: pytest.CaptureFixture[str], packed: str, tmp_path: Path) -> None:
    document = _bench(capsys, packed, *ONE, *QUICK)
    for factor, code in ((1000.0, 0), (0.001, 1)):
        old = copy.deepcopy(document)
        old["rows"][0]["p50_ms"] *= factor
        (tmp_path / "old.json").write_text(json.dumps(old))
        words = [packed, *ONE, *QUICK, "--compare", str(tmp_path / "old.json"), "--tolerance", "50%"]
        new = _bench(capsys, *words, code=code)
        assert new["changes"][0]["ok"] == (code == 0)
        assert run(["bench", *words]) == code
        assert f"{code} of 2 values are worse by more than 50 %" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [1]}', '{"rows": [{"threads": 1}]}', '{"rows": {}}'])
def test_what_is_no_result_of_bench(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(FileFormatError):
        read_document(tmp_path / "x.json")


def test_old_result_is_read_before_measuring(capsys: pytest.CaptureFixture[str], packed: str) -> None:
    assert run(["bench", packed, *ONE, "--compare", "/nowhere.json"]) == 5
    assert "/nowhere.json" in capsys.readouterr().err
