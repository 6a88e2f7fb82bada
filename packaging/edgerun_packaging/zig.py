"""Compile the C runtime with zig: the host's shared library, static stubs and other executables for all targets.

Every object and link result is cached under the hash of its inputs (all sources, flags, zig's version). Kernels are
compiled once for each ISA level with that level's -mcpu; everything else, and the link, uses the weakest level.
`python -m edgerun_packaging.zig host` builds the library into edgerun/backends/native/lib/.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from edgerun.backends.native.binding import host_arch
from edgerun.backends.native.table import CSRC, Level, levels
from edgerun.errors import BackendUnavailable, EdgerunError, UsageError

LAUNCHER = Path(__file__).parent / "launcher"
LIBRARY = Path(__file__).parent / "library"
JOBS = 2
"""Compilers that run at once."""

TRIPLES = {
    "x86_64": "x86_64-linux-musl",
    "aarch64": "aarch64-linux-musl",
    "armv7": "arm-linux-musleabihf",
    "riscv64": "riscv64-linux-musl",
    "wasm32": "wasm32-wasi",
}
# -O3 also because zig compiles without optimisation into traps on undefined behaviour. No -ffast-math: NaN matters.
FLAGS = (
    "-std=c11", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fno-sanitize=all",
    "-fno-strict-aliasing",
    "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections", "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables", "-fno-stack-protector", "-Wall", "-Wextra", "-Wno-unused-parameter",
)  # fmt: skip
# Kernels say themselves which loops to unroll; doing it to all others adds a third to the code of the widest levels.
_LEVEL_FLAGS = {"x86_64": ("-mprefer-vector-width=512", "-fno-unroll-loops"), "armv7": ("-fno-unroll-loops",)}
# Every x86-64 CPU since 2013 has a stronger level than sse2: that one may be slow, but should be small.
_SMALL_LEVELS = {("x86_64", "sse2"): ("-Oz",), ("x86_64", "avx2"): ("-Os",)}
# The launcher waits for files, clients and kernels.
_SMALL = ("-Os",)
_PER_NODE_AT_MOST = frozenset(
    {"plan.c", "bind.c", "topology.c", "cpu.c", "error.c", "memory.c", "table.c", "dims.c", "runtime.c"}
)
"""Sources of the runtime that work while a plan is loaded and shapes are bound, and a moment for each node."""
_LINK_HARDENING = ("-Wl,-z,noexecstack", "-Wl,-z,relro", "-Wl,-z,now")


@dataclass(frozen=True, slots=True)
class Target:
    """What to compile for. `flags` go to every compilation and link."""

    arch: str
    triple: str
    flags: tuple[str, ...] = ()
    only_baseline: bool = False
    """Compile the weakest ISA level alone (for tests)."""

    @property
    def levels(self) -> tuple[Level, ...]:
        found = levels()[self.arch]
        return found[:1] if self.only_baseline else found


def target(arch: str, *flags: str) -> Target:
    """The static musl target of an architecture. Raises UsageError when there is none."""
    if arch not in TRIPLES:
        raise UsageError(f"there is no target {arch!r}", hint="one of " + ", ".join(TRIPLES))
    return Target(arch, TRIPLES[arch], (("-DER_NO_THREADS",) if arch == "wasm32" else ()) + flags)


def host_target() -> Target:
    """This machine with its own libc, for a shared library that Python loads."""
    return glibc_target(host_arch()) if platform.libc_ver()[0] == "glibc" else target(host_arch())


def glibc_target(arch: str) -> Target:
    """An architecture with glibc from 2.17 (RISC-V: 2.27) on, for what is linked into other programs.

    Raises UsageError when there is none.
    """
    triple = target(arch).triple
    if "musl" not in triple:
        raise UsageError(f"there is no glibc for {arch}")
    return Target(arch, triple.replace("musl", "gnu") + (".2.27" if arch == "riscv64" else ".2.17"))


# -- running zig


@lru_cache(maxsize=1)
def zig_version() -> str:
    """The compiler's version. Raises BackendUnavailable when the ziglang package is missing."""
    try:
        done = subprocess.run([sys.executable, "-m", "ziglang", "version"], capture_output=True, text=True, check=True)
    except (subprocess.CalledProcessError, OSError) as e:
        raise BackendUnavailable("the compiler is not installed", hint="pip install 'edgerun[host]'") from e
    return done.stdout.strip()


