"""Run one case and give the verdict: pass, fail, unsupported, error or timeout."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from edgerun.errors import EdgerunError
from edgerun.onnx_backend import EdgerunBackend
from tests.onnx_suite.cases import Case

BFLOAT16_RTOL = 2**-6
"""The suite's tolerances are meant for float32; half an ulp of bfloat16 is larger."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one case. `status`: pass, fail (wrong result), unsupported (refused with a reason), error (an
    unexpected exception), timeout."""

    status: str
    message: str = ""


class _Timeout(BaseException):
    pass


def run(case: Case, backend: str, *, optimize: bool = True, limit: float = 20.0) -> Verdict:
    """Import and run a case on all its data sets, at most `limit` seconds (main thread only)."""

    def expire(_signal: int, _frame: FrameType | None) -> None:
        raise _Timeout

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        prepared = EdgerunBackend.prepare(case.model, backend=backend, optimize=optimize)
        for inputs, expected in case.data():
            results = list(prepared.run(given(case, inputs)))
            problem = compare(expected, results, case.rtol, case.atol)
            if problem:
                return Verdict("fail", problem)
        return Verdict("pass")
    except _Timeout:
        return Verdict("timeout", f"more than {limit} s")
    except EdgerunError as e:
        return Verdict("unsupported", f"{type(e).__name__}: {e}")
    except Exception as e:
        return Verdict("error", f"{type(e).__name__}: {e}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def given(case: Case, inputs: list[Any]) -> list[Any]:
    """The inputs without those that merely repeat an initialiser."""
    constants = {t.name for t in case.model.graph.initializer}
    names = [v.name for v in case.model.graph.input]
    if len(inputs) < len(names) or not constants:
        return inputs
    return [value for name, value in zip(names, inputs, strict=True) if name not in constants]


def compare(expected: list[Any], results: list[Any], rtol: float, atol: float) -> str:
    """What is wrong with the results, or "". Shapes and dtypes must be equal, values within the case's tolerance."""
    if len(expected) != len(results):
        return f"{len(results)} outputs, expected {len(expected)}"
    for i, (reference, result) in enumerate(zip(expected, results, strict=True)):
        problem = _compare_value(reference, result, rtol, atol)
        if problem:
            return f"output {i}: {problem}"
    return ""


def _compare_value(reference: Any, result: Any, rtol: float, atol: float) -> str:
    if reference is None:
        return "" if result is None else "expected an absent optional"
    if isinstance(reference, list | tuple):
        if not isinstance(result, list | tuple):
            return "expected a sequence"
        return compare(list(reference), list(result), rtol, atol)
    if isinstance(reference, dict):
        return "" if result == reference else f"expected {reference}, got {result}"
    a, b = np.asarray(result), np.asarray(reference)
    if a.shape != b.shape:
        return f"shape {a.shape}, expected {b.shape}"
    if b.dtype.kind in "OSUT":
        texts = [[x.decode() if isinstance(x, bytes) else str(x) for x in v.ravel().tolist()] for v in (a, b)]
        return "" if texts[0] == texts[1] else "the strings differ"
    if a.dtype != b.dtype:
        return f"dtype {a.dtype}, expected {b.dtype}"
    if b.dtype.name == "bfloat16":
        rtol = max(rtol, BFLOAT16_RTOL)
    if b.dtype.kind not in "biufc":
        a, b = a.astype(np.float32), b.astype(np.float32)
    try:
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    except AssertionError as e:
        return " ".join(str(e).split())[:200]
    return ""
