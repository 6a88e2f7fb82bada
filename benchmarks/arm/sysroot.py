"""An AArch64 root folder with Python, NumPy, onnxruntime and ncnn, for running the peers under qemu-user.

    python -m benchmarks.arm.sysroot build/arm64

Debian packages and wheels are downloaded and unpacked; nothing is installed on the host and nothing of it is changed.
The folder also holds the files from which runtimes learn the processor: qemu-user shows a program the host's /proc and
/sys unless the root has them, and onnxruntime fails on a processor description of another architecture.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGES = (
    "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libgcc-s1", "libstdc++6", "zlib1g",
    "libexpat1", "libgomp1", "libffi8", "libssl3", "libbz2-1.0", "liblzma5",
)  # fmt: skip
WHEELS = ("numpy", "flatbuffers", "onnxruntime", "ncnn")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
CPUINFO = (
    "processor\t: 0\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd evtstrm crc32 cpuid\nCPU implementer\t: 0x41\n"
    "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd08\nCPU revision\t: 3\n\n"
)
"""/proc/cpuinfo of a single Cortex-A72."""


def build(root: Path) -> None:
    """Makes the root folder; needs apt with Debian 12 sources, pip and the network.

    Raises:
        subprocess.CalledProcessError: A download failed.
    """
    work = root.resolve().with_name(root.name + ".download")
    for folder in ("state/partial", "cache/archives/partial", "debs", "wheels"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    (work / "status").touch()
    configuration = work / "apt.conf"
    configuration.write_text(
        'APT::Architecture "arm64"; APT::Architectures {"arm64";};\n'
        f'Dir::State "{work}/state"; Dir::State::status "{work}/status"; Dir::Cache "{work}/cache";\n'
    )
    environment = {**os.environ, "APT_CONFIG": str(configuration)}
    subprocess.run(["apt-get", "update", "-q"], env=environment, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["apt-get", "download", "-q", *PACKAGES], env=environment, check=True, cwd=work / "debs")
    for deb in sorted((work / "debs").glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(deb), str(root)], check=True)
    platforms = [f"--platform={p}" for p in PLATFORMS]
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=311",
        *platforms, "--dest", str(work / "wheels"), *WHEELS,
    ]  # fmt: skip
    subprocess.run(command, check=True)
    for wheel in sorted((work / "wheels").glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(root / "site")
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc" / "cpuinfo").write_text(CPUINFO)
    processors = root / "sys" / "devices" / "system" / "cpu"
    processors.mkdir(parents=True, exist_ok=True)
    for file in ("possible", "present", "online"):
        (processors / file).write_text("0\n")


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    root = Path(sys.argv[1])
    root.mkdir(parents=True, exist_ok=True)
    build(root)
    print(root)


if __name__ == "__main__":
    main()
