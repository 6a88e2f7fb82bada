"""A sample of every kernel family on ARM and RISC-V, in emulators, against the NumPy kernels."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

from edgerun.backends.numpy.registry import find
from edgerun.dtypes import DType
from tests.native.kernel_harness import REMOTE, run_op

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
F32 = DType.F32
MATHS = tuple(
    (name, F32, 0) for name in ("exp", "log", "tanh", "erf", "sigmoid", "softplus", "gelu", "sin", "round", "sqrt")
)


def _cases() -> dict[str, tuple[str, list[Any], dict[str, Any], tuple[int, ...]]]:
    rng = np.random.default_rng(0)

    def real(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    def codes(dtype: Any, *shape: int) -> np.ndarray:
        info = np.iinfo(dtype)
        return np.asarray(rng.integers(info.min, info.max, shape, dtype, endpoint=True))

    window = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    cases: dict[str, tuple[str, list[Any], dict[str, Any], tuple[int, ...]]] = {
        "transpose": ("transpose", [real(2, 9, 7, 5)], {"perm": (0, 3, 1, 2)}, ()),
        "mean": ("reduce", [real(2, 9, 7, 20)], {"kind": "mean", "over": (1, 2), "keepdims": True}, ()),
        "logsumexp": ("reduce", [real(3, 50)], {"kind": "logsumexp", "over": (1,), "keepdims": False}, ()),
        "softmax": ("softmax", [real(4, 37)], {"axis": 1}, ()),
        "softmax columns": ("softmax", [real(4, 37)], {"axis": 0, "log": True}, ()),
        "layer norm": ("layer_norm", [real(4, 37), real(37), real(37)], {"axis": 1, "epsilon": 1e-5}, ()),
        "max pool": ("pool", [real(1, 8, 8, 19)], {"kind": "max", "kernel": (3, 3), **window}, ()),
        "top k": ("topk", [real(3, 40)], {"count": 7, "axis": 1}, ()),
        "gather": ("gather", [real(9, 5), rng.integers(-9, 9, (4,))], {"axis": 0}, ()),
        "resize": ("resize", [real(1, 5, 6, 7)], {"axes": (1, 2), "to": (10, 9), "mode": "linear"}, ()),
        "attention": (
            "attention",
            [real(1, 2, 9, 16), real(1, 2, 11, 16), real(1, 2, 11, 16)],
            {"scale": 0.25, "causal": True},
            (),
        ),
        "lstm": ("lstm", [real(3, 2, 5), real(1, 36, 5), real(1, 36, 9), real(1, 72)], {"hidden": 9}, (1, 2, 3)),
        "half": ("elementwise", [real(77).astype(np.float16)], {"program": (("mul", DType.F16, 0, 0),)}, ()),
        "quantize": (
            "quantize_linear",
            [real(5, 21) * 50, np.asarray(0.7, np.float32), np.asarray(3, np.uint8)],
            {},
            (),
        ),
        "nbits": (
            "matmul_nbits",
            [real(2, 70), codes(np.uint8, 9, 3, 16), np.abs(real(9, 3))],
            {"k": 70, "n": 9, "block": 32},
            (1, 2),
        ),
    }
    packed = [codes(np.uint8, 37, 32 * bits // 4) for bits in (4, 8)]
    numbers = [np.abs(real(37, 2)).astype(np.float16), real(37, 2)]
    for bits, table in zip((4, 8), packed, strict=True):
        sizes = {"k": 64, "n": 37, "bits": bits, "block": 32}
        cases[f"group {bits}"] = ("matmul_nbits", [real(5, 64), table, *numbers], {**sizes, "a_bits": 8}, (1, 2, 3))
        cases[f"rows {bits}"] = ("rows_nbits", [np.array([0, 36, -2]), table, *numbers], sizes, (1, 2, 3))
    for program in MATHS:
        cases[program[0]] = ("elementwise", [np.abs(real(100)) * 3], {"program": (program,)}, ())
    for a in (np.uint8, np.int8):
        for b in (np.uint8, np.int8):
            label = f"{a.__name__} {b.__name__}"
            zeros = [codes(a), codes(b, 19)]
            cases[f"product {label}"] = ("matmul_integer", [codes(a, 9, 70), codes(b, 70, 19), *zeros], {}, (1, 3))
            filters = codes(b, 19, 3, 3, 5)
            cases[f"conv {label}"] = ("conv_integer", [codes(a, 1, 6, 7, 5), filters, *zeros], window, (1, 3))
        scale = np.asarray(0.01, np.float32)
        scales = np.abs(real(19)) * np.float32(0.02)
        for label, shape, group in (("conv", (19, 3, 3, 8), 1), ("depthwise", (19, 3, 3, 1), 19)):
            x = codes(a, 1, 9, 14, 8 if group == 1 else 19)
            quantised = [x, scale, codes(a), codes(np.int8, *shape), scales, np.zeros(19, np.int8)]
            out = [np.asarray(0.5, np.float32), codes(a), rng.integers(-900, 900, 19).astype(np.int32)]
            for strides in ((1, 1), (2, 2)):
                attrs = {**window, "group": group, "strides": strides}
                name = f"quantised {label} {a.__name__} {strides}"
                cases[name] = ("qlinear_conv", [*quantised, *out], attrs, (3, 4, 5, 8))
    cases["depthwise"] = (
        "conv_integer",
        [codes(np.uint8, 1, 6, 7, 19), codes(np.int8, 19, 3, 3, 1), codes(np.uint8)],
        {**window, "group": 19},
        (1,),
    )
    return cases


@pytest.mark.parametrize("level", REMOTE)
def test_kernel_families(level: str) -> None:
    assert shutil.which(REMOTE[level][2]), f"{REMOTE[level][2]} is not installed"
    for label, (op, inputs, attrs, constant) in _cases().items():
        expected = find(op)(*inputs, **attrs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        actual = run_op(op, inputs, attrs, constant=constant, level=level)
        for a, e in zip(actual, expected, strict=True):
            if e.dtype.kind in "iu":
                np.testing.assert_array_equal(a, e, err_msg=f"{label} on {level}")
            else:
                np.testing.assert_allclose(
                    a.astype("d"), e.astype("d"), rtol=1e-5, atol=1e-5, err_msg=f"{label} on {level}"
                )
