"""Packed files as a user meets them: info, run, bench, selftest, and what goes wrong."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgerun import bench
from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.dtypes import DType
from edgerun.graph import Graph
from edgerun.packed import assemble, map_plan, read_footer
from edgerun.plan import PlanReader
from edgerun.plan.layout import fnv1a
from edgerun.samples import random_values
from tests.packaging.conftest import HOST, call, emulator

CLEAN_EXITS = {0, 1, 2, 3, 5}


def _json(done: subprocess.CompletedProcess[bytes]) -> Any:
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def _error(done: subprocess.CompletedProcess[bytes], code: int) -> str:
    text = done.stderr.decode()
    assert done.returncode == code, text
    assert text.count("\n") == 1, "an error is one line"
    return text


def _values(document: Any) -> np.ndarray:
    output = document["outputs"][0]
    return np.array(output["values"], np.float32).reshape(output["shape"])


def test_info(model: Path) -> None:
    info = _json(call(model, "info", "--json"))
    assert info["inputs"] == [{"name": "image", "dtype": "f32", "shape": [None, 1, 8, 8]}]
    assert info["outputs"][0]["name"] == "probabilities"
    assert info["file_bytes"] == model.stat().st_size
    assert info["manifest"]["model"]["file"] == "digits.onnx"
    assert info["manifest"]["target"]["name"] == HOST
    text = call(model, "info").stdout.decode()
    assert "image: f32[?, 1, 8, 8]" in text and "digits.onnx" in text


def test_every_source_of_input_gives_the_reference_values(model: Path, digits: Graph, tmp_path: Path) -> None:
    image = random_values(DType.F32, (3, 1, 8, 8), 5)
    want = NumpyExecutor(digits).run({"image": image})["probabilities"]
    np.save(tmp_path / "a.npy", image)
    np.savez(tmp_path / "a.npz", image=image, other=np.zeros(3))
    (tmp_path / "a.raw").write_bytes(image.tobytes())
    stream = io.BytesIO()
    np.save(stream, image)
    shape = ["--shape", "image=3,1,8,8"]
    for arguments, stdin in [
        (["--input", f"image={tmp_path / 'a.npy'}"], b""),
        (["--input", str(tmp_path / "a.npy")], b""),
        (["--input", f"image={tmp_path / 'a.npz'}"], b""),
        (["--input", str(tmp_path / "a.npz")], b""),
        (["--input", f"image={tmp_path / 'a.raw'}", *shape], b""),
        (["--input", "image=-"], stream.getvalue()),
        (["--input", "random", "--seed", "5", *shape], b""),
    ]:
        got = _values(_json(call(model, "run", "--json", *arguments, stdin=stdin)))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6, err_msg=str(arguments))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_versions(model: Path, tmp_path: Path, version: tuple[int, int]) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, np.zeros((1, 1, 8, 8), np.float32), version=version)
    assert call(model, "run", "--input", str(tmp_path / "a.npy")).returncode == 0


def test_outputs_are_npy_files_that_are_not_overwritten(model: Path, tmp_path: Path) -> None:
    arguments = ["run", "--input", "zeros", "--shape", "image=2,1,8,8", "--output-dir", str(tmp_path), "--json"]
    document = _json(call(model, *arguments))
    assert "values" not in document["outputs"][0]
    saved = np.load(tmp_path / "probabilities.npy", allow_pickle=False)
    assert saved.shape == (2, 10) and saved.dtype == np.float32
    np.testing.assert_allclose(saved.sum(1), 1, rtol=1e-5)
    assert "--force" in _error(call(model, *arguments), 5)
    assert call(model, *arguments, "--force").returncode == 0


def test_table_output_names_the_class(model: Path) -> None:
    lines = call(model, "run", "--input", "zeros", "--shape", "image=1,1,8,8").stdout.decode().splitlines()
    assert lines[0].split() == ["output", "dtype", "shape", "min", "max", "mean", "argmax"]
    assert lines[1].startswith("probabilities")


@pytest.mark.parametrize(
    ("array", "code", "words"),
    [
        (np.zeros((1, 1, 8, 8)), 2, "holds f64, input 'image' takes f32"),
        (np.zeros((1, 8, 8), np.float32), 2, "shape [1, 8, 8]"),
        (np.zeros((1, 1, 8, 9), np.float32), 2, "shape [1, 1, 8, 9]"),
        (np.zeros((9, 1, 8, 8), np.float32), 2, "9"),
        (np.zeros((1, 1, 8, 8), ">f4"), 5, "big-endian"),
        (np.asfortranarray(np.zeros((2, 1, 8, 8), np.float32)), 5, "Fortran"),
        (np.zeros((1, 1, 8, 8), np.complex64), 5, "<c8"),
        (np.zeros((1, 1, 8, 8), [("a", "f4")]), 5, "header"),
    ],
)
def test_wrong_arrays_are_explained(model: Path, tmp_path: Path, array: np.ndarray, code: int, words: str) -> None:
    np.save(tmp_path / "a.npy", array)
    assert words in _error(call(model, "run", "--input", f"image={tmp_path / 'a.npy'}"), code)


def test_wrong_commands_are_explained(model: Path, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "c.npz", image=np.zeros((1, 1, 8, 8), np.float32))
    image = ["--shape", "image=1,1,8,8"]
    for arguments, code, words in [
        (["rnu"], 2, "did you mean 'run'"),
        (["run"], 2, "--input image="),
        (["run", "--input", "zeros"], 2, "--shape image="),
        (["run", "--input", "picture=zeros"], 2, "no input 'picture'"),
        (["run", "--input", "image=x.txt"], 2, ".npy"),
        (["run", "--input", "image=/nowhere.npy"], 5, "/nowhere.npy"),
        (["run", "--input", f"image={tmp_path / 'c.npz'}"], 5, "savez"),
        (["run", "--input", "zeros", "--shape", "image=1,x"], 2, "--shape"),
        (["run", "--input", "zeros", *image, "--output-dir", "/nowhere/deep"], 5, "/nowhere/deep"),
        (["run", "--wrong"], 2, "--wrong"),
        (["run", "--input"], 2, "needs a value"),
        (["bench", "--threads", "0"], 2, "--threads"),
        (["bench", "--input", "image=-"], 5, "standard input ends too early"),
        (["info", "--format", "xml"], 2, "table or json"),
        (["info", "--isa", "quantum"], 3, "quantum"),
        (["info", "more"], 2, "one word too many"),
    ]:
        assert words in _error(call(model, *arguments), code), arguments


def test_help_and_version(model: Path) -> None:
    for arguments in (["--help"], [], ["run", "--help"], ["bench", "-h"], ["info", "--help"], ["selftest", "--help"]):
        done = call(model, *arguments)
        assert done.returncode == 0 and b"$ " + model.name.encode() in done.stdout
    assert call(model, "--version").stdout.startswith(b"edgerun ")


def test_bench_has_the_fields_of_the_python_tool(model: Path) -> None:
    arguments = ["bench", "--shape", "image=1,1,8,8", "--runs", "20", "--threads", "sweep", "--layers", "--json"]
    document = _json(call(model, *arguments))
    assert tuple(document["rows"][0]) == bench.ROW_FIELDS
    assert tuple(document["memory"]) == bench.MEMORY_FIELDS
    assert tuple(document["layers"][0]) == bench.LAYER_FIELDS
    assert [r["threads"] for r in document["rows"]] == bench.thread_counts("sweep")
    for row in document["rows"]:
        assert row["runs"] == 20
        assert 0 < row["min_ms"] <= row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert sum(layer["percent"] for layer in document["layers"]) == pytest.approx(100, abs=0.1)


@pytest.mark.parametrize("arch", ["x86_64", "aarch64", "armv7", "riscv64"])
def test_selftest_passes_on_every_architecture(packed: Callable[[str], Path], arch: str) -> None:
    document = _json(call(packed(arch), "selftest", "--json", arch=arch))
    assert document["ok"] and document["weights_ok"] and document["golden_sets"] == 1 and document["values"] > 0


@pytest.mark.parametrize("arch", ["aarch64", "armv7", "riscv64"])
def test_bench_and_run_under_emulation(packed: Callable[[str], Path], arch: str) -> None:
    image = ["--shape", "image=1,1,8,8"]
    document = _json(call(packed(arch), "run", "--input", "random", *image, "--json", arch=arch))
    assert _values(document).sum() == pytest.approx(1, abs=1e-4)
    assert _json(call(packed(arch), "bench", "--runs", "2", "--threads", "1", *image, "--json", arch=arch))["rows"]


@pytest.mark.parametrize("cpu", ["cortex-a53", "cortex-a72", "max"])
def test_every_verb_on_every_core(packed: Callable[[str], Path], tmp_path: Path, cpu: str) -> None:
    """Old cores without dot products, and one with everything that qemu knows."""
    path, prefix = packed("aarch64"), emulator("aarch64")
    command = [*prefix, *(["-cpu", cpu] if prefix else []), str(path)]
    image = ["--shape", "image=1,1,8,8"]
    stream = io.BytesIO()
    np.save(stream, np.zeros((1, 1, 8, 8), np.float32))
    for words in (
        ["info", "--json"],
        ["selftest"],
        ["run", "--input", "random", *image, "--output", str(tmp_path / "o.npz")],
        ["run", "--stream", "--input", "-", "--output", "raw:-"],
        ["bench", "--runs", "2", "--threads", "1", "--layers", *image],
    ):
        done = subprocess.run([*command, *words], input=stream.getvalue() * 2, capture_output=True, timeout=60)
        assert done.returncode == 0, (words, done.stderr)
    assert np.load(tmp_path / "o.npz")["probabilities"].sum() == pytest.approx(1, abs=1e-4)


def _changed(model: Path, path: Path, change: Callable[[bytearray], None]) -> Path:
    data = bytearray(model.read_bytes())
    change(data)
    path.write_bytes(data)
    path.chmod(0o755)
    return path


def test_selftest_notices_a_changed_weight(model: Path, tmp_path: Path) -> None:
    def flip(data: bytearray) -> None:
        data[len(data) - 64 - 1000] ^= 0x40

    done = call(_changed(model, tmp_path / "m", flip), "selftest")
    assert done.returncode == 1
    assert b"the weights are damaged" in done.stderr and b"FAILED" in done.stdout


def test_selftest_names_the_first_wrong_output_and_layer(model: Path, digits: Graph, tmp_path: Path) -> None:
    """All weights negated: the first layer is already wrong."""
    footer = read_footer(model)
    weights = len(PlanReader(map_plan(model)).weights)

    def negate(data: bytearray) -> None:
        end = footer.plan_offset + footer.plan_bytes
        floats = np.frombuffer(bytes(data[end - weights : end]), np.float32) * np.float32(-1)
        data[end - weights : end] = floats.tobytes()

    assert weights % 4 == 0
    done = call(_changed(model, tmp_path / "m", negate), "selftest", "--threads", "1")
    assert done.returncode == 1
    error = done.stderr.decode()
    assert "output 'probabilities' of golden set 0 is wrong: element" in error
    assert "the first wrong layer is 0, 'conv1" in error


def test_mutated_files_give_an_error_or_an_answer(model: Path, tmp_path: Path) -> None:
    """Bit flips, overwritten words and truncation behind the stub: never a signal, never a hang."""
    generator = random.Random(7)
    data = model.read_bytes()
    start, weights = read_footer(model).plan_offset, len(PlanReader(map_plan(model)).weights)
    tables_end = len(data) - 64 - weights
    for number in range(220):
        changed = bytearray(data)
        kind = number % 4
        if kind == 0:
            changed = changed[: generator.randrange(start, len(data))]
        for _ in range(generator.randrange(1, 4) if kind else 0):
            at = generator.randrange(start, tables_end) if kind != 3 else len(data) - 1 - generator.randrange(64)
            changed[at] = generator.choice([0, 1, 127, 128, 255, generator.randrange(256)])
        path = tmp_path / f"m{number}"
        path.write_bytes(changed)
        path.chmod(0o755)
        verb = ["selftest"] if number % 2 else ["info", "--json"]
        done = call(path, *verb)
        path.unlink()
        assert done.returncode in CLEAN_EXITS, (number, done.returncode, done.stderr)
        assert done.returncode == 0 or done.stderr


def test_hostile_plans_with_right_checksums_give_an_error_or_an_answer(model: Path, tmp_path: Path) -> None:
    """As above, but all checksums are renewed, so that the validator itself is met."""
    generator = random.Random(11)
    data = model.read_bytes()
    footer = read_footer(model)
    stub, plan = data[: footer.stub_bytes], bytes(map_plan(model))
    weights = len(PlanReader(plan).weights)
    for number in range(120):
        changed = bytearray(plan)
        for _ in range(generator.randrange(1, 3)):
            at = generator.randrange(16, len(plan) - weights)
            changed[at] = generator.choice([0, 1, 127, 128, 255, generator.randrange(256)])
        head = bytearray(changed)
        checksum = fnv1a(bytes(head[128 : len(head) - weights]))
        head[56:64] = checksum.to_bytes(8, "little")
        path = tmp_path / f"h{number}"
        path.write_bytes(b"".join(assemble(stub, bytes(head), HOST)))
        path.chmod(0o755)
        done = call(path, "selftest")
        path.unlink()
        assert done.returncode in CLEAN_EXITS, (number, done.returncode, done.stderr)


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_hostile_arrays_give_an_error_or_an_answer(model: Path, tmp_path: Path, kind: str) -> None:
    generator = random.Random(3)
    stream = io.BytesIO()
    array = np.ones((1, 1, 8, 8), np.float32)
    if kind == "npy":
        np.save(stream, array)
    else:
        np.savez(stream, image=array)
    original = stream.getvalue()
    path = tmp_path / f"a.{kind}"
    for number in range(120):
        data = bytearray(original)
        for _ in range(generator.randrange(1, 5)):
            data[generator.randrange(len(data))] = generator.choice([0, 255, ord("9"), ord("'"), ord("("), ord(",")])
        if number % 3 == 0:
            data = data[: generator.randrange(len(data))]
        path.write_bytes(data)
        done = call(model, "run", "--input", f"image={path}", "--json")
        assert done.returncode in CLEAN_EXITS, (number, done.returncode, done.stderr)


def test_a_stripped_file_says_so(model: Path, tmp_path: Path) -> None:
    footer = read_footer(model)
    stub = tmp_path / "stub"
    stub.write_bytes(model.read_bytes()[: footer.stub_bytes])
    stub.chmod(0o755)
    assert "holds no model" in _error(call(stub, "info"), 5)


def test_works_without_proc_and_sys(model: Path, tmp_path: Path) -> None:
    """In an empty root file system: the executable's path comes from AT_EXECFN."""
    shutil.copy(model, tmp_path / "m")
    unshare = [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
    command = [*unshare, "chroot", str(tmp_path), "/m"]
    done = subprocess.run([*command, "selftest"], capture_output=True)
    if done.returncode not in CLEAN_EXITS or b"unshare" in done.stderr or b"chroot" in done.stderr:
        pytest.skip(f"no chroot here: {done.stderr.decode().strip()}")
    assert done.returncode == 0, done.stderr
    text = subprocess.run(
        [*command, "bench", "--runs", "2", "--shape", "image=1,1,8,8"], capture_output=True, check=True
    ).stdout
    assert b"not measured (no /proc)" in text


def test_a_read_only_file_without_write_permission_anywhere(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "m"
    shutil.copy(model, path)
    path.chmod(0o555)
    tmp_path.chmod(0o555)
    try:
        done = subprocess.run([str(path), "selftest"], capture_output=True, env={"TMPDIR": "/nowhere"})
    finally:
        tmp_path.chmod(0o755)
    assert done.returncode == 0, done.stderr


def test_a_closed_pipe_ends_quietly(model: Path) -> None:
    process = subprocess.Popen([str(model), "info"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait() in (0, 5, -13)
    assert process.stderr.read() == b""
    process.stderr.close()
