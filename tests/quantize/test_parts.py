"""Quantisers, ranges, metrics and the reader of calibration data against hand values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edgerun.dtypes import DType
from edgerun.errors import InputOutputError, UsageError
from edgerun.session import PortInfo
from edgerun_converters.quantize.calibrate import Histogram
from edgerun_converters.quantize.data import read_samples
from edgerun_converters.quantize.metrics import METRICS, snr_db
from edgerun_converters.quantize.weights import codes_of_range, in_groups, per_channel

WEIGHTS = hnp.arrays(np.float32, (3, 64), elements=st.floats(-100, 100, width=32))


@settings(max_examples=30, deadline=None)
@given(WEIGHTS)
def test_codes_per_channel_are_within_half_a_step(w: np.ndarray) -> None:
    codes, scale = per_channel(w, 0)
    assert codes.min() >= -127 and scale.shape == (3,)
    assert (np.abs(codes * scale[:, None] - w) <= scale[:, None] * 0.501 + 1e-30).all()


@settings(max_examples=30, deadline=None)
@given(WEIGHTS, st.sampled_from([4, 8]))
def test_codes_in_groups_are_within_a_step(w: np.ndarray, bits: int) -> None:
    codes, scale = in_groups(w, bits)
    assert codes.shape == (3, 2, 32 * bits // 8) and codes.dtype == np.uint8 and scale.shape == (3, 2)
    unpacked = codes if bits == 8 else np.stack([codes & 15, codes >> 4], -1).reshape(3, 2, 32)
    back = (unpacked.astype(np.float32) - (1 << (bits - 1))) * scale[..., None]
    step = np.abs(scale[..., None])
    assert (np.abs(back - w.reshape(3, 2, 32)) <= step * 1.01 + 1e-5).all()


def test_scales_by_hand() -> None:
    codes, scale = per_channel(np.array([[127.0, -63.5], [0, 0]], np.float32), 0)
    np.testing.assert_array_equal(codes, [[127, -64], [0, 0]])
    np.testing.assert_array_equal(scale, [1, 1])
    _, bound = per_channel(np.array([[1.0]], np.float32), 0, 2.0)
    assert bound[0] == 2
    scale, zero = codes_of_range(-1.0, 1.55)
    assert scale == pytest.approx(0.01) and zero == 100 and zero.dtype == np.uint8
    assert codes_of_range(0, 0)[0] == 1


def test_ranges_of_a_histogram() -> None:
    values = np.concatenate([np.linspace(-1, 1, 100000), [50.0]])
    h = Histogram()
    h.widen(values)
    h.count(values)
    assert h.range("minmax") == (-1, 50)
    for method in ("percentile", "mse"):
        low, high = h.range(method)
        assert -1.01 <= low <= -0.5 and 0.9 <= high < 50
    assert Histogram().range("percentile") == (0, 0)
    positive = Histogram()
    positive.widen(np.array([2.0, 3.0]))
    assert positive.range("minmax") == (0, 3)


def test_metrics_by_hand() -> None:
    expected = [{"y": np.array([[3.0, 4.0]])}, {"y": np.array([[0.0, 5.0]])}]
    same = {name: metric(expected, expected, None) for name, metric in METRICS.items()}
    assert same == pytest.approx({"relative": 0, "cosine": 0, "top1": 0})
    other = [{"y": np.array([[4.0, 3.0]])}, {"y": np.array([[0.0, 5.0]])}]
    assert METRICS["relative"](expected, other, None) == pytest.approx(math.sqrt(2 / 50))
    assert METRICS["cosine"](expected, other, None) == pytest.approx(1 - 49 / 50)
    assert METRICS["top1"](expected, other, None) == 0.5
    assert METRICS["top1"](expected, other, [np.array([1]), np.array([1])]) == 0.5
    assert METRICS["top1"](expected, other, [np.array([0]), np.array([1])]) == -0.5
    with pytest.raises(UsageError, match="3 labels"):
        METRICS["top1"](expected, other, [np.array([0, 1]), np.array([1])])
    with pytest.raises(UsageError, match="no float outputs"):
        METRICS["relative"]([{"y": np.array([1])}], [{"y": np.array([1])}], None)
    assert snr_db(np.array([1.0]), np.array([0.9])) == pytest.approx(20)
    assert snr_db(np.array([1.0]), np.array([1.0])) == math.inf


def _port(shape: tuple[Any, ...] = (2, 3)) -> PortInfo:
    return PortInfo("x", DType.F32, shape, "tensor")


def test_samples_of_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, x=np.arange(21, dtype=np.float64).reshape(7, 3), labels=np.arange(6))
    samples, labels = read_samples(path, [_port()], {}, 10)
    assert len(samples) == 3 and samples[0]["x"].dtype == np.float32 and samples[2]["x"].shape == (2, 3)
    assert labels is not None and [list(v) for v in labels] == [[0, 1], [2, 3], [4, 5]]
    assert len(read_samples(path, [_port()], {}, 2)[0]) == 2
    assert len(read_samples(path, [_port((1, 3))], {"x": (3, 3)}, 10)[0]) == 2


def test_samples_of_a_folder(tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", np.full((2, 3), i, np.float32))
    samples, labels = read_samples(tmp_path, [_port()], {}, 2)
    assert [s["x"][0, 0] for s in samples] == [0, 1] and labels is None


@pytest.mark.parametrize(
    "content",
    [{"z": np.zeros((2, 3))}, {"x": np.zeros((2, 4))}, {"x": np.zeros((1, 3))}, {"x": np.zeros(3)}],
)
def test_archives_that_do_not_fit(tmp_path: Path, content: dict[str, Any]) -> None:
    np.savez(tmp_path / "bad.npz", **content)
    with pytest.raises(UsageError):
        read_samples(tmp_path / "bad.npz", [_port()], {}, 1)


def test_files_that_are_no_data(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    with pytest.raises(InputOutputError):
        read_samples(tmp_path / "broken.npz", [_port()], {}, 1)
    with pytest.raises(UsageError, match="neither"):
        read_samples(tmp_path / "other.txt", [_port()], {}, 1)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputOutputError, match="no files"):
        read_samples(empty, [_port()], {}, 1)