def cache_folder() -> Path:
    """Where objects are kept: $XDG_CACHE_HOME/edgerun/build."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgerun" / "build"


def _zig(arguments: Sequence[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise EdgerunError(f"the compiler failed:\n{done.stderr.strip()[-4000:]}")


def _cached(key: str, suffix: str, arguments: Sequence[str]) -> Path:
    """The file that zig makes from `arguments` (without -o), from the cache when it is there."""
    path = cache_folder() / f"{key}{suffix}"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / f"out{suffix}"
        _zig([*arguments, "-o", str(made)])
        made.replace(path)
    return path


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256(zig_version().encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:40]


def _folder_digest(*folders: Path, skip: str = "") -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(p for p in folder.rglob("*") if p.suffix in (".c", ".h", ".def")):
            if skip and skip in path.parts:
                continue
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


# -- objects


def runtime_sources() -> list[Path]:
    """The sources that are compiled once: all but isa.c and the kernels it includes."""
    return [p for p in sorted(CSRC.glob("*.c")) if p.name != "isa.c"]


def objects(to: Target, extra: Sequence[Path] = (), flags: Sequence[str] = ()) -> list[Path]:
    """Compile the runtime, its kernels at every ISA level, and `extra` sources; returns the object files.

    Raises EdgerunError with the compiler's message, BackendUnavailable without a compiler.
    """
    headers = _folder_digest(CSRC, skip="kernels")
    kernels = _folder_digest(CSRC)
    weakest = to.levels[0].cpu
    jobs: list[tuple[str, list[str]]] = []
    for index, level in enumerate(to.levels):
        defines = [f"-DER_ISA={level.symbol}", f'-DER_ISA_NAME="{level.name}"']
        defines += ["-DER_BASELINE_CHECKS"] if index == 0 else []
        defines += [] if level.extent == "FULL" else [f"-DER_{level.extent}_ONLY"]
        tuning = [*_LEVEL_FLAGS.get(to.arch, ()), *_SMALL_LEVELS.get((to.arch, level.name), ())]
        arguments = [f"-mcpu={level.cpu}", *defines, *tuning, str(CSRC / "isa.c")]
        jobs.append((kernels, arguments))
    for source in [*runtime_sources(), *extra]:
        small = _SMALL if source.parent == LAUNCHER or source.name in _PER_NODE_AT_MOST else ()
        arguments = [f"-mcpu={weakest}", *small, str(source)]
        jobs.append((headers + _folder_digest(source.parent, skip="kernels"), arguments))
    common = ["-target", to.triple, *FLAGS, *to.flags, *flags, f"-I{CSRC}", "-c"]

    def compile_one(job: tuple[str, list[str]]) -> Path:
        content, arguments = job
        plain = [
            a.replace(str(CSRC), "csrc").replace(str(LAUNCHER), "launcher").replace(str(LIBRARY), "library")
            for a in [*common, *arguments]
        ]
        return _cached(_digest(content, *plain), ".o", [*common, *arguments])

    zig_version()
    with ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(compile_one, jobs))


def link(to: Target, inputs: Sequence[Path], out: Path, flags: Sequence[str] = ()) -> None:
    """Link objects into `out`. The weakest level's -mcpu also applies to libc, which zig compiles for it."""
    contents = [p.read_bytes() for p in inputs]
    cpu = to.levels[0].cpu.removesuffix("+thumb_mode")  # zig cannot compile its libc for it
    arguments = ["-target", to.triple, f"-mcpu={cpu}", *to.flags, *flags]
    made = _cached(_digest("link", *arguments, *contents), ".bin", [*arguments, *map(str, inputs)])
    shutil.copyfile(made, out)
    out.chmod(0o755)


def _executable_flags(to: Target) -> list[str]:
    flags = ["-O3", "-Wl,--gc-sections", "-s"]
    if to.arch == "wasm32":
        return flags
    return [*flags, "-static", "-pthread", *_LINK_HARDENING, "-lm"]


# -- products


def build_library(out: Path, to: Target | None = None) -> None:
    """The shared library that ctypes loads, for this machine unless `to` says otherwise."""
    to = to or host_target()
    made = objects(to, flags=("-fPIC", "-pthread"))
    link(to, made, out, ["-O3", "-shared", "-Wl,--gc-sections", "-s", "-pthread", *_LINK_HARDENING, "-lm"])


def build_executable(arch: str, sources: Sequence[Path], out: Path) -> None:
    """A static executable of the runtime and `sources` (which hold main)."""
    to = target(arch)
    link(to, objects(to, sources), out, _executable_flags(to))


