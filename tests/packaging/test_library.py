"""Models as C libraries: C programs, compiled by zig, against the NumPy kernels, natively and under qemu."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.cli.main import run
from edgerun.graph import Graph
from edgerun.packed import map_plan
from edgerun_packaging.elf import audit
from edgerun_packaging.elf_object import data_object
from edgerun_packaging.library_pack import pack_library
from edgerun_packaging.zig import TRIPLES, glibc_target
from edgerun_targets import load
from tests.packaging.conftest import DIGITS, HOST, emulator

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include "edgerun_model.h"
#define EXPECT(x) do { if (!(x)) { printf("line %d: %s: %s\n", __LINE__, #x, edgerun_error()); exit(1); } } while (0)
#ifndef STATIC
#define PLAN NULL, 0
#else
#define PLAN edgerun_plan, (size_t)edgerun_plan_bytes
#endif
int main(int argc, char **argv) {
  edgerun_model *m;
  edgerun_port port;
  static float image[8 * 64];
  FILE *in = fopen(argv[1], "rb");
  EXPECT(argc == 2 && in && fread(image, 4, 8 * 64, in) == 8 * 64);
  EXPECT(!edgerun_open(PLAN, 1, &m));
  EXPECT(edgerun_count(m, EDGERUN_INPUT) == 1 && edgerun_count(m, EDGERUN_OUTPUT) == 1);
  EXPECT(!edgerun_describe(m, EDGERUN_INPUT, 0, &port) && port.shape[0] == -1 && port.bytes == 0 && port.rank == 4);
  EXPECT(edgerun_describe(m, EDGERUN_OUTPUT, 1, &port) == EDGERUN_BAD_ARGUMENT);
  EXPECT(edgerun_output_data(m, 0) == NULL);
  EXPECT(edgerun_run(m) == EDGERUN_BAD_ARGUMENT);
  EXPECT(edgerun_set_input(m, 0, image, (int64_t[]){8, 1, 8}, 3) == EDGERUN_BAD_ARGUMENT);
  EXPECT(edgerun_set_input(m, 0, NULL, (int64_t[]){8, 1, 8, 8}, 4) == EDGERUN_BAD_ARGUMENT);
  EXPECT(!edgerun_set_input(m, 0, image, (int64_t[]){99, 1, 8, 8}, 4) && edgerun_run(m) == EDGERUN_BAD_ARGUMENT);
  for (int batch = 1; batch <= 8; batch += 7) {
    EXPECT(!edgerun_set_input(m, 0, image, (int64_t[]){batch, 1, 8, 8}, 4) && !edgerun_run(m));
    EXPECT(!edgerun_describe(m, EDGERUN_OUTPUT, 0, &port) && port.shape[0] == batch && port.shape[1] == 10);
    EXPECT(port.dtype == EDGERUN_F32 && port.bytes == (uint64_t)batch * 40);
  }
  EXPECT(edgerun_memory(m) > 0);
  for (int i = 0; i < 80; i++) printf("%.9g\n", ((const float *)edgerun_output_data(m, 0))[i]);
  edgerun_close(m);
  edgerun_close(NULL);
  return 0;
}
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    values = np.random.default_rng(5).random((8, 1, 8, 8), np.float32)
    path = tmp_path_factory.mktemp("images") / "images.raw"
    path.write_bytes(values.tobytes())
    return path, values


def compile_program(folder: Path, triple: str, arguments: Sequence[str], source: str = PROGRAM) -> Path:
    program = folder / "program"
    (folder / "program.c").write_text(source)
    command = [sys.executable, "-m", "ziglang", "cc", "-target", triple, "-O1", "-Wall", "-Wextra", "-Werror"]
    command += [str(folder / "program.c"), f"-I{folder}", *arguments, "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "program.c").unlink()
    return program


def check(graph: Graph, command: list[str], values: np.ndarray) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = np.array(done.stdout.split(), np.float64).reshape(8, 10)
    expected = NumpyExecutor(graph).run({"image": values})["probabilities"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("form", ["shared", "static"])
def test_here(digits: Graph, images: tuple[Path, np.ndarray], form: str, tmp_path: Path) -> None:
    path, values = images
    folder = tmp_path / "lib"
    pack_library(digits, load(HOST), folder, source=DIGITS / "digits.onnx")
    arguments = [f"-L{folder}", "-lmodel", f"-Wl,-rpath,{folder}"]
    if form == "static":
        arguments = ["-DSTATIC", str(folder / "model.o"), str(folder / "libedgerun.a"), "-lm", "-lpthread", "-ldl"]
    program = compile_program(folder, glibc_target(HOST).triple, arguments)
    check(digits, [str(program), str(path)], values)


@pytest.mark.parametrize("arch", ["aarch64", "riscv64"])
def test_static_elsewhere(digits: Graph, images: tuple[Path, np.ndarray], arch: str, tmp_path: Path) -> None:
    path, values = images
    folder = tmp_path / "lib"
    pack_library(digits, load(arch), folder)
    arguments = ["-static", "-DSTATIC", str(folder / "model.o"), str(folder / "libedgerun.a"), "-lm"]
    program = compile_program(folder, TRIPLES[arch], arguments)
    check(digits, [*emulator(arch), str(program), str(path)], values)


def test_armv7_links(digits: Graph, tmp_path: Path) -> None:
    """Both forms link for 32-bit Arm; its glibc is not at hand to run them."""
    folder = tmp_path / "lib"
    pack_library(digits, load("armv7"), folder)
    for arguments in (
        [f"-L{folder}", "-lmodel"],
        ["-DSTATIC", str(folder / "model.o"), str(folder / "libedgerun.a"), "-lm", "-lpthread", "-ldl"],
    ):
        program = compile_program(folder, glibc_target("armv7").triple, arguments)
        found = audit(program.read_bytes())
        assert found.machine == "armv7"
        assert not found.static


def test_what_the_library_needs(digits: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    result = pack_library(digits, load("aarch64"), folder)
    found = audit((folder / "libmodel.so").read_bytes())
    assert {name.split(".so")[0] for name in found.needed} <= {
        "libc",
        "libm",
        "libpthread",
        "libdl",
        "ld-linux-aarch64",
    }
    assert tuple(int(d) for d in found.versions["GLIBC"].removeprefix("GLIBC_").split(".")) <= (2, 17)
    assert result.bytes == (folder / "libmodel.so").stat().st_size
    assert (folder / "model.o").read_bytes().count(bytes(map_plan(folder / "libmodel.so"))) == 1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: data[:-64], "holds no model"),
        (lambda data: data[:-20] + b"x" + data[-19:], "the end of"),
        (lambda data: data[:-1000], "holds no model"),
    ],
    ids=["no footer", "footer", "truncated"],
)
def test_damaged_files_are_refused(digits: Graph, damage: object, words: str, tmp_path: Path) -> None:
    pack_library(digits, load(HOST), tmp_path / "lib")
    data = (tmp_path / "lib" / "libmodel.so").read_bytes()
    broken = tmp_path / "libbroken.so"
    broken.write_bytes(damage(data))  # type: ignore[operator]
    script = (
        "import ctypes, sys\n"
        "lib = ctypes.CDLL(sys.argv[1]); lib.edgerun_error.restype = ctypes.c_char_p\n"
        "m = ctypes.c_void_p(); print(lib.edgerun_open(None, 0, 1, ctypes.byref(m)), lib.edgerun_error().decode())"
    )
    done = subprocess.run([sys.executable, "-c", script, str(broken)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("1 ")
    assert words in done.stdout


def test_cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "lib"
    model = str(DIGITS / "digits.onnx")
    arguments = ["pack", model, "--target", HOST, "--dim", "batch=1..8", "--format", "lib", "-o", str(folder)]
    assert run(arguments) == 0
    names = {"libmodel.so", "libedgerun.a", "model.o", "edgerun_model.h", "example.c"}
    assert {p.name for p in folder.iterdir()} == names
    assert run(arguments) == 5
    assert "exists already" in capsys.readouterr().err
    assert run([*arguments, "--force"]) == 0
    (folder / "other").touch()
    assert run([*arguments, "--force"]) == 5
    assert "holds other files" in capsys.readouterr().err
    assert run([*arguments, "--max-latency", "1ms"]) == 2
    program = compile_program(
        folder, glibc_target(HOST).triple, [f"-L{folder}", "-lmodel", f"-Wl,-rpath,{folder}"],
        (folder / "example.c").read_text(),
    )  # fmt: skip
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    assert "output probabilities: dtype 1, shape 1 10" in done.stdout


def test_data_objects_link_with_any_content(tmp_path: Path) -> None:
    """Sizes around the alignment; the linker reads the data and its size."""
    for size in (1, 7, 8, 63, 64, 65):
        data = bytes(range(1, size + 1))
        (tmp_path / "data.o").write_bytes(b"".join(data_object(HOST, data, "blob")))
        source = "extern const unsigned char blob[]; extern const unsigned long long blob_bytes;\n"
        source += "int sum(void) { int s = 0; for (unsigned i = 0; i < blob_bytes; i++) s += blob[i]; return s; }\n"
        (tmp_path / "sum.c").write_text(source)
        library = tmp_path / f"libsum{size}.so"
        command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-target", glibc_target(HOST).triple]
        subprocess.run(
            [*command, str(tmp_path / "sum.c"), str(tmp_path / "data.o"), "-o", str(library)],
            check=True, capture_output=True,
        )  # fmt: skip
        assert ctypes.CDLL(str(library)).sum() == sum(data)
