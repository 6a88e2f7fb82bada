"""Runs a model N times under emulation: python -m benchmarks.arm.runner PEER MODEL INPUTS.npz N"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.peers import PEERS


def main() -> None:
    peer, model, inputs, times = sys.argv[1:]
    with np.load(inputs) as file:
        feeds = {name: file[name] for name in file.files}
    run = PEERS[peer](Path(model), feeds, 1)
    for _ in range(int(times)):
        run()


if __name__ == "__main__":
    main()
