"""`selftest`: are the weights intact, and does this machine compute what the reference computed at pack time?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from edgerun.board.common import open_file, show
from edgerun.board.model import Expected
from edgerun.board.options import Options
from edgerun.report import Report


def command(file: Path, options: Options, started: float) -> int:
    """Are the weights intact, and does this machine compute what the reference computed at pack time?"""
    model, _ = open_file(file, options)
    intact = model.weights_are_intact()
    if not intact:
        print("the weights are damaged: their checksum differs; copy the file again", file=sys.stderr)
    values, wrong, worst = 0, 0, 0.0
    sets = model.golden()
    for i, golden in enumerate(sets):
        results = model.run(golden.inputs)
        bad = 0
        for e in golden.expected:
            count, error, message = _compare(results[e.output], e)
            values, worst = values + count, max(worst, error)
            if message:
                bad += 1
                print(f"output '{e.output}' of golden set {i} is wrong: {message}", file=sys.stderr)
        if bad and (layer := model.first_wrong_layer(i)):
            print(layer, file=sys.stderr)
        wrong += bad
    ok = intact and not wrong
    if options.json:
        document = {
            "ok": ok, "weights_ok": intact, "signature": None, "golden_sets": len(sets), "values": values,
            "wrong_outputs": wrong, "max_abs_error": worst, "isa": model.isa,
        }  # fmt: skip
        show(Report(document), options)
    else:
        print(
            f"weights {'intact' if intact else 'DAMAGED'}; {len(sets)} golden set(s), {values} values, largest "
            f"difference {worst:.3g} on {model.isa}: {'passed' if ok else 'FAILED'}"
        )
    return 0 if ok else 1


def _compare(value: Any, e: Expected) -> tuple[int, float, str]:
    """How many values, the largest difference, and a sentence when it is too large."""
    array = np.asarray(value)
    stored, size = e.decode(array)
    array = array.ravel()
    if array.size != size:
        return 0, 0.0, f"it has {array.size} elements, expected {size}"
    picks = np.arange(stored.size) * size // max(stored.size, 1)
    if stored.dtype == object:
        far = np.array([str(array[p]) != str(v) for p, v in zip(picks, stored, strict=True)], bool)
        error = 0.0
    else:
        got, want = array[picks].astype(np.float64), stored.astype(np.float64)
        far = ~np.isclose(got, want, rtol=e.rtol, atol=e.atol, equal_nan=True)
        finite = np.isfinite(got) & np.isfinite(want)
        error = float(np.abs(got - want)[finite].max(initial=0.0))
    if not far.any():
        return stored.size, error, ""
    at = int(np.argmax(far))
    message = (
        f"element {picks[at]} is {array[picks[at]]}, expected {stored[at]} ({int(far.sum())} of {far.size} differ "
    )
    return stored.size, error, message + f"by more than {e.atol:g} + {e.rtol:g}*|x|)"
