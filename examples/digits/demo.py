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


def show(target: str, runner: Command, folder: Path) -> None:
    """Pack for `target`, then self-test, accuracy and bench."""
    packed = folder / f"digits-{target}"
    source = str((HERE / "digits.onnx").relative_to(Path.cwd()))
    budgets = ["--max-size", "2MB", "--max-ram", "4MB"]
    print(
        call(
            [
                "edgerun",
                "pack",
                source,
                "--target",
                target,
                "--dim",
                f"batch=1..{BATCH}",
                *budgets,
                "-o",
                str(packed),
                "--force",
            ]
        )
    )
    model = [*runner, str(packed)]
    print(call([*model, "selftest"]))
    print(f"accuracy on 450 test images: {accuracy(model, folder):.4f}\n")
    seconds = "0.5" if runner else "1"
    print(call([*model, "bench", "--shape", "image=1,1,8,8", "--threads", "1", "--seconds", seconds]))


def main() -> None:
    folder = Path("build/demo")
    folder.mkdir(parents=True, exist_ok=True)
    machine = host_arch()
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if machine != "aarch64":
        if emulator:
            print("== for a 64-bit Arm board, run here under emulation (times are not those of a board)\n")
            show("aarch64", [Path(emulator).name], folder)
        else:
            print("qemu-aarch64 is not installed, so the Arm file is packed but not run: sudo apt install qemu-user\n")
            print(
                call(
                    [
                        "edgerun",
                        "pack",
                        str(HERE / "digits.onnx"),
                        "--target",
                        "aarch64",
                        "--dim",
                        f"batch=1..{BATCH}",
                        "-o",
                        str(folder / "digits-aarch64"),
                        "--force",
                    ]
                )
            )
    print(f"== for this machine ({machine})\n")
    show(machine, [], folder)


if __name__ == "__main__":
    main()
