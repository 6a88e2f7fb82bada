"""The wheel holds all that packing needs: it is installed into an empty environment without compiler and network."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from edgerun.machine import host_arch
from edgerun_packaging import stubs

ROOT = Path(__file__).parents[2]
NEEDED = ("numpy", "click", "onnx", "google", "ml_dtypes", "safetensors", "rich", "typing_extensions", "pygments")
"""What the extra `host` installs besides the compiler, with what that needs."""
ARCHES = sorted({host_arch(), "aarch64"})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree with the stubs of two architectures."""
    if int(importlib.metadata.version("setuptools").split(".")[0]) < 77:
        message = "setuptools 77 or newer is needed (pip install 'edgerun[dev]')"
        if os.environ.get("EDGERUN_CI"):
            pytest.fail(message)
        pytest.skip(message)
    tree = tmp_path_factory.mktemp("tree")
    for name in ("edgerun", "converters", "packaging", "targets"):
        skip = shutil.ignore_patterns("__pycache__", "*.egg-info", "stubs", "lib")
        shutil.copytree(ROOT / name, tree / name, ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, tree / name)
    folder = tree / "packaging" / "edgerun_packaging" / "stubs"
    folder.mkdir()
    for arch in ARCHES:
        stub = stubs.find(arch)
        shutil.copyfile(stub, folder / stub.name)
        shutil.copyfile(stub.with_name(stub.name + ".key"), folder / f"{stub.name}.key")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "."]
    done = subprocess.run([*command, "--wheel-dir", "dist"], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = (tree / "dist").glob("edgerun-*.whl")
    return made


def test_it_holds_sources_profiles_and_stubs(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "edgerun/backends/native/csrc/runtime.c",
        "edgerun_packaging/launcher/main.c",
        "edgerun_packaging/library/edgerun_model.h",
        "edgerun_packaging/stubs/stub-aarch64",
        "edgerun_targets/rpi4.toml",
    ):
        assert wanted in names, wanted
    assert not [n for n in names if n.startswith(("tests/", "benchmarks/"))]


def test_an_empty_environment_packs_offline(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "env"
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python3*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for name in NEEDED:
        found = importlib.util.find_spec(name)
        assert found is not None, f"{name} is not installed"
        place = Path(found.origin) if found.origin else Path(next(iter(found.submodule_search_locations or ())))
        source = place.parent if place.name == "__init__.py" else place
        (site / source.name).symlink_to(source)
        for beside in source.parent.glob(f"{name}.libs"):
            (site / beside.name).symlink_to(beside)
    packed = tmp_path / "packed"
    digits = ROOT / "examples" / "digits" / "digits.onnx"
    script = (
        "import importlib.util, socket, sys\n"
        "def refuse(*arguments, **options): raise OSError('no network here')\n"
        "socket.socket.connect = refuse\n"
        "assert importlib.util.find_spec('ziglang') is None\n"
        "from edgerun.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    python = home / "bin" / "python"
    environment = {"PATH": "/nowhere", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    for arch in ARCHES:
        path = packed.with_suffix(f".{arch}")
        arguments = ["pack", str(digits), "--target", arch, "--dim", "batch=1", "-o", str(path), "--format", "json"]
        done = subprocess.run(
            [str(python), "-I", "-c", script, *arguments], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["bytes"] == path.stat().st_size
    done = subprocess.run([str(packed.with_suffix(f".{host_arch()}")), "selftest"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
