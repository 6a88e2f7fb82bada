"""Train a small convolutional network on scikit-learn's handwritten digits with NumPy alone, and export it as ONNX.

    python examples/digits/train.py            # writes digits.onnx and digits_test.npz next to this file

The network: conv 3x3x16, relu, conv 3x3x32, relu, max-pool 2x2, dense 64, relu, dense 10. Images are 8x8 with values 0
to 16, scaled to 0 to 1. Seeded, so that every run gives the same weights on the same NumPy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SEED = 7
EPOCHS = 30
BATCH = 64
Array = np.ndarray
Params = dict[str, Array]


def load_data() -> tuple[Array, Array, Array, Array]:
    """(train images [n, 1, 8, 8], train labels [n], test images [450, 1, 8, 8], test labels [450])."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    order = np.random.default_rng(SEED).permutation(len(images))
    test, train = order[:450], order[450:]
    return images[train], digits.target[train], images[test], digits.target[test]


def init(rng: np.random.Generator) -> Params:
    """He-initialised weights, zero biases."""

    def he(*shape: int) -> Array:
        return (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)

    return {
        "conv1.weight": he(16, 1, 3, 3),
        "conv1.bias": np.zeros(16, np.float32),
        "conv2.weight": he(32, 16, 3, 3),
        "conv2.bias": np.zeros(32, np.float32),
        "dense1.weight": he(64, 32 * 4 * 4),
        "dense1.bias": np.zeros(64, np.float32),
        "dense2.weight": he(10, 64),
        "dense2.bias": np.zeros(10, np.float32),
    }


def patches(x: Array) -> Array:
    """[n, c, h, w] to the 3x3 neighbourhoods [n, h, w, c * 9], zero padded."""
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


def conv(x: Array, weight: Array, bias: Array) -> tuple[Array, Array]:
    """3x3 convolution; returns the output [n, out, h, w] and the patches for the backward pass."""
    columns = patches(x)
    out = columns @ weight.reshape(len(weight), -1).T + bias
    return out.transpose(0, 3, 1, 2), columns


def conv_backward(grad: Array, columns: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Gradients of (input, weight, bias) from the gradient [n, out, h, w] of the output."""
    flat = grad.transpose(0, 2, 3, 1)
    grad_weight = np.tensordot(flat, columns, axes=([0, 1, 2], [0, 1, 2])).reshape(weight.shape)
    turned = weight.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    grad_input, _ = conv(grad, turned, np.zeros(len(turned), np.float32))
    return grad_input, grad_weight, flat.sum(axis=(0, 1, 2))


def forward(p: Params, x: Array) -> tuple[Array, dict[str, Array]]:
    """Logits [n, 10] and what the backward pass needs."""
    keep: dict[str, Array] = {}
    a, keep["columns1"] = conv(x, p["conv1.weight"], p["conv1.bias"])
    keep["relu1"] = np.maximum(a, 0)
    b, keep["columns2"] = conv(keep["relu1"], p["conv2.weight"], p["conv2.bias"])
    keep["relu2"] = np.maximum(b, 0)
    blocks = keep["relu2"].reshape(len(x), 32, 4, 2, 4, 2)
    keep["pool"] = blocks.max(axis=(3, 5))
    keep["flat"] = keep["pool"].reshape(len(x), -1)
    keep["relu3"] = np.maximum(keep["flat"] @ p["dense1.weight"].T + p["dense1.bias"], 0)
    return keep["relu3"] @ p["dense2.weight"].T + p["dense2.bias"], keep


def backward(p: Params, keep: dict[str, Array], grad: Array) -> Params:
    """Gradients of all parameters from the gradient of the logits [n, 10]."""
    g: Params = {"dense2.weight": grad.T @ keep["relu3"], "dense2.bias": grad.sum(0)}
    grad = (grad @ p["dense2.weight"]) * (keep["relu3"] > 0)
    g |= {"dense1.weight": grad.T @ keep["flat"], "dense1.bias": grad.sum(0)}
    pooled = (grad @ p["dense1.weight"]).reshape(-1, 32, 4, 1, 4, 1)
    winner = keep["relu2"].reshape(-1, 32, 4, 2, 4, 2) == keep["pool"][:, :, :, None, :, None]
    grad = (pooled * winner).reshape(keep["relu2"].shape) * (keep["relu2"] > 0)
    grad, g["conv2.weight"], g["conv2.bias"] = conv_backward(grad, keep["columns2"], p["conv2.weight"])
    grad = grad * (keep["relu1"] > 0)
    _, g["conv1.weight"], g["conv1.bias"] = conv_backward(grad, keep["columns1"], p["conv1.weight"])
    return g


def shift(x: Array, rng: np.random.Generator) -> Array:
    """Each image moved by up to one pixel: the only augmentation."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, cols = rng.integers(0, 3, (2, len(x)))
    return np.stack([padded[i, :, r : r + 8, c : c + 8] for i, (r, c) in enumerate(zip(rows, cols, strict=True))])


def train(x: Array, labels: Array) -> Params:
    """Adam with a cosine schedule on the cross entropy."""
    rng = np.random.default_rng(SEED)
    p = init(rng)
    mean = {k: np.zeros_like(v) for k, v in p.items()}
    square = {k: np.zeros_like(v) for k, v in p.items()}
    steps = EPOCHS * (len(x) // BATCH)
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for batch in order[: len(x) // BATCH * BATCH].reshape(-1, BATCH):
            step += 1
            logits, keep = forward(p, shift(x[batch], rng))
            e = np.exp(logits - logits.max(1, keepdims=True))
            grad = e / e.sum(1, keepdims=True)
            grad[np.arange(BATCH), labels[batch]] -= 1
            rate = 2e-3 * 0.5 * (1 + np.cos(np.pi * step / steps))
            for k, g in backward(p, keep, grad / BATCH).items():
                mean[k] += 0.1 * (g - mean[k])
                square[k] += 0.001 * (g * g - square[k])
                corrected = mean[k] / (1 - 0.9**step), square[k] / (1 - 0.999**step)
                p[k] -= (rate * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)).astype(np.float32)
    return p


def export(p: Params) -> Any:
    """The network as an ONNX model: image [batch, 1, 8, 8] to probabilities [batch, 10]."""
    from onnx import TensorProto, checker, helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight", "conv1.bias"], ["conv1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv1"], ["relu1"], "relu1"),
        helper.make_node("Conv", ["relu1", "conv2.weight", "conv2.bias"], ["conv2"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv2"], ["relu2"], "relu2"),
        helper.make_node("MaxPool", ["relu2"], ["pool"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pool"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "dense1.weight", "dense1.bias"], ["dense1"], "dense1", transB=1),
        helper.make_node("Relu", ["dense1"], ["relu3"], "relu3"),
        helper.make_node("Gemm", ["relu3", "dense2.weight", "dense2.bias"], ["logits"], "dense2", transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], "softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(v, k) for k, v in p.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="digits example")
    model.ir_version = 8
    checker.check_model(model, full_check=True)
    return model


def main() -> None:
    import onnx

    x, labels, test_x, test_labels = load_data()
    p = train(x, labels)
    logits, _ = forward(p, test_x)
    accuracy = float((logits.argmax(1) == test_labels).mean())
    onnx.save(export(p), HERE / "digits.onnx")
    np.savez(HERE / "digits_test.npz", image=test_x, label=test_labels.astype(np.int64))
    print(f"test accuracy {accuracy:.4f} on {len(test_labels)} images")


if __name__ == "__main__":
    main()
