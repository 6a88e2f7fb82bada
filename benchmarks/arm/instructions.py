"""Counts the AArch64 instructions of one inference, exactly, under qemu-user: edgerun's packed file and the peers.

    python -m benchmarks.arm.sysroot build/arm64
    python -m benchmarks.arm.instructions --root build/arm64 --models mobilenet_v2,squeezenet

Start-up cancels out: the count of one inference is half the difference between three and one. A count is not a time:
it knows nothing of caches, of instructions that take several cycles, or of two issued in one; it does show work that
is not done. The emulated processor decides which variants the runtimes choose: cortex-a53 and cortex-a72 have no dot
product, cortex-a76 and `max` have.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import conversions
from benchmarks.arms import make_feeds
from benchmarks.models import MODELS, BenchModel

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def plugin(folder: Path) -> Path:
    """Builds the counting plugin for qemu."""
    to = folder / "libicount.so"
    command = [sys.executable, "-m", "ziglang", "cc", "-O2", "-shared", "-fPIC", "-Wl,--allow-shlib-undefined"]
    subprocess.run([*command, "-o", str(to), str(HERE / "icount.c")], check=True)
    return to


def count(command: list[str], cpu: str, library: Path, root: Path | None = None) -> dict[str, int]:
    """Instructions by class of a whole AArch64 process.

    Raises:
        RuntimeError: The program failed.
    """
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "counts.json"
        prefix = ["qemu-aarch64", "-cpu", cpu, "-plugin", f"{library},out={out}"]
        if root:
            site = f"{root / 'site'}:{ROOT}"
            prefix += ["-L", str(root), "-E", f"PYTHONPATH={site}", "-E", "PYTHONDONTWRITEBYTECODE=1"]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run([*prefix, *command], capture_output=True, text=True, env=environment, check=False)
        if done.returncode or not out.exists():
            words = (done.stderr.strip() or "no message").splitlines()[-1]
            raise RuntimeError(f"exit status {done.returncode}: {words[:200]}")
        counts: dict[str, int] = json.loads(out.read_text())
        return counts


def of_one_inference(command: list[str], cpu: str, library: Path, root: Path | None = None) -> dict[str, int]:
    """The command's last argument is the number of inferences."""
    once = count([*command, "1"], cpu, library, root)
    thrice = count([*command, "3"], cpu, library, root)
    return {name: (thrice[name] - once[name]) // 2 for name in once}


def packed(model: BenchModel, path: Path, folder: Path) -> list[str]:
    """The command that runs the model's packed file N times."""
    file = folder / model.name
    shapes = [f"--shape={name}={','.join(map(str, shape))}" for name, shape in model.shapes.items()]
    pack = [sys.executable, "-m", "edgerun", "pack", str(path), "--target", "aarch64", *shapes, "-o", str(file)]
    subprocess.run(pack, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return [str(file), "bench", "--threads", "1", "--warmup", "0", "--runs"]


def measure(model: BenchModel, peers: list[str], cpus: list[str], root: Path) -> list[dict[str, object]]:
    """One row per processor and peer; a peer that fails has an `error`."""
    path = model.path()
    if path is None:
        raise SystemExit(f"{model.file} is in neither $EDGERUN_BENCH_MODELS nor $EDGERUN_CORPUS/models")
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        library = plugin(folder)
        feeds = make_feeds(model, path)
        np.savez(folder / "inputs.npz", **feeds)  # type: ignore[arg-type]
        python = str(root / "usr" / "bin" / "python3.11")
        for peer in peers:
            command = packed(model, path, folder) if peer == "edgerun" else []
            for cpu in cpus:
                row: dict[str, object] = {"model": model.name, "peer": peer, "cpu": cpu}
                try:
                    if peer == "edgerun":
                        row |= of_one_inference(command, cpu, library)
                    else:
                        conversions.prepare(peer, path, feeds)
                        script = [python, "-m", "benchmarks.arm.runner", peer, str(path), str(folder / "inputs.npz")]
                        row |= of_one_inference(script, cpu, library, root)
                except RuntimeError as e:
                    row["error"] = str(e)
                rows.append(row)
    return rows


def table(rows: list[dict[str, object]]) -> str:
    """Millions of instructions, and the peers' counts divided by edgerun's."""
    lines = [
        "| model | cpu | runtime | instructions, million | products | vector loads, stores | / edgerun |",
        "|---|---|---|---|---|---|---|",
    ]
    totals = {(r["model"], r["cpu"]): r["total"] for r in rows if r["peer"] == "edgerun" and "total" in r}
    for row in sorted(rows, key=lambda r: (str(r["model"]), str(r["cpu"]))):
        head = f"| {row['model']} | {row['cpu']} | {row['peer']} |"
        if "total" not in row:
            lines.append(f"{head} {row['error']} | | | |")
            continue
        values = {k: v for k, v in row.items() if isinstance(v, int)}
        ours = totals.get((row["model"], row["cpu"]))
        ratio = f"{values['total'] / ours:.2f}" if isinstance(ours, int) else "-"
        products = (values["multiply_add"] + values["dot"]) / 1e6
        lines.append(
            f"{head} {values['total'] / 1e6:.2f} | {products:.1f} | {values['vector_load_store'] / 1e6:.1f} | {ratio} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder made by benchmarks.arm.sysroot")
    parser.add_argument("--models", default="digits", help="comma-separated names of benchmarks.models")
    parser.add_argument("--peers", default="edgerun,onnxruntime,ncnn")
    parser.add_argument("--cpus", default="cortex-a53,cortex-a76", help="names that qemu knows")
    options = parser.parse_args()
    names = options.models.split(",")
    unknown = set(names) - {m.name for m in MODELS}
    if unknown:
        raise SystemExit(f"unknown models: {', '.join(sorted(unknown))}")
    rows: list[dict[str, object]] = []
    for model in MODELS:
        if model.name in names:
            rows += measure(model, options.peers.split(","), options.cpus.split(","), options.root)
    print(table(rows))


if __name__ == "__main__":
    main()
