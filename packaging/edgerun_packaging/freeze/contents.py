"""What goes into the archive: modules, extensions and shared libraries for a target."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, field
from pathlib import Path

import edgerun
from edgerun.board.options import VERBS
from edgerun.errors import BackendUnavailable, UnsupportedError
from edgerun_packaging.freeze import archive, blas
from edgerun_packaging.freeze.cache import sha256
from edgerun_packaging.freeze.libraries import Requirements, closure, requirements, unresolved
from edgerun_packaging.freeze.modules import NUMPY_FROM_C, Collector, Module
from edgerun_packaging.freeze.target_python import VERSION, TargetPython
from edgerun_packaging.freeze.wheels import wheel
from edgerun_packaging.zig import build_library, glibc_target, library_name

SOURCES = Path(edgerun.__file__).parents[1]
PACKAGES = {"numpy": ("numpy",), "wgpu": ("numpy", "wgpu", "cffi", "pycparser")}
NATIVE_LIBRARY = "edgerun/backends/native/lib"


@dataclass(frozen=True, slots=True)
class Contents:
    """What is frozen. `files`: name in the unpack folder to a file of the target."""

    modules: list[Module]
    files: dict[str, Path]
    data: dict[str, Path]
    """As `files`, but no ELF files."""
    bootloader: Path
    python_library: str
    needs: Requirements
    origin: dict[str, str] = field(default_factory=dict)

    @property
    def unpacked_bytes(self) -> int:
        """What the bootloader writes into its temporary folder."""
        return sum(p.stat().st_size for p in (*self.files.values(), *self.data.values()))


def collect(python: TargetPython, *, backend: str, script: Path | None, work: Path) -> Contents:
    """Everything that a model needs that runs on `backend`: "native", "numpy" or "wgpu".

    `script` is the user's; `work` a folder for what is made now. Raises UnsupportedError when the script imports what
    is not there.
    """
    native = backend == "native"
    wheels = [wheel(f"{name}=={_installed(name)}", python.arch) for name in PACKAGES.get(backend, PACKAGES["numpy"])]
    sites = [site for site, _ in wheels]
    numpy_site = sites[0]
    collector = Collector(python, [work / "script", *sites, SOURCES])
    _add_modules(collector, backend, script, work)
    data: dict[str, Path] = {}
    libraries = [*python.libraries, numpy_site / "numpy.libs"]
    extensions = {m.name: m.path for m in collector.found.values() if m.kind == "extension" and m.path}
    extensions = {n: p for n, p in extensions.items() if not unresolved(p, libraries)}
    files = {_place(path, sites, python): path for path in extensions.values()}
    needed = [python.shared_library, *extensions.values()]
    replaced = _small_blas(python.arch, extensions, numpy_site, work) if native else {}
    files |= closure(needed, libraries, replaced)
    files[python.shared_library.name] = python.shared_library.resolve()
    for site in sites:
        files |= {f"wgpu/resources/{p.name}": p for p in (site / "wgpu" / "resources").glob("*.so")}
        data |= {f"wgpu/resources/{p.name}": p for p in (site / "wgpu" / "resources").glob("*.h")}
    if native:
        made = work / library_name(python.arch)
        build_library(made, glibc_target(python.arch))
        files[f"{NATIVE_LIBRARY}/{made.name}"] = made
    bootloader = archive.bootloader(python.arch)
    needs = requirements({"bootloader": bootloader, **files}, python.arch)
    origin = python.origin | {name: sha256(path) for path, name in _wheel_files(wheels)}
    modules = [m for m in collector.found.values() if m.kind != "extension" or m.name in extensions]
    return Contents(modules, files, data, bootloader, python.shared_library.name, needs, origin)


def _installed(name: str) -> str:
    """The version of a package on this machine: the target gets the same. Raises BackendUnavailable."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError as e:
        raise BackendUnavailable(f"the package {name} is not installed", hint="pip install 'edgerun[wgpu]'") from e


def _wheel_files(wheels: list[tuple[Path, str]]) -> list[tuple[Path, str]]:
    return [(site.parent / "wheel" / name, name) for site, name in wheels]


def _add_modules(collector: Collector, backend: str, script: Path | None, work: Path) -> None:
    from edgerun_packaging.freeze.modules import ALWAYS

    collector.add(ALWAYS)
    program = ["edgerun.board.program", *(f"edgerun.board.{verb}" for verb in VERBS)]
    collector.add([*program, f"edgerun.board.{backend}_model", "numpy"])
    for package in NUMPY_FROM_C:
        collector.add_package(package)
    if backend != "native":
        collector.add_package("edgerun.ops")
        collector.add_package("edgerun.backends.numpy")
    if backend == "wgpu":
        collector.add_package("edgerun.backends.gpu.ops")
        collector.add(["edgerun.backends.wgpu.adapters", "wgpu.backends.wgpu_native.extras", "_cffi_backend"])
    if script is not None:
        from edgerun.board.hooks import MODULE

        (work / "script").mkdir()
        (work / "script" / f"{MODULE}.py").write_bytes(script.read_bytes())
        collector.add([MODULE])
        absent = sorted(name for name, importer in collector.missing.items() if importer == MODULE)
        if absent:
            raise UnsupportedError(
                f"{script} imports {', '.join(absent)}, which would not be on the board",
                hint="a script may import the standard library, numpy and edgerun",
            )


def _place(path: Path, sites: list[Path], python: TargetPython) -> str:
    """Where PyInstaller's importer looks for an extension module."""
    if path.is_relative_to(python.extensions):
        return f"python{VERSION}/lib-dynload/{path.name}"
    return str(path.relative_to(next(s for s in sites if path.is_relative_to(s))))


def _small_blas(arch: str, extensions: dict[str, Path], numpy_site: Path, work: Path) -> dict[str, Path]:
    """The stand-in for the BLAS of NumPy's wheel, by its name."""
    from edgerun_packaging.elf import audit

    parts = [p for p in extensions.values() if p.is_relative_to(numpy_site)]
    name = blas.library_name(n for p in parts for n in audit(p.read_bytes()).needed)
    return {} if name is None else {name: blas.build(arch, parts, name, work)}
