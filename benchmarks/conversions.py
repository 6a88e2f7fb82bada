"""Models for runtimes that do not read ONNX: converted once, kept in a folder, used from there.

The folder is $EDGERUN_BENCH_CACHE, else ~/.cache/edgerun/benchmarks. A file's name holds the hash of the model and of
the input shapes, so a changed model is converted anew. Converters get a copy of the model, since one of them writes
into its input. Each converter runs where its package is installed:

ncnn     PyPI `pnnx`: a command that writes the network's description and weights
mnn      PyPI `MNN`: its native module `_tools`; the package's Python command line is not used, because it installs
         another package by itself
litert   PyPI `onnx2tf` with `tensorflow`
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

Feeds = dict[str, np.ndarray]


def folder() -> Path:
    """Where converted models are kept; made when missing."""
    chosen = os.environ.get("EDGERUN_BENCH_CACHE")
    path = Path(chosen) if chosen else Path.home() / ".cache" / "edgerun" / "benchmarks"
    path.mkdir(parents=True, exist_ok=True)
    return path


def prepare(peer: str, model: Path, feeds: Feeds) -> None:
    """Converts the model for the peers that need it, so that the timing of a load does not hold the conversion."""
    if peer == "ncnn":
        ncnn(model, feeds)
    elif peer == "mnn":
        mnn(model)
    elif peer == "litert":
        litert(model, feeds)


def ncnn(model: Path, feeds: Feeds) -> tuple[Path, Path]:
    """The description and the weights of the model for ncnn.

    Raises:
        RuntimeError: The converter is missing or refuses the model.
    """
    stem = folder() / _key(model, feeds)
    param, weights = stem.with_suffix(".ncnn.param"), stem.with_suffix(".ncnn.bin")
    if not (param.exists() and weights.exists()):
        import pnnx

        kinds = {"float32": "f32", "int64": "i64", "int32": "i32"}
        shapes = ",".join(f"[{','.join(map(str, v.shape))}]{kinds[str(v.dtype)]}" for v in feeds.values())
        with tempfile.TemporaryDirectory() as work:
            local = Path(work) / "model.onnx"
            shutil.copyfile(model, local)
            _command([pnnx.EXEC_PATH, str(local), f"inputshape={shapes}", "fp16=0"], work)
            for name, to in (("model.ncnn.param", param), ("model.ncnn.bin", weights)):
                _keep(Path(work) / name, to)
    return param, weights


def mnn(model: Path) -> tuple[Path, list[str]]:
    """The model for MNN and the names of its outputs.

    Raises:
        RuntimeError: The converter refuses the model.
    """
    import onnx

    outputs = [v.name for v in onnx.load(model, load_external_data=False).graph.output]
    file = folder() / (_key(model, {}) + ".mnn")
    if not file.exists():
        with tempfile.TemporaryDirectory() as work:
            script = "import sys, _tools; _tools.mnnconvert(sys.argv[1:])"
            local, result = Path(work) / "model.onnx", Path(work) / "model.mnn"
            shutil.copyfile(model, local)
            options = ["-f", "ONNX", "--modelFile", str(local), "--MNNModel", str(result), "--bizCode", "x"]
            _command([sys.executable, "-c", script, "mnnconvert", *options], work)
            _keep(result, file)
    return file, outputs


def litert(model: Path, feeds: Feeds) -> Path:
    """The model for LiteRT: float32, the given shapes, images with channels innermost.

    Raises:
        RuntimeError: The converter is missing or refuses the model.
    """
    file = folder() / (_key(model, feeds) + ".tflite")
    if not file.exists():
        with tempfile.TemporaryDirectory() as work:
            local = Path(work) / "model.onnx"
            shutil.copyfile(model, local)  # the converter writes into the file it is given
            shapes = [f"{name}:{','.join(map(str, value.shape))}" for name, value in feeds.items()]
            script = "import sys; from onnx2tf import main; main()"
            command = [sys.executable, "-c", script, "-i", str(local), "-o", work, "-ois", *shapes, "-n"]
            _command(command, work)
            found = sorted(Path(work).glob("*_float32.tflite"))
            _keep(found[0] if found else Path(work) / "float32.tflite", file)
    return file


def _key(model: Path, feeds: Feeds) -> str:
    digest = hashlib.sha256(model.read_bytes())
    digest.update(repr([(k, v.shape, str(v.dtype)) for k, v in feeds.items()]).encode())
    return f"{model.stem}-{digest.hexdigest()[:12]}"


def _command(command: list[str], work: str) -> None:
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise RuntimeError(f"{Path(command[0]).name} failed: {words[-1][:200]}")


def _keep(made: Path, to: Path) -> None:
    """Moves a finished file to its place, so that a half-written one is never found there."""
    if not made.exists():
        raise RuntimeError(f"the converter wrote no {made.name}")
    partial = to.with_name(f"{to.name}.{os.getpid()}")
    shutil.copy(made, partial)
    partial.replace(to)
