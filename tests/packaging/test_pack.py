"""Packing: budgets, determinism, size and RAM promises."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgerun.errors import BudgetExceeded, InputOutputError, UsageError
from edgerun.graph import Graph
from edgerun.packed import read_footer
from edgerun_packaging.budgets import Budgets
from edgerun_packaging.elf import audit
from edgerun_packaging.pack import Options, pack
from edgerun_targets import load
from tests.packaging.conftest import DIGITS, HOST, call


def test_same_input_same_bytes(digits: Graph, model: Path, tmp_path: Path) -> None:
    source = DIGITS / "digits.onnx"
    pack(digits, load(HOST), tmp_path / "again", source=source, options=Options(threads=1))
    assert (tmp_path / "again").read_bytes() == model.read_bytes()


def test_the_stub_is_static_and_small(packed: Callable[[str], Path]) -> None:
    for arch in ("x86_64", "aarch64", "armv7", "riscv64"):
        path = packed(arch)
        footer = read_footer(path)
        stub = audit(path.read_bytes()[: footer.stub_bytes])
        assert stub.static and stub.machine == arch and not stub.executable_stack
        assert footer.stub_bytes < (2_000_000 if arch == "x86_64" else 1_000_000)  # x86-64 carries three ISA levels
        assert path.stat().st_mode & 0o777 == 0o755


def test_nothing_is_written_over_budget(digits: Graph, tmp_path: Path) -> None:
    path = tmp_path / "m"
    with pytest.raises(BudgetExceeded, match="size budget exceeded") as caught:
        pack(digits, load(HOST), path, budgets=Budgets(max_size=100_000, max_ram=100_000))
    assert "ram budget exceeded" in caught.value.message and "what would help" in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_stays(digits: Graph, tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_text("mine")
    with pytest.raises(InputOutputError, match="--force"):
        pack(digits, load(HOST), path)
    assert path.read_text() == "mine"
    pack(digits, load(HOST), path, force=True)
    assert call(path, "selftest").returncode == 0


def test_golden_vectors_from_a_file(digits: Graph, tmp_path: Path) -> None:
    test = np.load(DIGITS / "digits_test.npz")
    np.savez(tmp_path / "g.npz", image=test["image"][:5])
    pack(digits, load(HOST), tmp_path / "m", options=Options(golden_file=tmp_path / "g.npz"))
    info = json.loads(call(tmp_path / "m", "info", "--json").stdout)
    assert info["manifest"]["golden"][0]["source"] == "file"
    assert info["manifest"]["golden"][0]["shapes"] == [[5, 1, 8, 8]]
    assert call(tmp_path / "m", "selftest").returncode == 0


def test_a_wrong_expected_output_fails_the_selftest(digits: Graph, tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", image=np.zeros((1, 1, 8, 8), np.float32), probabilities=np.zeros((1, 10), np.float32))
    pack(digits, load(HOST), tmp_path / "m", options=Options(golden_file=tmp_path / "g.npz"))
    done = call(tmp_path / "m", "selftest")
    assert done.returncode == 1 and b"'probabilities'" in done.stderr


def test_a_golden_file_that_does_not_fit(digits: Graph, tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", picture=np.zeros(3))
    with pytest.raises(UsageError, match="no array for input 'image'"):
        pack(digits, load(HOST), tmp_path / "m", options=Options(golden_file=tmp_path / "g.npz"))


def test_without_golden_vectors(digits: Graph, tmp_path: Path) -> None:
    pack(digits, load(HOST), tmp_path / "m", options=Options(golden=False))
    document = json.loads(call(tmp_path / "m", "selftest", "--json").stdout)
    assert document["ok"] and document["golden_sets"] == 0


def test_ram_prediction_and_promise(model: Path) -> None:
    """Predicted within 10 % of the measured peak; the peak is at most weights + arena + 2 MB."""
    document = json.loads(
        call(model, "bench", "--runs", "5", "--threads", "1", "--shape", "image=8,1,8,8", "--json").stdout
    )
    info = json.loads(call(model, "info", "--json").stdout)
    memory = document["memory"]
    assert memory["rss_peak_bytes"] <= info["weight_bytes"] + info["arena_bytes"] + 2_000_000
    assert memory["ram_predicted_bytes"] == pytest.approx(memory["rss_peak_bytes"], rel=0.10)
