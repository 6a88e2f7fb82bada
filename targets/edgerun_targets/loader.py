"""Read and validate target profiles."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from edgerun.errors import FileFormatError, InputOutputError, UsageError
from edgerun.machine import host_arch

ARCHES = ("x86_64", "aarch64", "armv7", "riscv64", "wasm32")
_FEATURES = {
    "x86_64": {"avx2", "avx512", "vnni"},
    "aarch64": {"neon", "crc", "dotprod", "fp16", "i8mm", "bf16", "sve"},
    "armv7": {"neon"},
    "riscv64": {"rvv"},
    "wasm32": {"simd128"},
}
_CACHES = ("l1d", "l2", "l3")


@dataclass(frozen=True, slots=True)
class Target:
    """What is known about a board. Numbers are 0 where a generic profile leaves them open."""

    name: str
    description: str
    arch: str
    cpu: str
    soc: str = ""
    cores: int = 0
    """Big cores: the ones inference uses by default."""
    little_cores: int = 0
    features: tuple[str, ...] = ()
    ram_mb: int = 0
    """RAM of the smallest model sold, in MiB."""
    mhz: int = 0
    """Clock of the big cores when nothing throttles them."""
    memory_mbs: int = 0
    """Bandwidth of the memory by its data sheet, in MB/s."""
    l1d_kb: int = 32
    l2_kb: int = 512
    """Per core, or shared where the cores share it, in KiB."""
    l3_kb: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The fields, for reports and manifests."""
        return asdict(self) | {"features": list(self.features)}


def names() -> list[str]:
    """All target names: the generic architectures first, then boards."""
    found = [p.name.removesuffix(".toml") for p in files("edgerun_targets").iterdir() if p.name.endswith(".toml")]
    return sorted(found, key=lambda n: (n not in ARCHES, n))


def load(name: str) -> Target:
    """The profile called `name`, or of the file `name` when it ends in `.toml`.

    Raises UsageError with the nearest names for an unknown one, FileFormatError for an invalid file.
    """
    if name.endswith(".toml"):
        return load_file(Path(name))
    if name == "host":
        if host_arch() not in ARCHES:
            raise UsageError(f"this machine ({host_arch()}) is no known target", hint="one of " + ", ".join(ARCHES))
        return load(host_arch())
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`edgerun targets` lists them"
        raise UsageError(f"there is no target {name!r}", hint=hint)
    return _parse(name, (files("edgerun_targets") / f"{name}.toml").read_text(encoding="utf-8"))


def load_file(path: Path) -> Target:
    """A profile of one's own. Raises InputOutputError or FileFormatError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise InputOutputError(f"cannot read the target {path}: {e}") from e
    return _parse(path.stem, text)


def _parse(name: str, text: str) -> Target:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise FileFormatError(f"target {name}: {e}") from e
    cache = data.pop("cache_kb", {})
    known: dict[str, type] = {
        "description": str,
        "arch": str,
        "cpu": str,
        "soc": str,
        "cores": int,
        "little_cores": int,
        "ram_mb": int,
        "mhz": int,
        "memory_mbs": int,
    }
    for key, value in data.items():
        if key == "features":
            if not isinstance(value, list) or not all(isinstance(f, str) for f in value):
                raise FileFormatError(f"target {name}: features must be a list of words")
        elif key not in known:
            near = difflib.get_close_matches(key, [*known, "features", "cache_kb"], n=1)
            raise FileFormatError(
                f"target {name}: unknown key {key!r}", hint=f"did you mean {near[0]}?" if near else ""
            )
        elif type(value) is not known[key] or (isinstance(value, int) and value < 0):
            raise FileFormatError(f"target {name}: {key} must be a {'number' if known[key] is int else 'text'}")
    for key in ("description", "arch", "cpu"):
        if not data.get(key):
            raise FileFormatError(f"target {name}: {key} is missing")
    if data["arch"] not in ARCHES:
        raise FileFormatError(f"target {name}: unknown arch {data['arch']!r}", hint="one of " + ", ".join(ARCHES))
    odd = set(data.get("features", [])) - _FEATURES[data["arch"]]
    if odd:
        known_features = ", ".join(sorted(_FEATURES[data["arch"]]))
        raise FileFormatError(
            f"target {name}: unknown feature {min(odd)!r}", hint=f"{data['arch']} knows {known_features}"
        )
    if not isinstance(cache, dict) or any(k not in _CACHES or type(v) is not int or v < 0 for k, v in cache.items()):
        raise FileFormatError(f"target {name}: cache_kb holds l1d, l2 and l3 as numbers")
    data["features"] = tuple(data.get("features", ()))
    return Target(name=name, **data, **{f"{level}_kb": size for level, size in cache.items()})
