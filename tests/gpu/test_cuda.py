"""The CUDA backend as far as it goes without an NVIDIA GPU: translation, compilation, and what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgerun.backends.cuda import nvrtc
from edgerun.backends.cuda.translate import translate
from edgerun.backends.gpu.lowering import Dispatch, lower
from edgerun.backends.gpu.wgsl import pointwise
from edgerun.session import load_graph
from tests.corpus.corpus import models

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def test_translation_of_a_small_kernel() -> None:
    text, threads = translate(pointwise(["f32", "i32"], 70, "  let x = b0[i] * 0.5;\n  b1[i] = i32(x) + 1;").source)
    assert threads == 64
    assert "struct Kernel {\n  float *b0;\n  int *b1;" in text
    assert "auto x = b0[i] * 0.5f;" in text
    assert "b1[i] = int(x) + 1;" in text
    assert "void main(uvec3 wid, uvec3 lid)" in text


@pytest.mark.parametrize("name", ["digits", "real/mtcnn_pnet", "real/magika_v3_3", "real/ppocr_v4_det"])
def test_every_kernel_compiles(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if name == "digits":
        graph = load_graph(DIGITS, dims={"batch": 2})
    else:
        model = next((m for m in models() if m.name == name), None)
        if model is None:
            pytest.skip("EDGERUN_CORPUS is not set")
        inputs, _ = model.arrays()
        graph = load_graph(model.path, shapes={k: v.shape for k, v in inputs.items()})
    steps = lower(graph, split=True).steps
    sources = list(dict.fromkeys(s.kernel.source for s in steps if isinstance(s, Dispatch)))
    for source in sources[:25]:
        ptx = nvrtc.compiled(translate(source)[0])
        assert b".version 7.4" in ptx and b".visible .entry kernel_main" in ptx
    assert len(list(nvrtc.folder().glob("*.ptx"))) == min(len(sources), 25)


def test_ptx_comes_from_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = translate(pointwise(["f32"], 1, "  b0[i] = 1.0;").source)[0]
    first = nvrtc.compiled(source)
    monkeypatch.setattr(nvrtc, "library", lambda: pytest.fail("compiled again"))
    assert nvrtc.compiled(source) == first


def test_without_a_driver() -> None:
    paths = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-m", "edgerun", "run", str(DIGITS), "--input", "random", "--shape", "image=1,1,8,8"]
    done = subprocess.run(
        [*command, "--backend", "cuda"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    if done.returncode == 0:
        pytest.skip("this machine has an NVIDIA GPU")
    assert done.returncode == 3
    assert "NVIDIA's driver" in done.stderr
    assert done.stderr.count("\n") == 1
