"""Real models as packed executables: right under emulation on old and new cores, small, and frugal with RAM."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgerun.backends.native.backend import compile_plan
from edgerun.machine import host_arch
from edgerun.session import load_graph
from edgerun_packaging.pack import Options, Packed, pack
from edgerun_targets import load
from tests.corpus.corpus import CorpusModel, compare, folder, models
from tests.packaging.conftest import emulator

pytestmark = pytest.mark.skipif(folder() is None, reason="EDGERUN_CORPUS is not set")

NAMES = (
    "classic/squeezenet1_1_ts",
    "classic/mobilenet_v2_ts",
    "real/ppocr_v4_det",
    "real/magika_v3_3",
    "real/mtcnn_pnet",
    "real/oww_embedding",
    "real/silero_vad_openvino_16k",
)
CPUS = ("cortex-a53", "cortex-a72", "max")
MEGABYTE = 1_000_000
READ_IN_PART = {
    "real/oww_hey_jarvis": "the branch that is not taken keeps its weights on the disk",
    "derived/minilm_l6_int8_dyn": "rows of the embedding that are not looked up do so",
}
"""Models for which the prediction is an upper bound, and why."""
FOUND = {m.name: m for m in models()}


def make(model: CorpusModel, arch: str, path: Path) -> Packed:
    inputs, _ = model.arrays()
    graph = load_graph(model.path, shapes={k: v.shape for k, v in inputs.items()})
    return pack(graph, load(arch), path, source=model.path, options=Options(threads=1))


def run(model: CorpusModel, command: list[str], folder: Path) -> float:
    """Error of the executable on the reference inputs."""
    inputs, outputs = model.arrays()
    arguments = []
    for i, (name, array) in enumerate(inputs.items()):
        np.save(folder / f"in{i}.npy", array)
        arguments += ["--input", f"{name}={folder / f'in{i}.npy'}"]
    results = folder / "out"
    subprocess.run(
        [*command, "run", *arguments, "--output-dir", str(results), "--force"],
        check=True,
        capture_output=True,
        timeout=300,
    )
    found = {path.stem: np.load(path) for path in results.iterdir()}
    names = [name.replace("/", "_").replace(":", "_") for name, _ in outputs]
    return compare(model, {name: found.get(name, found.get(n)) for n, (name, _) in zip(names, outputs, strict=True)})


@pytest.mark.parametrize("name", NAMES)
def test_aarch64_is_right_on_every_core(name: str, tmp_path: Path):
    model, path = FOUND[name], tmp_path / "model"
    make(model, "aarch64", path)
    for cpu in CPUS:
        prefix = emulator("aarch64")
        command = [*prefix, *(["-cpu", cpu] if prefix else []), str(path)]
        assert run(model, command, tmp_path) <= 1e-3, cpu


@pytest.mark.parametrize("arch", ["armv7", "riscv64"])
def test_mobilenet_on_other_architectures(arch: str, tmp_path: Path):
    model, path = FOUND["classic/mobilenet_v2_ts"], tmp_path / "model"
    make(model, arch, path)
    assert run(model, [*emulator(arch), str(path)], tmp_path) <= 1e-3


@pytest.mark.parametrize("arch", ["aarch64", "x86_64"])
@pytest.mark.parametrize("name", NAMES)
def test_the_file_is_weights_and_less_than_a_megabyte(name: str, arch: str, tmp_path: Path):
    packed = make(FOUND[name], arch, tmp_path / "model")
    weights = next(p.bytes for p in packed.footprint.size if p.part == "weights")
    assert packed.bytes <= weights + MEGABYTE
    assert packed.bytes <= FOUND[name].path.stat().st_size + 1.2 * MEGABYTE, "packing must not blow the weights up"


@pytest.mark.skipif(host_arch() != "x86_64", reason="the bounds are stated for x86-64")
@pytest.mark.parametrize("name", sorted(FOUND))
def test_peak_memory_is_as_predicted(name: str, tmp_path: Path):
    """Peak resident set of a run on the reference inputs within 5 % of the prediction."""
    model, path = FOUND[name], tmp_path / "model"
    graph = load_graph(model.path, shapes={k: v.shape for k, v in model.arrays()[0].items()})
    packed = pack(graph, load("x86_64"), path, source=model.path, options=Options(threads=1, golden=False))
    parts = {p.part: p.bytes for p in packed.footprint.ram}
    inputs = []
    for i, (key, array) in enumerate(model.arrays()[0].items()):
        np.save(tmp_path / f"{i}.npy", np.asarray(array, order="C"))
        inputs += ["--input", f"{key}={tmp_path / f'{i}.npy'}"]
    command = [str(path), "bench", "--threads", "1", "--runs", "3", "--json", *inputs]
    memory = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["memory"]
    peak, predicted = memory["rss_peak_bytes"], packed.footprint.ram_bytes
    assert peak <= parts["weights"] + parts["arena"] + 2 * MEGABYTE
    assert peak <= 1.05 * predicted
    assert predicted <= 1.05 * peak or name in READ_IN_PART


@pytest.mark.parametrize("name", sorted(FOUND))
def test_the_arena_is_as_small_as_what_is_alive(name: str):
    """At most 6 % above the lower bound: the most that is alive in one step."""
    model = FOUND[name]
    graph = load_graph(model.path, shapes={k: v.shape for k, v in model.arrays()[0].items()})
    memory = compile_plan(graph, "aarch64").memory
    assert memory.gap_percent <= 6
