"""The complete path on the digits model: pack for a board and for this machine, run, check the accuracy, measure.

`make demo` calls this. Files go to build/demo/.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from edgerun.machine import host_arch

HERE = Path(__file__).parent
BATCH = 50
Command = list[str]


def call(command: Command) -> str:
    """Print the command, run it, return its standard output; exits with its status when it fails."""
    print("$ " + " ".join(command), flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        print(done.stdout, end="")
        sys.exit(done.returncode)
    return done.stdout


def accuracy(model: Command, folder: Path) -> float:
    """Share of the test set that the packed model gets right, BATCH images a call."""
    test = np.load(HERE / "digits_test.npz")
    images, labels = test["image"], test["label"]
    right = 0
    for start in range(0, len(images), BATCH):
        batch = folder / "batch.npy"
        np.save(batch, images[start : start + BATCH])
        done = subprocess.run(
            [*model, "run", "--input", f"image={batch}", "--json"], stdout=subprocess.PIPE, check=True
        )
        output = json.loads(done.stdout)["outputs"][0]
        scores = np.array(output["values"]).reshape(output["shape"])
        right += int((scores.argmax(1) == labels[start : start + BATCH]).sum())
    return right / len(images)


def pack(target: str, folder: Path) -> Path:
    """Pack the model for `target`, within budgets."""
    packed = folder / f"digits-{target}"
    source = str((HERE / "digits.onnx").relative_to(Path.cwd()))
    limits = ["--dim", f"batch=1..{BATCH}", "--max-size", "2MB", "--max-ram", "4MB"]
    print(call(["edgerun", "pack", source, "--target", target, *limits, "-o", str(packed), "--force"]))
    return packed


def show(packed: Path, runner: Command, folder: Path) -> None:
    """Self-test, accuracy and bench of a packed file; `runner` is the emulator or nothing."""
    model = [*runner, str(packed)]
    print(call([*model, "selftest"]))
    print(f"accuracy on 450 test images: {accuracy(model, folder):.4f}\n")
    seconds = "0.5" if runner else "1"
    print(call([*model, "bench", "--shape", "image=1,1,8,8", "--threads", "1", "--seconds", seconds]))


def main() -> None:
    folder = Path("build/demo")
    folder.mkdir(parents=True, exist_ok=True)
    machine = host_arch()
    if machine != "aarch64":
        print("== for a 64-bit Arm board\n")
        packed = pack("aarch64", folder)
        emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
        if emulator:
            print("run here under emulation: the times are not those of a board\n")
            show(packed, [Path(emulator).name], folder)
        else:
            print("qemu-aarch64 is missing, so the Arm file is not run here: sudo apt install qemu-user\n")
    print(f"== for this machine ({machine})\n")
    show(pack(machine, folder), [], folder)


if __name__ == "__main__":
    main()
