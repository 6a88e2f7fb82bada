"""Fourier transforms, windows and mel filters against onnxruntime and the defining sums."""

import numpy as np
import pytest

from edgerun.errors import EdgerunError
from tests.ops.single_node import NodeCase

f32 = np.float32


def signal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(f32)


def defining_sum(x, axis, size, sign):
    """The Fourier sum of complex x, cut or padded to `size` along `axis`."""
    x = np.moveaxis(x, axis, -1)
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, max(size - x.shape[-1], 0))])[..., :size]
    k = np.arange(size)
    return np.moveaxis(x @ np.exp(sign * 2j * np.pi * np.outer(k, k) / size), -1, axis)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("size", [None, 4, 9])
def test_transform_is_the_defining_sum(axis, parts, inverse, size):
    x = signal(6, 5, parts)
    count = x.shape[axis] if size is None else size
    values = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    expected = defining_sum(values, axis, count, 1 if inverse else -1) / (count if inverse else 1)
    inputs = {"x": x, "n": None if size is None else np.array(size), "a": np.array(axis)}
    (y,) = NodeCase("DFT", inputs, {"inverse": inverse}, opset=20, constant=("a",)).edgerun()
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], expected, atol=1e-4)
    attributes = {"inverse": inverse, "axis": axis}
    (z,) = NodeCase("DFT", {"x": x, "n": inputs["n"]}, attributes, opset=17, constant=("n",)).edgerun()
    np.testing.assert_array_equal(y, z)
    inputs["a"] = np.array(axis - 3)
    (z,) = NodeCase("DFT", inputs, {"inverse": inverse}, opset=20).edgerun()
    np.testing.assert_array_equal(y, z)


@pytest.mark.parametrize("size", [7, 8])
def test_one_sided_transform_and_its_inverse(size):
    x = signal(2, size, 1)
    (y,) = NodeCase("DFT", {"x": x}, {"onesided": 1}, opset=20).edgerun()
    full = defining_sum(x[..., 0], 1, size, -1)[:, : size // 2 + 1]
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], full, atol=1e-5)
    inputs = {"x": y, "n": np.array(size)}
    (z,) = NodeCase("DFT", inputs, {"onesided": 1, "inverse": 1}, opset=20).edgerun()
    np.testing.assert_allclose(z, x, atol=1e-5)


def test_one_sided_complex_input_is_refused():
    with pytest.raises(EdgerunError, match="real input"):
        NodeCase("DFT", {"x": signal(2, 4, 2)}, {"onesided": 1}, opset=20).graph()


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("known", [False, True])
def test_short_time_transform(onesided, known):
    inputs = {"x": signal(2, 50, 1), "s": np.array(7), "w": np.hanning(16).astype(f32), "n": np.array(16)}
    constant = ("s", "n", "w") if known else ()
    NodeCase("STFT", inputs, {"onesided": onesided}, opset=17, constant=constant).check(atol=1e-4)


def test_short_time_transform_takes_its_size_from_the_window():
    inputs = {"x": signal(1, 40, 1), "s": np.array(8), "w": signal(12)}
    NodeCase("STFT", inputs, opset=17, constant=("s",)).check(atol=1e-4)


def test_frame_longer_than_the_signal_is_an_error():
    with pytest.raises(EdgerunError, match="shorter"):
        NodeCase("STFT", {"x": signal(1, 4, 1), "s": np.array(1), "w": signal(6)}, opset=17).edgerun()


@pytest.mark.parametrize("kind", ["Hann", "Hamming", "Blackman"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("dtype", [1, 11, 10])
def test_windows(kind, periodic, dtype):
    attributes = {"periodic": periodic, "output_datatype": dtype}
    node = NodeCase(f"{kind}Window", {"n": np.array(10)}, attributes, opset=17)
    (y,) = node.edgerun()
    n = 10 if periodic else 9
    c1, c2 = (np.cos(k * 2 * np.pi * np.arange(10) / n) for k in (1, 2))
    expected = {"Hann": (1 - c1) / 2, "Hamming": (25 - 21 * c1) / 46, "Blackman": 0.42 - 0.5 * c1 + 0.08 * c2}[kind]
    np.testing.assert_allclose(y, expected, atol=1e-3 if dtype == 10 else 1e-6)


def test_known_window_is_a_constant():
    graph = NodeCase("HannWindow", {"n": np.array(10)}, opset=17, constant=("n",)).graph()
    assert graph.tensors[graph.outputs[0]].shape == (10,)


@pytest.mark.parametrize("sizes", [(8, 16, 8192), (20, 512, 16000), (40, 400, 16000)])
def test_mel_filters(sizes):
    values = dict(zip(("bins", "length", "rate"), (np.array(s) for s in sizes), strict=True))
    values |= {"low": np.array(0.0, f32), "high": np.array(sizes[2] / 2, f32)}
    NodeCase("MelWeightMatrix", values, opset=17).check(atol=1e-5)
