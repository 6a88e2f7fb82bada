"""Parts of the freezer, each alone: modules, libraries, the small BLAS, the words of the board's command line."""

from __future__ import annotations

import ctypes
import itertools
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgerun.board.options import help_text, parse
from edgerun.errors import FileFormatError, UsageError
from edgerun_packaging.freeze import blas
from edgerun_packaging.freeze.libraries import requirements, undefined_symbols
from edgerun_packaging.freeze.modules import Collector
from tests.packaging.conftest import HOST, call

TREE = {
    "std/json/__init__.py": "from .decoder import x\n\ndef f():\n    import lazy\n",
    "std/json/decoder.py": "import re\nif __name__ == '__main__':\n    import tool\n",
    "std/re.py": "",
    "std/lazy.py": "",
    "std/tool.py": "",
    "site/numpy/__init__.py": "",
    "site/numpy/fft/__init__.py": "",
    "site/numpy/random/__init__.py": "",
    "app/main.py": (
        "import json, absent\nimport numpy as np\n\ndef g():\n    from pack import part\n    np.fft.rfft(1)\n"
    ),
    "app/pack/__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tool\n",
    "app/pack/part.py": "from . import sibling\nfrom ..pack.other import value\nimport fastpart\n",
    "app/pack/sibling.py": "",
    "app/pack/other.py": "value = 1\n",
    "app/fastpart.cpython-311-x86_64-linux-gnu.so": "",
}


@pytest.fixture
def collector(tmp_path: Path) -> Collector:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "libpython.so").write_bytes(b"\0PyInit_math\0")
    python = SimpleNamespace(
        standard_library=tmp_path / "std", extensions=tmp_path / "std" / "lib", shared_library=tmp_path / "libpython.so"
    )
    return Collector(python, [tmp_path / "app", tmp_path / "site"])  # type: ignore[arg-type]


def test_the_closure_of_imports(collector: Collector) -> None:
    collector.add(["main", "math"])
    assert set(collector.found) == {
        "main", "math", "json", "json.decoder", "re", "numpy", "numpy.fft", "pack", "pack.part", "pack.sibling",
        "pack.other", "fastpart",
    }  # fmt: skip
    assert collector.missing["absent"] == "main"
    kinds = {name: m.kind for name, m in collector.found.items()}
    assert kinds["fastpart"] == "extension" and kinds["math"] == "builtin" and kinds["pack"] == "source"


def test_packages_are_taken_whole_without_their_tests(collector: Collector, tmp_path: Path) -> None:
    (tmp_path / "app" / "pack" / "test_part.py").write_text("")
    collector.add_package("pack")
    assert {"pack.part", "pack.sibling", "pack.other"} <= set(collector.found)
    assert "pack.test_part" not in collector.found


def test_contents_of_another_architecture_are_refused() -> None:
    with pytest.raises(FileFormatError, match="not for aarch64"):
        requirements({"python": Path(sys.executable).resolve()}, "aarch64" if HOST != "aarch64" else "x86_64")
    found = requirements({"python": Path(sys.executable).resolve()}, HOST)
    assert found.glibc >= (2, 17) and "libc.so.6" not in found.libraries


@pytest.fixture(scope="module")
def small_blas(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    umath = next(Path(np.__file__).parent.glob("_core/_multiarray_umath*.so"))
    assert any(s.startswith("scipy_cblas_sgemm") for s in undefined_symbols(umath))
    return ctypes.CDLL(str(blas.build(HOST, [umath], "libsmall_openblas.so", tmp_path_factory.mktemp("blas"))))


@pytest.mark.parametrize(("letter", "dtype", "real"), [("s", "f4", ctypes.c_float), ("d", "f8", ctypes.c_double)])
def test_products_of_the_small_blas(small_blas: ctypes.CDLL, letter: str, dtype: str, real: type) -> None:
    random = np.random.default_rng(0)
    m, n, k = 3, 4, 5

    def pointer(a: np.ndarray) -> ctypes.c_void_p:
        return ctypes.c_void_p(a.ctypes.data)

    size = ctypes.c_int64
    gemm, gemv = small_blas[f"scipy_cblas_{letter}gemm64_"], small_blas[f"scipy_cblas_{letter}gemv64_"]
    syrk = small_blas[f"scipy_cblas_{letter}syrk64_"]
    for order, ta, tb, beta in itertools.product((101, 102), (111, 112), (111, 112), (0.0, 0.5)):
        layout = "C" if order == 101 else "F"
        a = np.array(random.standard_normal((m, k) if ta == 111 else (k, m)), dtype, order=layout)
        b = np.array(random.standard_normal((k, n) if tb == 111 else (n, k)), dtype, order=layout)
        c = np.array(np.full((m, n), np.nan if beta == 0 else 1.0), dtype, order=layout)
        left, right = (a if ta == 111 else a.T), (b if tb == 111 else b.T)
        want = 2 * left @ right + (beta * c if beta else 0)
        leads = [size(x.shape[1] if layout == "C" else x.shape[0]) for x in (a, b, c)]
        gemm(order, ta, tb, size(m), size(n), size(k), real(2), pointer(a), leads[0], pointer(b), leads[1],
             real(beta), pointer(c), leads[2])  # fmt: skip
        np.testing.assert_allclose(c, want, rtol=1e-5)
        x = random.standard_normal(left.shape[1]).astype(dtype)
        y = np.ones(left.shape[0], dtype)
        want_y = 2 * left @ x + beta * y
        gemv(order, ta, size(a.shape[0]), size(a.shape[1]), real(2), pointer(a), leads[0], pointer(x), size(1),
             real(beta), pointer(y), size(1))  # fmt: skip
        np.testing.assert_allclose(y, want_y, rtol=1e-5, atol=1e-6)
        s = np.zeros((m, m), dtype, order=layout)
        syrk(order, 121, ta, size(m), size(k), real(1), pointer(a), leads[0], real(0), pointer(s), size(m))
        np.testing.assert_allclose(s, left @ left.T, rtol=1e-4, atol=1e-6)


def test_the_words_of_the_board() -> None:
    options = parse(["run", "--input", "a=1.npy", "--input=b=2.npy", "--json", "--seed", "7", "--seconds=0.5"])
    assert options.verb == "run" and options.inputs == ["a=1.npy", "b=2.npy"] and options.json
    assert (options.seed, options.seconds) == (7, 0.5)
    for words, text in [
        (["info", "run"], "one word too many"),
        (["benhc"], "did you mean 'bench'"),
        (["zzz"], "the commands are"),
        (["run", "--input"], "needs a value"),
        (["run", "--format", "csv"], "table or json"),
        (["bench", "--seconds", "0"], "above 0"),
        (["bench", "--runs", "-1"], "whole number"),
    ]:
        with pytest.raises(UsageError, match=text):
            parse(words)


def test_help_has_the_flags_of_the_native_launcher(model: Path) -> None:
    for verb in ("", "info", "run", "bench", "selftest", "serve"):
        native = call(model, *([verb] if verb else []), "--help").stdout.decode()
        mine = help_text(verb, "model")
        assert set(re.findall(r"--[a-z-]+", native)) <= set(re.findall(r"--[a-z-]+", mine)) | {"--chat"}
