"""Which Python modules a program needs, found in the target's own files without running them.

The closure of imports, read from the syntax trees. Of the standard library and NumPy only what a module imports when it
is itself imported; of all other code also the imports inside functions. NumPy loads some sub-packages on first use
(`np.fft`): those are found by their names in the code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgerun_packaging.freeze.target_python import TargetPython

ALWAYS = (
    "abc", "ast", "codecs", "collections", "collections.abc", "copyreg", "encodings", "encodings.aliases",
    "encodings.ascii", "encodings.idna", "encodings.latin_1", "encodings.utf_8", "enum", "functools", "genericpath",
    "heapq", "importlib", "importlib.abc", "importlib.machinery", "importlib.util", "io", "keyword", "linecache",
    "locale", "ntpath", "operator", "os", "posixpath", "re", "reprlib", "signal", "sre_compile", "sre_constants",
    "sre_parse", "stat", "struct", "threading", "traceback", "types", "warnings", "weakref", "zipimport", "zlib",
    "ctypes", "ctypes._endian", "_weakrefset", "_collections_abc", "pkgutil", "datetime", "_strptime", "zipfile",
)  # fmt: skip
"""What the interpreter, PyInstaller's bootstrap and the C code of NumPy, and .npz files import by themselves."""
NEVER = ("numpy.testing", "numpy.f2py", "numpy._core._simd", "unittest", "doctest", "pdb", "tkinter", "pydoc")
"""For tests and developers only."""
NUMPY_FROM_C = ("numpy", "numpy._core", "numpy.lib")
"""NumPy's C code imports modules of these packages by name."""
SHALLOW = ("numpy", "edgerun.session", "edgerun.plan")
"""Only their imports at module level are followed, as in the standard library."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the target. `kind`: "source", "extension" or "builtin"; `path` is None for a built-in one."""

    name: str
    kind: str
    path: Path | None = None


class Collector:
    """Collects modules from the target's standard library and `folders` (the first that has a module wins)."""

    def __init__(self, python: TargetPython, folders: Sequence[Path]) -> None:
        self.folders = [*folders, python.standard_library, python.extensions]
        self.standard = (python.standard_library, python.extensions)
        self.built_in = python.shared_library.read_bytes()
        self.found: dict[str, Module] = {}
        self.missing: dict[str, str] = {}
        """Names that nothing provides, with the module that asks for them. Many are optional or of other systems."""

    def add(self, names: Iterable[str], importer: str = "") -> None:
        """Add modules with everything they import."""
        todo = [(name, importer) for name in names]
        while todo:
            name, importer = todo.pop()
            if name in self.found or name in self.missing or _within(name, NEVER):
                continue
            module = self.find(name)
            if module is None:
                self.missing[name] = importer
                continue
            self.found[name] = module
            if "." in name:
                todo.append((name.rpartition(".")[0], name))
            if module.kind == "source":
                todo += [(n, name) for n in self._imports(module)]

    def add_package(self, package: str) -> None:
        """Add every module directly in a package, but no tests."""
        module = self.find(package)
        if module is not None and module.path is not None:
            names = {p.name.partition(".")[0] for p in module.path.parent.iterdir() if p.suffix in (".py", ".so")}
            self.add(f"{package}.{n}" for n in sorted(names) if n.isidentifier() and not _is_test(n))

    def find(self, name: str) -> Module | None:
        """The module called `name`, or None."""
        relative = name.replace(".", "/")
        for folder in self.folders:
            base = folder / relative
            if (base / "__init__.py").is_file():
                return Module(name, "source", base / "__init__.py")
            if base.with_name(base.name + ".py").is_file():
                return Module(name, "source", base.with_name(base.name + ".py"))
            if base.parent.is_dir():
                for path in sorted(base.parent.glob(f"{base.name}.*.so")):
                    return Module(name, "extension", path)
        if ("." not in name and b"\0PyInit_" + name.encode() + b"\0" in self.built_in) or name in _FROZEN:
            return Module(name, "builtin")
        return None

    def _imports(self, module: Module) -> Iterator[str]:
        assert module.path is not None
        tree = ast.parse(module.path.read_bytes(), str(module.path))
        standard = any(module.path.is_relative_to(f) and f == self.standard[0] for f in self.standard)
        shallow = standard or _within(module.name, SHALLOW)
        package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
        for node in _walk(tree, shallow):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = _absolute(node, package)
                yield base
                for alias in node.names:
                    if self.find(f"{base}.{alias.name}"):
                        yield f"{base}.{alias.name}"
            elif isinstance(node, ast.Attribute) and not shallow:
                if isinstance(node.value, ast.Name) and node.value.id in ("np", "numpy"):
                    if self.find(f"numpy.{node.attr}"):
                        yield f"numpy.{node.attr}"


_FROZEN = {"sys", "builtins", "_frozen_importlib", "_frozen_importlib_external", "_imp", "_thread", "marshal"}


def _within(name: str, packages: Iterable[str]) -> bool:
    return any(name == p or name.startswith(p + ".") for p in packages)


def _is_test(name: str) -> bool:
    return name in ("tests", "conftest", "setup") or name.startswith("test_") or "_tests" in name


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _walk(tree: ast.AST, shallow: bool) -> Iterator[ast.AST]:
    """All nodes but those for type checkers and for modules run as programs; with `shallow` none inside functions."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and any(word in ast.unparse(child.test) for word in ("TYPE_CHECKING", "__main__")):
            continue
        if shallow and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        yield child
        yield from _walk(child, shallow)