def build_stub(arch: str, out: Path) -> None:
    """The launcher that plans are appended to."""
    build_executable(arch, sorted(LAUNCHER.glob("*.c")), out)


def build_shared_model(arch: str, out: Path) -> None:
    """The shared library that plans are appended to; it exports the functions of library/edgerun_model.h alone."""
    to = glibc_target(arch)
    made = objects(to, sorted(LIBRARY.glob("*.c")), ("-fPIC", "-pthread"))
    exports = f"-Wl,--version-script={LIBRARY / 'exports.map'}"
    flags = ["-O3", "-shared", "-Wl,--gc-sections", "-s", "-pthread", exports, *_LINK_HARDENING, "-lm", "-ldl"]
    link(to, made, out, flags)


def build_static_model(arch: str, out: Path) -> None:
    """The static library of runtime and library/edgerun_model.h, for programs that link a plan as an object file."""
    made = objects(glibc_target(arch), sorted(LIBRARY.glob("*.c")), ("-fPIC", "-pthread"))
    with tempfile.TemporaryDirectory() as work:
        members = [Path(work) / f"edgerun_{i}.o" for i in range(len(made))]
        for source, member in zip(made, members, strict=True):
            shutil.copyfile(source, member)
        archive = Path(work) / "libedgerun.a"
        command = [sys.executable, "-m", "ziglang", "ar", "rcsD", str(archive), *map(str, members)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise EdgerunError(f"the archiver failed:\n{done.stderr.strip()[-4000:]}")
        shutil.copyfile(archive, out)


def build_wasm_model(arch: str, out: Path) -> None:
    """The WebAssembly module (a WASI reactor) that plans are put into; exports library/edgerun_model.h and malloc."""
    header = (LIBRARY / "edgerun_model.h").read_text()
    functions = sorted(set(re.findall(r"\b(edgerun_\w+)\(\w", header)) - {"edgerun_plan"})
    exports = [f"-Wl,--export={name}" for name in [*functions, "malloc", "free"]]
    flags = ["-O3", "-s", "-mexec-model=reactor", "-Wl,--gc-sections", "-Wl,-z,stack-size=1048576", *exports]
    link(target(arch), objects(target(arch), sorted(LIBRARY.glob("*.c"))), out, flags)


def build_plain_library(arch: str, source: Path, out: Path, soname: str) -> None:
    """A shared library of one C source that has nothing to do with the runtime, for glibc 2.17 and newer."""
    to = glibc_target(arch)
    flags = ["-O3", "-fno-sanitize=all", "-fPIC", "-shared", "-s", f"-Wl,-soname,{soname}", *_LINK_HARDENING]
    link(to, [source], out, flags)


def build_plain_executable(arch: str, sources: Sequence[Path], out: Path) -> None:
    """A dynamic executable of C sources that have nothing to do with the runtime, for glibc 2.17 and newer."""
    flags = [
        "-std=c11",
        "-Oz",
        "-fno-sanitize=all",
        "-Wall",
        "-Wextra",
        "-s",
        "-Wl,--gc-sections",
        *_LINK_HARDENING,
        "-ldl",
    ]
    link(glibc_target(arch), sources, out, flags)


def library_name(arch: str) -> str:
    """File name of the shared library for an architecture."""
    return f"libedgerun-{arch}.so"


def current_library(packaged: Path) -> Path:
    """A library of the present sources: `packaged` when its key says so, else one in the cache, compiled if need be."""
    key = packaged.with_suffix(".key")
    wanted = _digest(_folder_digest(CSRC), *FLAGS)
    if packaged.exists() and key.exists() and key.read_text().strip() == wanted:
        return packaged
    out = cache_folder() / f"{packaged.stem}-{wanted}.so"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = out.with_suffix(f".{os.getpid()}")
        build_library(temporary)
        temporary.replace(out)
    return out


def main(arguments: Sequence[str]) -> int:
    """`host`, or architectures whose stubs are compiled into the cache; prints path and size."""
    for word in arguments or ["host"]:
        if word == "host":
            out = CSRC.parent / "lib" / library_name(host_arch())
            out.parent.mkdir(exist_ok=True)
            temporary = out.with_suffix(f".{os.getpid()}")
            build_library(temporary)
            temporary.replace(out)
            out.with_suffix(".key").write_text(_digest(_folder_digest(CSRC), *FLAGS) + "\n")
        else:
            out = cache_folder() / f"stub-{word}"
            out.parent.mkdir(parents=True, exist_ok=True)
            build_stub(word, out)
        print(f"{word:<8} {out.stat().st_size:>9} bytes  {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
