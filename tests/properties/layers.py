"""Convolutions, pooling and attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.properties.case import Case
from tests.properties.draw import MS, Drawer, covers, one

f32, f64 = np.float32, np.float64


def window(d: Drawer, n: int, *, dilated: bool = True, largest: int = 8) -> tuple[list[int], list[int], dict[str, Any]]:
    """(sizes, kernel, attributes) of a legal window over n axes."""
    kernel = [d.int(1, 3) for _ in range(n)]
    dilations = [d.int(1, 2) if dilated else 1 for _ in range(n)]
    attributes: dict[str, Any] = {"strides": [d.int(1, 3) for _ in range(n)]}
    mode = d.pick("NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    if mode == "NOTSET":
        limit = [min(k - 1, 2) for k in kernel]
        attributes["pads"] = [d.int(0, top) for top in (*limit, *limit)]
    else:
        attributes["auto_pad"] = mode
    if mode.startswith("SAME"):
        # onnxruntime refuses SAME padding of dilated kernels, and crops where the stride leaves cells out.
        dilations = [1] * n
        attributes["strides"] = [min(s, k) for s, k in zip(attributes["strides"], kernel, strict=True)]
    if dilated:
        attributes["dilations"] = dilations
    sizes = [d.int((k - 1) * s + 1, largest) for k, s in zip(kernel, dilations, strict=True)]
    return sizes, kernel, attributes


@covers("conv")
def conv(d: Drawer) -> Case:
    n, group = d.int(1, 3), d.int(1, 3)
    inputs, outputs = group * d.int(1, 4), group * d.int(1, 4)
    if d.bool():
        group = inputs = outputs = d.int(1, 9)
    sizes, kernel, attributes = window(d, n)
    dtype = f32
    feeds = {
        "x": d.normal(d.int(0, 2), inputs, *sizes, dtype=dtype),
        "w": d.normal(outputs, inputs // group, *kernel, dtype=dtype),
        "b": d.normal(outputs, dtype=dtype) if d.bool() else None,
    }
    constant = d.pick((), ("w", "b"), ("w", "b"))
    kinds = {"constant": constant, "sized": ("w",), "rtol": 1e-3, "atol": 1e-3}
    return one("Conv", feeds, attributes | {"group": group}, opset=11, **kinds)


@covers("conv", no_symbols="SAME padding is only known with the sizes")
def fused_conv(d: Drawer) -> Case:
    """With an activation and a residual."""
    channels, outputs = d.int(1, 5), d.int(1, 20)
    sizes, kernel, attributes = window(d, 2)
    attributes.pop("auto_pad", None)
    feeds: dict[str, Any] = {"x": d.normal(1, channels, *sizes), "w": d.normal(outputs, channels, *kernel)}
    feeds["b"] = d.normal(outputs)
    name, parameters = d.pick(("Relu", None), ("Sigmoid", None), ("Tanh", None), ("LeakyRelu", [0.1]),
                              ("HardSigmoid", [0.2, 0.5]), ("Clip", [0.0, 6.0]))  # fmt: skip
    attributes |= {"activation": name, "activation_params": parameters}
    return one("FusedConv", feeds, attributes, domain=MS, opset=1, constant=("w", "b"), rtol=1e-3, atol=1e-3)


@covers("conv_transpose")
def conv_transpose(d: Drawer) -> Case:
    n, group = d.int(1, 3), d.int(1, 2)
    inputs, outputs = group * d.int(1, 3), d.int(1, 3)
    sizes, kernel, attributes = window(d, n, largest=5)
    spans = [(k - 1) * s + 1 for k, s in zip(kernel, attributes["dilations"], strict=True)]
    if any(s < t for s, t in zip(spans, attributes["strides"], strict=True)):
        # Where SAME would have to grow the output beyond the kernel's reach, onnxruntime gives another size.
        attributes.pop("auto_pad", None)
    attributes["output_padding"] = [d.int(0, s - 1) for s in attributes["strides"]] if d.bool() else None
    feeds = {
        "x": d.normal(d.int(1, 2), inputs, *sizes), "w": d.normal(inputs, outputs, *kernel),
        "b": d.normal(outputs * group) if d.bool() else None,
    }  # fmt: skip
    kinds = {"constant": d.pick((), ("w", "b")), "sized": ("w",), "rtol": 1e-3, "atol": 1e-3}
    return one("ConvTranspose", feeds, attributes | {"group": group}, opset=11, **kinds)


@covers("deform_conv")
def deform_conv(d: Drawer) -> Case:
    group, offset_group = d.pick(1, 2), d.pick(1, 2)
    inputs, outputs = 2 * d.int(1, 2), 2 * d.int(1, 2)
    kernel, strides, pads = [d.int(1, 3), d.int(1, 3)], [d.int(1, 2), d.int(1, 2)], [d.int(0, 1) for _ in range(4)]
    sizes = [d.int(4, 6), d.int(4, 6)]
    out = [(sizes[i] + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i in range(2)]
    taps = kernel[0] * kernel[1] * offset_group
    n = d.int(1, 2)
    feeds = {
        "x": d.normal(n, inputs, *sizes), "w": d.normal(outputs, inputs // group, *kernel),
        "o": d.normal(n, 2 * taps, *out), "b": d.normal(outputs) if d.bool() else None,
        "m": d.uniform(n, taps, *out) if d.bool() else None,
    }  # fmt: skip
    attributes = {"strides": strides, "pads": pads, "group": group, "offset_group": offset_group}
    return one("DeformConv", feeds, attributes, opset=19, constant=("w", "b"), rtol=1e-3, atol=1e-3)


@covers("pool")
def pool(d: Drawer) -> Case:
    kind, n = d.pick("MaxPool", "AveragePool", "LpPool"), d.int(1, 3)
    sizes, kernel, attributes = window(d, n, dilated=kind == "MaxPool")
    attributes["kernel_shape"] = kernel
    if kind == "AveragePool":
        attributes["count_include_pad"] = d.int(0, 1)
    if kind == "LpPool":
        attributes["p"] = d.int(1, 3)
    elif "pads" in attributes:
        attributes["ceil_mode"] = d.int(0, 1)
    x = d.normal(d.int(1, 2), d.int(1, 9), *sizes)
    if kind == "MaxPool" and d.bool():
        x = (x * 50).astype(np.int8)
    if attributes.get("ceil_mode") and any(attributes["pads"]):
        return one(kind, {"x": x}, attributes, opset=22 if kind != "LpPool" else 18, no_oracle=CEIL)
    return one(kind, {"x": x}, attributes, opset=22 if kind != "LpPool" else 18, rtol=1e-3)


CEIL = "onnxruntime drops or counts partial windows that begin in the end padding otherwise than the specification"


@covers("max_pool_indices")
def max_pool_indices(d: Drawer) -> Case:
    sizes, kernel, attributes = window(d, d.int(1, 3))
    x = d.normal(d.int(1, 2), d.int(1, 4), *sizes)
    attributes |= {"kernel_shape": kernel, "storage_order": d.int(0, 1)}
    return one("MaxPool", {"x": x}, attributes, outputs=2, opset=22)


@covers("max_unpool")
def max_unpool(d: Drawer) -> Case:
    n, c, h, w = d.int(1, 2), d.int(1, 2), d.int(1, 3), d.int(1, 3)
    kernel = [d.int(1, 2), d.int(1, 2)]
    strides = kernel
    size = n * c * h * strides[0] * w * strides[1]
    places = d.rng.choice(size, n * c * h * w, replace=False).reshape(n, c, h, w).astype(np.int64)
    shape = np.array([n, c, h * strides[0] + d.int(0, 1), w * strides[1] + d.int(0, 1)]) if d.bool() else None
    feeds = {"x": d.normal(n, c, h, w), "i": places, "s": shape}
    attributes = {"kernel_shape": kernel, "strides": strides}
    same = shape is None or shape.tolist() == [n, c, h * strides[0], w * strides[1]]
    reason = "" if same else "onnxruntime counts places in the enlarged output, against the cases of the official suite"
    return one("MaxUnpool", feeds, attributes, opset=11, constant=d.pick((), ("s",)), no_oracle=reason)


@covers("attention")
def attention(d: Drawer) -> Case:
    batch, heads, groups = d.int(1, 2), d.int(1, 2), d.int(1, 2)
    steps, length, size, value = d.int(1, 4), d.int(1, 6), d.int(1, 9), d.int(1, 9)
    past = d.pick(0, 0, d.int(1, 3))
    length = steps if past else length  # otherwise onnxruntime lets causal queries end with the last key
    feeds: dict[str, Any] = {
        "q": d.normal(batch, heads * groups, steps, size), "k": d.normal(batch, groups, length, size),
        "v": d.normal(batch, groups, length, value),
    }  # fmt: skip
    total = length + past
    feeds["m"] = d.pick(None, d.normal(steps, total), d.any(steps, total, dtype=bool) | (np.arange(total) == 0))
    attributes: dict[str, Any] = {"is_causal": d.int(0, 1), "softcap": d.pick(0.0, 2.0), "scale": d.pick(None, 0.3)}
    if past:
        feeds |= {"pk": d.normal(batch, groups, past, size), "pv": d.normal(batch, groups, past, value)}
    outputs = 3 if past else 1
    return one("Attention", feeds, attributes, outputs=outputs, opset=23, rtol=1e-3, atol=1e-4)


@covers("rotary")
def rotary(d: Drawer) -> Case:
    batch, heads, steps, half = d.int(1, 2), d.int(1, 3), d.int(1, 4), d.int(1, 4)
    partial = d.pick(0, 0, 2 * d.int(1, half))
    angles = d.normal(7, (partial or 2 * half) // 2)
    feeds = {
        "x": d.normal(batch, heads, steps, 2 * half), "c": np.cos(angles), "s": np.sin(angles),
        "p": d.integers(batch, steps, low=0, high=6),
    }  # fmt: skip
    attributes = {"interleaved": d.int(0, 1), "rotary_embedding_dim": partial}
    return one("RotaryEmbedding", feeds, attributes, opset=23)


@covers("cache_update", no_symbols="the capacity of the cache has to be known")
def cache_update(d: Drawer) -> Case:
    groups, size, past = d.int(1, 2), 8 * d.int(1, 2), d.int(0, 4)
    heads, steps = groups * d.int(1, 2), d.pick(1, d.int(1, 3))
    total = past + steps
    feeds = {
        "q": d.normal(1, steps, heads * size), "k": d.normal(1, steps, groups * size),
        "v": d.normal(1, steps, groups * size), "pk": d.normal(1, groups, past, size),
        "pv": d.normal(1, groups, past, size), "sl": np.array([total - 1], np.int32), "t": np.array(total, np.int32),
    }  # fmt: skip
    attributes = {"num_heads": heads, "kv_num_heads": groups, "softcap": d.pick(0.0, 0.7)}
    return one("GroupQueryAttention", feeds, attributes, outputs=3, domain=MS, opset=1, rtol=1e-3, atol=1e-4)


@covers("linear_attention", no_oracle="onnxruntime has no LinearAttention yet")
def linear_attention(d: Drawer) -> Case:
    rule = d.pick("linear", "gated", "delta", "gated_delta")
    batch, groups, steps, size, width = (d.int(1, 3) for _ in range(5))
    heads = groups * d.int(1, 2)
    feeds = {
        "q": d.normal(batch, steps, heads * size), "k": d.normal(batch, steps, groups * size),
        "v": d.normal(batch, steps, groups * width),
        "s": d.normal(batch, groups, size, width) if d.bool() else None,
        "d": -np.abs(d.normal(batch, steps, groups * d.pick(1, size))) if "gated" in rule else None,
        "b": d.uniform(batch, steps, groups, low=0, high=1) if "delta" in rule else None,
    }  # fmt: skip
    attributes = {"q_num_heads": heads, "kv_num_heads": groups, "update_rule": rule}
    return one("LinearAttention", feeds, attributes, outputs=2, opset=27, rtol=1e-3, atol=1e-4)
