"""The archive of a one-file executable, by PyInstaller's own writers, for another architecture.

    options | pyimod*, pyiboot01 (PyInstaller's bootstrap) | entry script | PYZ (modules) | libraries | base_library.zip

PyInstaller is imported here only; it is a dependency of the extra `python-engine`.
"""

from __future__ import annotations

import importlib.util
import marshal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edgerun.errors import BackendUnavailable
from edgerun_packaging.freeze.modules import Module
from edgerun_packaging.freeze.wheels import wheel

BOOTLOADERS = {"x86_64": "Linux-64bit-intel", "aarch64": "Linux-64bit-arm"}
BOOTSTRAP = ("pyimod01_archive", "pyimod02_importers", "pyimod03_ctypes")


def _pyinstaller() -> Any:
    """The package. Raises BackendUnavailable when it is not installed."""
    try:
        import PyInstaller
    except ModuleNotFoundError as e:
        raise BackendUnavailable("engine python needs PyInstaller", hint="pip install 'edgerun[python-engine]'") from e
    return PyInstaller


def bootloader(arch: str) -> Path:
    """PyInstaller's bootloader for `arch`, of the version that is installed here.

    It comes with the installed package for this machine's architecture, else from the wheel for the target.
    """
    package = Path(_pyinstaller().__file__).parent
    installed = package / "bootloader" / BOOTLOADERS[arch] / "run"
    if installed.exists():
        return installed
    site, _ = wheel(f"pyinstaller=={_pyinstaller().__version__}", arch)
    return site / "PyInstaller" / "bootloader" / BOOTLOADERS[arch] / "run"


def _level(name: str) -> int:
    """Byte code without docstrings and assertions (2), but for our modules and the user's script (0)."""
    return 0 if name.startswith("edgerun") else 2


def write(
    out: Path,
    modules: Iterable[Module],
    libraries: Mapping[str, Path],
    data: Mapping[str, Path],
    script: Path,
    python_library: str,
) -> int:
    """Write the archive to `out`; returns the bytes of the modules in it (compressed).

    `libraries` and `data` map names inside the archive to files; `script` is the program that runs; `python_library`
    is the name of CPython's shared library among `libraries`.
    """
    _pyinstaller()
    from PyInstaller.archive.writers import CArchiveWriter, ZlibArchiveWriter
    from PyInstaller.building.utils import create_base_library_zip, get_code_object
    from PyInstaller.compat import BYTECODE_MAGIC, PY3_BASE_MODULES

    work = out.parent
    source = [(m.name, str(m.path)) for m in sorted(modules, key=lambda m: m.name) if m.kind == "source"]
    code = {name: get_code_object(name, path, optimize=_level(name)) for name, path in source}
    base = [(n, p, "PYMODULE") for n, p in source if n.split(".")[0] in PY3_BASE_MODULES]
    rest = [(n, p, "PYMODULE") for n, p in source if n.split(".")[0] not in PY3_BASE_MODULES]
    create_base_library_zip(str(work / "base_library.zip"), base, code)
    ZlibArchiveWriter(str(work / "PYZ.pyz"), rest, code)

    def compiled(name: str, path: Path) -> str:
        target = work / f"{name}.pyc"
        target.write_bytes(BYTECODE_MAGIC + bytes(12) + marshal.dumps(get_code_object(name, str(path), optimize=0)))
        return str(target)

    spec = importlib.util.find_spec("PyInstaller.loader")
    assert spec is not None and spec.submodule_search_locations
    loader = Path(next(iter(spec.submodule_search_locations)))
    struct_path = next(Path(p) for n, p in source if n == "struct")
    entries: list[tuple[str, str, bool, str]] = [("struct", compiled("struct", struct_path), True, "m")]
    entries += [(name, compiled(name, loader / f"{name}.py"), True, "m") for name in BOOTSTRAP]
    entries.append(("pyiboot01_bootstrap", str(loader / "pyiboot01_bootstrap.py"), True, "s"))
    hooks = loader.parent / "hooks" / "rthooks"
    # pkgutil finds the modules of our tables of ops and kernels.
    entries.append(("pyi_rth_pkgutil", str(hooks / "pyi_rth_pkgutil.py"), True, "s"))
    entries.append((script.stem, str(script), True, "s"))
    entries.append(("PYZ.pyz", str(work / "PYZ.pyz"), False, "z"))
    entries += [(name, str(path), True, "b") for name, path in sorted(libraries.items())]
    entries += [(name, str(path), True, "x") for name, path in sorted(data.items())]
    entries.append(("base_library.zip", str(work / "base_library.zip"), True, "x"))
    CArchiveWriter(str(out), entries, python_library)
    return (work / "PYZ.pyz").stat().st_size + (work / "base_library.zip").stat().st_size
