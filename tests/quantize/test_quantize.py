"""Quantisation of whole models: size, loss, and what becomes of the layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgerun.dtypes import DType
from edgerun.errors import UsageError
from edgerun.graph import Graph, Node
from edgerun.session import from_graph, load_graph
from edgerun_converters.passes import optimize
from edgerun_converters.quantize import MODES, Options, bound_to, quantize
from edgerun_converters.quantize.data import read_samples
from edgerun_converters.quantize.layers import unfuse

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
INTEGER = {"static": {"qlinear_conv", "qlinear_matmul"}, "dynamic": {"matmul_integer"}}


@pytest.fixture(scope="module")
def digits() -> tuple[Graph, list[dict[str, Any]], list[Any]]:
    graph = load_graph(DIGITS / "digits.onnx")
    samples, labels = read_samples(DIGITS / "digits_test.npz", from_graph(graph).inputs, {"image": (50, 1, 8, 8)}, 9)
    assert labels is not None and len(samples) == len(labels) == 9
    return graph, samples, labels


@pytest.mark.parametrize("mode", MODES)
def test_digits(mode: str, digits: tuple[Graph, list[dict[str, Any]], list[Any]]) -> None:
    graph, samples, labels = digits
    result = quantize(graph, samples, Options(mode, "top1", 0.01), labels)
    assert result.ok and result.drop <= 0.01
    assert all(row["quantised"] and row["snr_db"] > 15 for row in result.rows)
    ops = {n.op for n in result.graph.nodes}
    assert ops >= INTEGER.get(mode, {"matmul_nbits"})
    ratio = result.graph.weight_bytes() / graph.weight_bytes()
    assert ratio < (0.3 if mode in ("static", "int4-weights") else 0.4)
    if mode == "static":
        assert not ops & {"conv", "matmul", "dequantize_linear", "quantize_linear"}


def test_native_and_numpy_agree(digits: tuple[Graph, list[dict[str, Any]], list[Any]]) -> None:
    graph, samples, _ = digits
    made = quantize(graph, samples[:2], Options()).graph
    expected = from_graph(made).run(samples[0])
    actual = from_graph(bound_to(made, samples[0]), "native").run(samples[0])
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, atol=1e-5)


def _block(seed: int = 0, loud: float = 1.0) -> Graph:
    """A residual block with hardswish, depthwise and a branch: x -> conv a -> dw b -> conv c + a -> matmul d."""
    rng = np.random.default_rng(seed)
    graph = Graph()
    window = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    flat = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    graph.add_tensor("x", DType.F32, (1, 6, 6, 8))
    for name, shape, scale in (("wa", (16, 1, 1, 8), 1), ("wb", (16, 3, 3, 1), 1), ("wc", (16, 1, 1, 16), loud)):
        w = (rng.normal(size=shape) * 0.3 * scale).astype(np.float32)
        graph.add_tensor(name, DType.F32, shape, w)
        bias = (rng.normal(size=16) * 0.1).astype(np.float32)
        graph.add_tensor(name.replace("w", "b"), DType.F32, (16,), bias)
    graph.add_tensor("wd", DType.F32, (16, 5), rng.normal(size=(16, 5)).astype(np.float32))
    for name in ("a", "b", "c"):
        graph.add_tensor(name, DType.F32, (1, 6, 6, 16))
    graph.add_tensor("y", DType.F32, (1, 6, 6, 5))
    act = {"act": "clamp", "p0": 0.0, "p1": float("inf")}
    graph.nodes = [
        Node("conv", ["x", "wa", "ba"], ["a"], {**flat, "act": "hardswish"}, "a"),
        Node("conv", ["a", "wb", "bb"], ["b"], {**window, "group": 16, "act": "clamp", "p0": 0.0, "p1": 6.0}, "b"),
        Node("conv", ["b", "wc", "bc", "a"], ["c"], {**flat, **act, "res": "before"}, "c"),
        Node("matmul", ["c", "wd"], ["y"], {}, "d"),
    ]
    graph.inputs, graph.outputs = ["x"], ["y"]
    graph.check()
    return graph


def _samples(count: int = 3) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.normal(size=(1, 6, 6, 8)).astype(np.float32)} for _ in range(count)]


def test_unfused_layers_compute_the_same() -> None:
    graph = _block()
    for keep in (True, False):
        plain = unfuse(graph, keep_clamps=keep)
        assert {n.attrs.get("act", "none") for n in plain.nodes} <= ({"none", "clamp"} if keep else {"none"})
        assert all(n.attrs.get("res", "none") == "none" for n in plain.nodes)
        for sample in _samples(1):
            np.testing.assert_allclose(
                from_graph(plain).run(sample)["y"], from_graph(graph).run(sample)["y"], rtol=1e-5, atol=1e-5
            )
        again = optimize(plain)
        assert len(again.nodes) == len(graph.nodes)


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_a_residual_block_is_all_codes(method: str) -> None:
    result = quantize(_block(), _samples(), Options(method=method, max_drop=0.05))
    assert result.ok and result.drop < 0.05
    ops = [n.op for n in result.graph.nodes]
    assert ops.count("qlinear_conv") == 3 and ops.count("qlinear_matmul") == 1
    assert not {"conv", "matmul", "quantize_linear", "dequantize_linear"} & set(ops)
    between = {result.graph.tensors[i].dtype for n in result.graph.nodes[1:] for i in n.inputs[:1]}
    assert between == {DType.U8}


def test_layers_that_lose_too_much_stay_float() -> None:
    graph = _block()
    free = quantize(graph, _samples(), Options())
    limit = free.drop / 2
    result = quantize(graph, _samples(), Options(max_drop=limit))
    assert result.tried[0] == (0, free.drop)
    assert result.ok == (result.drop <= limit)
    left_out = [row["snr_db"] for row in result.rows if not row["quantised"]]
    kept = [row["snr_db"] for row in result.rows if row["quantised"]]
    assert left_out and kept and max(left_out) <= min(kept)
    strict = quantize(graph, _samples(), Options(max_drop=0.0))
    assert not strict.ok


def test_excluded_layers() -> None:
    result = quantize(_block(), _samples(), Options(exclude=frozenset({"b"})))
    assert [r["layer"] for r in result.rows] == ["a", "c", "d"]
    assert "conv" in {n.op for n in result.graph.nodes}
    with pytest.raises(UsageError, match="no layer 'nothing'"):
        quantize(_block(), _samples(), Options(exclude=frozenset({"nothing"})))


def test_refusals() -> None:
    graph = Graph()
    graph.add_tensor("x", DType.F32, (2, 3))
    graph.add_tensor("y", DType.F32, (2, 3))
    graph.nodes = [Node("softmax", ["x"], ["y"], {"axis": 1}, "s")]
    graph.inputs, graph.outputs = ["x"], ["y"]
    with pytest.raises(UsageError, match="no layer can be quantised"):
        quantize(graph, [{"x": np.zeros((2, 3), np.float32)}], Options())
    with pytest.raises(UsageError, match="no mode"):
        quantize(_block(), _samples(), Options(mode="int3"))
    with pytest.raises(UsageError, match="no data"):
        quantize(_block(), [], Options())
    bad = _samples(1)
    bad[0]["x"][0, 0, 0, 0] = np.nan
    with pytest.raises(UsageError, match="not finite"):
        quantize(_block(), bad, Options())


def test_tiny_weights_under_a_large_bias_are_quantised() -> None:
    graph = _block()
    for name, factor in (("wc", 1e-9), ("bc", 30.0)):
        data = graph.tensors[name].data
        assert data is not None
        data[..., :] = data * np.float32(factor)
    result = quantize(graph, _samples(), Options())
    assert "conv" not in {n.op for n in result.graph.nodes}
