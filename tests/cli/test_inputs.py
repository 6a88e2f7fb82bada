"""From --input to arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgerun.cli.inputs import read_inputs
from edgerun.dims import symbol
from edgerun.dtypes import DType
from edgerun.errors import FileFormatError, InputOutputError, UsageError
from edgerun.samples import random_values
from edgerun.session import PortInfo

X = PortInfo("x", DType.F32, (2, 3))
Y = PortInfo("y", DType.I64, (4,))


def test_npy_npz_and_raw_give_the_same(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", x=array)
    (tmp_path / "a.raw").write_bytes(array.tobytes())
    for name in ("a.npy", "a.npz", "a.raw"):
        np.testing.assert_array_equal(read_inputs([X], [f"x={tmp_path / name}"])["x"], array)
    np.testing.assert_array_equal(read_inputs([X], [str(tmp_path / "a.npy")])["x"], array)


def test_random_and_zeros_serve_all_inputs() -> None:
    arrays = read_inputs([X, Y], ["zeros"])
    assert not arrays["x"].any() and arrays["y"].shape == (4,)
    again = read_inputs([X, Y], [], default="random", seed=3)
    np.testing.assert_array_equal(again["x"], read_inputs([X, Y], ["random"], seed=3)["x"])


def test_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'x'"):
        read_inputs([PortInfo("x1", DType.F32, (1,)), X], ["xx=zeros"])
    with pytest.raises(UsageError, match=r"give --input y=FILE\.npy"):
        read_inputs([X, Y], ["x=zeros"])
    np.save(tmp_path / "d.npy", np.zeros((2, 3)))
    with pytest.raises(UsageError, match="astype"):
        read_inputs([X], [str(tmp_path / "d.npy")])
    (tmp_path / "bad.npy").write_bytes(b"nonsense")
    with pytest.raises(FileFormatError):
        read_inputs([X], [str(tmp_path / "bad.npy")])
    with pytest.raises(InputOutputError):
        read_inputs([X], [str(tmp_path / "missing.npy")])
    (tmp_path / "short.raw").write_bytes(b"1234")
    with pytest.raises(UsageError, match="takes 24 bytes"):
        read_inputs([X], [str(tmp_path / "short.raw")])
    np.save(tmp_path / "evil.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FileFormatError):
        read_inputs([X], [str(tmp_path / "evil.npy")])


def test_free_dimensions_need_a_shape() -> None:
    port = PortInfo("x", DType.F32, (symbol("n"), 3))
    with pytest.raises(UsageError, match="--shape x="):
        read_inputs([port], ["random"])
    assert read_inputs([port], ["random"], shapes={"x": (5, 3)})["x"].shape == (5, 3)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64, DType.F16, DType.I8, DType.U8, DType.I64, DType.BOOL])
def test_random_values_are_deterministic_and_in_range(dtype: DType) -> None:
    values = random_values(dtype, (7, 5), 1)
    assert values.dtype == dtype.numpy and values.shape == (7, 5)
    np.testing.assert_array_equal(values, random_values(dtype, (7, 5), 1))
    assert (values != random_values(dtype, (7, 5), 2)).any()
    if dtype.is_float:
        assert (np.abs(values.astype(np.float64)) <= 1).all()
        np.testing.assert_array_equal(values.astype(np.float16).astype(dtype.numpy), values)
    if dtype in (DType.I64, DType.BOOL):
        assert set(np.unique(values.astype(int))) <= {0, 1}
