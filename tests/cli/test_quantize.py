"""`edgerun quantize` on the example model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgerun.cli.main import run
from edgerun.session import load_graph

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
WORDS = ["quantize", str(DIGITS / "digits.onnx"), "--data", str(DIGITS / "digits_test.npz"), "--samples", "20"]


def _document(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_quantize(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "small.edge")
    document = _document(capsys, *WORDS, "--metric", "top1", "--max-drop", "0.05", "-o", out)
    assert document["ok"] and document["drop"] <= 0.05 and document["quantised"] == 4 and document["samples"] == 20
    assert document["weight_bytes"]["after"] < 0.3 * document["weight_bytes"]["before"]
    assert document["bench"]["before_ms"] > 0 and document["bytes"] == Path(out).stat().st_size
    graph = load_graph(out)
    assert graph.meta["quantized"]["mode"] == "static"
    assert "qlinear_conv" in {n.op for n in graph.nodes}
    assert run([*WORDS, "-o", out, "--no-bench"]) == 5, "an existing file is not replaced"
    assert run([*WORDS, "-o", out, "--no-bench", "--force"]) == 0
    assert "of 4 layers quantised" in capsys.readouterr().out


def test_a_loss_that_cannot_be_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "small.edge"
    document = _document(capsys, *WORDS, "--max-drop", "0", "-o", str(out), "--exclude", "conv1+relu1", code=1)
    assert not document["ok"] and not out.exists() and len(document["tries"]) > 1
    assert "conv1+relu1" not in {row["layer"] for row in document["layers"]}


def test_random_data_is_said_to_be_random(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["quantize", WORDS[1], "--data", "random", "--samples", "2", "--no-bench", "--mode", "int8-weights"]
    assert run([*words, "--shape", "image=1,1,8,8", "-o", str(tmp_path / "q.edge")]) == 0
    assert "random inputs" in capsys.readouterr().out
