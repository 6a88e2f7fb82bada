"""The verbs end to end on the example model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgerun import bench
from edgerun.cli.main import run

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
ONNX = str(DIGITS / "digits.onnx")
ONE = ["--shape", "image=1,1,8,8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle, a plan and a packed file of the example."""
    path = tmp_path_factory.mktemp("digits")
    assert run(["convert", ONNX, "-o", str(path / "digits.edge"), "--dim", "batch=1..50"]) == 0
    assert run(["plan", str(path / "digits.edge"), "-o", str(path / "digits.plan")]) == 0
    assert run(["pack", str(path / "digits.edge"), "-o", str(path / "digits")]) == 0
    return path


def _document(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    document = _document(capsys, "check", ONNX, "--dim", "batch=1..8")
    assert document["ok"] and document["problems"] == []


def test_inspect_model_bundle_plan_and_packed_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (ONNX, str(folder / "digits.edge")):
        document = _document(capsys, "inspect", name)
        assert [p["name"] for p in document["ports"]] == ["image", "probabilities"]
        assert document["weight_bytes"] > 140_000
    assert _document(capsys, "inspect", str(folder / "digits.plan"))["plan_bytes"] > 140_000
    packed = _document(capsys, "inspect", str(folder / "digits"))
    assert packed["elf"]["static"] and packed["manifest"]["golden"]


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_accuracy_of_the_test_set(folder: Path, tmp_path: Path, backend: str) -> None:
    test = np.load(DIGITS / "digits_test.npz")
    right = 0
    for start in range(0, 450, 50):
        np.save(tmp_path / "batch.npy", test["image"][start : start + 50])
        words = ["run", str(folder / "digits.edge"), "--backend", backend, "--force", "--output-dir", str(tmp_path)]
        assert run([*words, "--input", str(tmp_path / "batch.npy")]) == 0
        scores = np.load(tmp_path / "probabilities.npy")
        right += int((scores.argmax(1) == test["label"][start : start + 50]).sum())
    assert right / 450 >= 0.97


def test_all_forms_of_the_model_give_the_same_values(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--input", "random", "--seed", "4", *ONE]
    results = [
        np.array(_document(capsys, "run", str(path), *words)["outputs"][0]["values"])
        for path in (ONNX, folder / "digits.edge", folder / "digits.plan", folder / "digits")
    ]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-5, atol=1e-7)


def test_verify_against_both_references(capsys: pytest.CaptureFixture[str]) -> None:
    for against in ("numpy", "onnxruntime"):
        document = _document(capsys, "verify", ONNX, *ONE, "--against", against, "--layers", "--flow")
        assert document["ok"] and document["layers"] and document["flow"]["ok"]


def test_verify_a_packed_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _document(capsys, "verify", str(folder / "digits"))["ok"]


@pytest.mark.parametrize("name", ["digits.edge", "digits"])
def test_bench_has_the_same_fields_for_models_and_packed_files(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    words = ["bench", str(folder / name), *ONE, "--runs", "3", "--threads", "1", "--layers"]
    document = _document(capsys, *words)
    assert tuple(document["rows"][0]) == bench.ROW_FIELDS
    assert tuple(document["memory"]) == bench.MEMORY_FIELDS
    assert tuple(document["layers"][0]) == bench.LAYER_FIELDS


def test_plan_reports_a_bound_not_above_the_arena(capsys: pytest.CaptureFixture[str]) -> None:
    document = _document(capsys, "plan", ONNX, *ONE)
    assert 0 < document["lower_bound_bytes"] <= document["arena_bytes"]
    assert document["steps"][document["peak_step"]]["live_bytes"] == document["lower_bound_bytes"]


def test_why_names_a_kernel_and_a_reason_for_every_layer(capsys: pytest.CaptureFixture[str]) -> None:
    rows = _document(capsys, "why", ONNX, *ONE)
    assert rows and all(r["kernel"] for r in rows)
    (dense,) = _document(capsys, "why", ONNX, "dense1", *ONE)
    assert dense["packed_bytes"] == 4 * (512 * 64 + 64) and dense["threads"] == "all" and dense["scratch_bytes"] == 0
    (conv,) = _document(capsys, "why", ONNX, "conv2", *ONE)
    assert {a["kernel"] for a in conv["alternatives"]} == {"wino2_f32", "wino4_f32"}
    assert all(a["relative_cost"] >= 1 for a in conv["alternatives"])
    assert run(["why", ONNX, "conv9", *ONE]) == 2
    assert "did you mean conv" in capsys.readouterr().err


def test_pack_over_budget_prints_the_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m"
    assert run(["pack", ONNX, *ONE, "--max-size", "100kB", "-o", str(path)]) == 1
    error = capsys.readouterr().err
    assert "size budget exceeded" in error and "weights" in error and not path.exists()


def test_convert_does_not_overwrite(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["convert", ONNX, "-o", str(folder / "digits.edge")]
    assert run(words) == 5
    assert "--force" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["digits", "digits.plan"])
@pytest.mark.parametrize("verb", ["check", "why", "pack"])
def test_verbs_that_need_a_graph_say_so(folder: Path, capsys: pytest.CaptureFixture[str], verb: str, name: str) -> None:
    assert run([verb, str(folder / name)]) == 2
    assert "no graph any more" in capsys.readouterr().err


def test_misspelt_input_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", ONNX, *ONE, "--input", "imgae=zeros"]) == 2
    assert "did you mean 'image'" in capsys.readouterr().err


def test_doctor_lists_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    rows = _document(capsys, "doctor")
    assert next(r for r in rows if r["item"] == "native runtime")["ok"]


def test_check_asks_for_bounds_of_free_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    document = _document(capsys, "check", ONNX, code=1)
    assert not document["ok"] and "--dim batch=LOW..HIGH" in str(document["problems"])
