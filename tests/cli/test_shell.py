"""The command line as a whole: quick help, exit codes, did-you-mean, output formats."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgerun.cli import main as shell
from edgerun.cli.main import VERBS, run

HEAVY = ("numpy", "onnx", "rich", "onnxruntime")


def _modules_after(arguments: list[str]) -> set[str]:
    code = (
        "import sys; from edgerun.cli.main import run\n"
        f"run({arguments!r})\nprint('MODULES', *sys.modules, file=sys.stderr)"
    )
    root = Path(__file__).parents[2]
    paths = [str(root / p) for p in (".", "converters", "packaging", "targets")]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Usage" in done.stdout
    return set(done.stderr.rpartition("MODULES ")[2].split())


@pytest.mark.parametrize("arguments", [["--help"], *([verb, "--help"] for verb in VERBS)])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    loaded = _modules_after(arguments)
    assert not loaded & set(HEAVY)
    assert not [m for m in loaded if m.startswith(("edgerun_converters", "edgerun_packaging", "edgerun_targets"))]


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_has_a_purpose_and_a_runnable_example_first(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0].startswith("Usage: ")
    assert lines[1].endswith(".") or lines[2].endswith(".")
    example = next(line for line in lines if line.startswith("$ edgerun "))
    assert example.split()[2] == verb
    assert lines.index(example) < lines.index("Options:")


def test_the_package_runs_as_a_module() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-m", "edgerun", "--version"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("edgerun ")


def test_unknown_verb_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bnech", "x"]) == 2
    assert "did you mean bench" in capsys.readouterr().err


def test_unknown_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["targets", "--wrong"]) == 2
    assert "--wrong" in capsys.readouterr().err


def test_unknown_target_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["targets", "rpi-4"]) == 2
    assert "did you mean rpi4" in capsys.readouterr().err


def test_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "/nowhere/model.onnx"]) == 5
    assert "/nowhere/model.onnx" in capsys.readouterr().err


def test_damaged_file_is_an_io_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\xff" * 100)
    assert run(["inspect", str(path)]) == 5
    error = capsys.readouterr().err
    assert error.startswith("edgerun: ") and "Traceback" not in error


def test_interrupt_gives_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shell.cli, "main", interrupted)
    assert run(["targets"]) == 130


def test_internal_error_gives_70_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(shell.cli, "main", broken)
    assert run(["targets"]) == 70
    assert "internal error: ZeroDivisionError: oops" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        run(["-vv", "targets"])


@pytest.mark.parametrize("position", ["before", "after"])
def test_format_works_before_and_after_the_verb(position: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--format", "json", "targets"] if position == "before" else ["targets", "--format", "json"]
    assert run(words) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"name", "arch", "cpu"} <= set(rows[0])


def test_machine_formats_have_the_same_fields(capsys: pytest.CaptureFixture[str]) -> None:
    run(["targets", "--format", "json"])
    documents = json.loads(capsys.readouterr().out)
    run(["targets", "--format", "jsonl"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    run(["targets", "--format", "csv"])
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert lines == documents
    assert [set(row) for row in table] == [set(row) for row in documents]


def test_version_names_python(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert "Python 3" in capsys.readouterr().out
