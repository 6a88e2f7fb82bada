"""Elementwise functions, reductions, products of matrices, normalisations, sorting, random numbers, bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from tests.properties.case import Case
from tests.properties.draw import MS, Drawer, covers, one

f32, f16, f64 = np.float32, np.float16, np.float64
UNARY = (
    "Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Exp", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Tanh", "Asinh",
    "Erf", "Sigmoid", "Softplus", "Relu", "Elu", "Selu", "HardSigmoid", "HardSwish", "Softsign", "LeakyRelu", "Mish",
    "ThresholdedRelu", "Celu", "Gelu", "Shrink", "Reciprocal",
)  # fmt: skip
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)


@covers("elementwise")
def unary(d: Drawer) -> Case:
    op, dtype = d.pick(*UNARY), d.pick(f32, f32, f64, f16)
    x = d.normal(*d.shape(), dtype=dtype)
    if op == "Reciprocal":
        x = np.where(np.abs(x) < 0.1, dtype(1), x)
    known = dtype is f32 or op in ("Abs", "Neg", "Relu", "Sigmoid", "Tanh")
    reason = "" if known else f"onnxruntime has no {op} of {np.dtype(dtype)}"
    tolerance = 1e-2 if dtype is f16 else 1e-4
    return one(op, {"x": x}, no_oracle=reason, rtol=tolerance, atol=tolerance / 10)


@covers("elementwise")
def unary_of_limited_domain(d: Drawer) -> Case:
    op = d.pick("Sqrt", "Log", "Asin", "Acos", "Acosh", "Atanh", "IsNaN", "IsInf")
    low, high = {"Acosh": (1, 4), "Asin": (-1, 1), "Acos": (-1, 1), "Atanh": (-0.9, 0.9)}.get(op, (0.01, 4))
    x = d.uniform(*d.shape(), low=low, high=high)
    if op in ("IsNaN", "IsInf", "Sqrt"):
        x = np.where(d.rng.random(x.shape) < 0.3, f32(d.pick(np.nan, np.inf)), x)
    return one(op, {"x": x})


@covers("elementwise")
def binary(d: Drawer) -> Case:
    """Broadcast operands of any dtype; integers wrap, quotients truncate."""
    op = d.pick("Add", "Sub", "Mul", "Div", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
    dtype = d.pick(f32, f32, f64, np.int32, np.int64, *INTEGERS)
    shape = d.shape()
    a, b = (d.any(*s, dtype=dtype) for s in (shape, d.broadcast(shape)))
    if op == "Div":
        b = np.where(b == 0, np.array(1, dtype), b)
    if d.bool():
        a, b = b, a
        if op == "Div":
            b = np.where(b == 0, np.array(1, dtype), b)
    small = np.dtype(dtype).itemsize < 4 and np.dtype(dtype).kind in "iu"
    reason = "onnxruntime has few kernels for small integers" if small or np.dtype(dtype).kind == "u" else ""
    return one(op, {"a": a, "b": b}, no_oracle=reason)


@covers("elementwise")
def modulo_and_power(d: Drawer) -> Case:
    shape = d.shape()
    if d.bool():
        dtype, fmod = d.pick(f32, np.int32, np.int64, np.int8, np.uint8), d.bool()
        a, b = d.any(*shape, dtype=dtype), d.any(*d.broadcast(shape), dtype=dtype)
        b = np.where(b == 0, np.array(3, dtype), b)
        return one("Mod", {"a": a, "b": b}, {"fmod": int(fmod or dtype is f32)})
    dtype = d.pick(f32, f64)
    return one("Pow", {"a": d.uniform(*shape, dtype=dtype), "b": d.normal(*d.broadcast(shape), dtype=dtype)})


@covers("elementwise")
def variadic(d: Drawer) -> Case:
    op, shape = d.pick("Max", "Min", "Sum", "Mean"), d.shape()
    dtype = d.pick(f32, f64, np.int32, np.int64) if op in ("Max", "Min") else f32
    operands = {f"x{i}": d.any(*d.broadcast(shape), dtype=dtype) for i in range(d.int(2, 4))}
    return one(op, operands)


@covers("elementwise")
def logic_and_bits(d: Drawer) -> Case:
    shape = d.shape()
    kind = d.pick("logic", "bits", "not", "shift", "where")
    if kind == "logic":
        a, b = (d.any(*s, dtype=bool) for s in (shape, d.broadcast(shape)))
        return one(d.pick("And", "Or", "Xor"), {"a": a, "b": b})
    if kind == "not":
        x = d.any(*shape, dtype=d.pick(bool, *INTEGERS))
        return one("Not" if x.dtype == bool else "BitwiseNot", {"x": x})
    if kind == "where":
        dtype = d.pick(f32, np.int64, np.int32, np.uint8, object)
        a, b = d.any(*d.broadcast(shape), dtype=dtype), d.any(*d.broadcast(shape), dtype=dtype)
        return one("Where", {"c": d.any(*shape, dtype=bool), "a": a, "b": b})
    dtype = d.pick(*(t for t in INTEGERS if np.dtype(t).kind == "u" or kind == "bits"))
    a, b = (d.integers(*s, low=0, high=7, dtype=dtype) for s in (shape, d.broadcast(shape)))
    if kind == "bits":
        return one(d.pick("BitwiseAnd", "BitwiseOr", "BitwiseXor"), {"a": a, "b": b})
    reason = "onnxruntime does not shift 16 bits" if dtype is np.uint16 else ""
    return one("BitShift", {"a": a, "b": b}, {"direction": d.pick("LEFT", "RIGHT")}, no_oracle=reason)


@covers("elementwise")
def casts(d: Drawer) -> Case:
    dtypes = (f32, f64, f16, bool, *INTEGERS, ml_dtypes.bfloat16)
    source = d.pick(*dtypes)
    to = d.pick(*(t for t in dtypes if t is not source))
    x = d.any(*d.shape(), dtype=source)
    if np.dtype(to).kind == "u":
        x = np.abs(x.astype(f64)).astype(source)
    reason = "the Python binding of onnxruntime takes no bfloat16" if ml_dtypes.bfloat16 in (source, to) else ""
    return one("Cast", {"x": x}, {"to": helper.np_dtype_to_tensor_dtype(np.dtype(to))}, opset=21, no_oracle=reason)


@covers("elementwise")
def clips_and_slopes(d: Drawer) -> Case:
    shape = d.shape()
    if d.bool():
        dtype = d.pick(f32, f64, np.int32, np.int64, np.int8)
        low, high = sorted((d.int(-3, 3), d.int(-3, 3)))
        ends = {"l": np.array(low, dtype) if d.bool() else None, "h": np.array(high, dtype)}
        return one("Clip", {"x": d.any(*shape, dtype=dtype), **ends}, constant=d.pick((), ("l", "h")))
    return one("PRelu", {"x": d.normal(*shape), "s": d.uniform(*d.broadcast(shape))})


@covers("reduce")
def reduce(d: Drawer) -> Case:
    """Over constant axes; over none; over all."""
    kind = d.pick("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
    shape = d.shape(smallest=1)
    dtype = d.pick(f32, f32, np.int32, f64)
    if kind in ("LogSum", "LogSumExp", "L2", "L1"):
        dtype = f32
    x = d.uniform(*shape) if kind == "LogSum" else d.any(*shape, dtype=dtype)
    axes = None
    if d.bool() and shape:
        chosen = sorted({d.int(0, len(shape) - 1) for _ in range(d.int(1, 3))})
        axes = np.array([a - len(shape) * d.int(0, 1) for a in chosen])
    attributes = {"keepdims": d.int(0, 1), "noop_with_empty_axes": d.int(0, 1)}
    noop = axes is None and attributes["noop_with_empty_axes"]
    reason = "onnxruntime leaves the function of single elements out" if noop else ""
    return one(f"Reduce{kind}", {"x": x, "axes": axes}, attributes, opset=18, constant=("axes",), no_oracle=reason)


@covers("reduce", no_symbols="the axes come as a tensor: the result's sizes are fresh symbols")
def reduce_computed_axes(d: Drawer) -> Case:
    shape = d.shape(low=1, smallest=1)
    axes = np.array(sorted({d.int(0, len(shape) - 1) for _ in range(2)}))
    return one("ReduceSum", {"x": d.normal(*shape), "axes": axes}, {"keepdims": 1}, opset=13)


@covers("reduce")
def reduce_nothing(d: Drawer) -> Case:
    """Sums of no elements are 0, products 1."""
    shape = list(d.shape(low=1, high=3, smallest=1))
    axis = d.int(0, len(shape) - 1)
    shape[axis] = 0
    attributes = {"keepdims": d.int(0, 1)}
    inputs = {"x": d.normal(*shape), "axes": np.array([axis])}
    return one(d.pick("ReduceSum", "ReduceProd"), inputs, attributes, opset=18, constant=("axes",))


@covers("argreduce")
def argreduce(d: Drawer) -> Case:
    shape = d.shape(low=1, smallest=1)
    dtype = d.pick(f32, np.int32, f64, np.int8, np.uint8)
    attributes = {"axis": d.axis(len(shape)), "keepdims": d.int(0, 1), "select_last_index": d.int(0, 1)}
    return one(d.pick("ArgMax", "ArgMin"), {"x": d.any(*shape, dtype=dtype)}, attributes, opset=13)


@covers("cumsum")
def cumsum(d: Drawer) -> Case:
    shape = d.shape(low=1)
    x = d.any(*shape, dtype=d.pick(f32, f64, np.int32, np.int64))
    axis = np.array(d.axis(len(shape)), d.pick(np.int32, np.int64))
    attributes = {"exclusive": d.int(0, 1), "reverse": d.int(0, 1)}
    return one("CumSum", {"x": x, "axis": axis}, attributes, opset=14, constant=d.pick((), ("axis",)))


@covers("cumprod")
def cumprod(d: Drawer) -> Case:
    shape = d.shape(low=1)
    x = d.any(*shape, dtype=d.pick(f32, f64, np.int32, np.int64))
    axis = np.array(d.axis(len(shape)), d.pick(np.int32, np.int64))
    attributes = {"exclusive": d.int(0, 1), "reverse": d.int(0, 1)}
    return one("CumProd", {"x": x, "axis": axis}, attributes, opset=26, constant=d.pick((), ("axis",)))


@covers("softmax")
def softmax(d: Drawer) -> Case:
    shape = d.shape(low=1)
    dtype = d.pick(f32, f32, f64)
    return one(d.pick("Softmax", "LogSoftmax"), {"x": d.normal(*shape, dtype=dtype)}, {"axis": d.axis(len(shape))})


@covers("hardmax")
def hardmax(d: Drawer) -> Case:
    shape = d.shape(low=1, smallest=1)
    return one("Hardmax", {"x": d.any(*shape, dtype=f32)}, {"axis": d.axis(len(shape))})


@covers("matmul")
def matmul(d: Drawer) -> Case:
    """Vectors, matrices and broadcast batches; either operand may be a weight."""
    m, k, n = d.int(0, 5), d.int(1, 6), d.int(1, 20)
    batch = d.shape(high=2, smallest=1, largest=3)
    a = d.normal(*d.pick((k,), (m, k), (*batch, m, k)))
    b = d.normal(*d.pick((k,), (k, n), (*d.broadcast(batch), k, n)))
    return one("MatMul", {"a": a, "b": b}, constant=d.pick((), ("b",)))


@covers("matmul")
def matmul_of_numbers(d: Drawer) -> Case:
    dtype = d.pick(f64, np.int32, np.int64, np.uint32, np.uint64)
    m, k, n = d.int(1, 4), d.int(1, 4), d.int(1, 4)
    return one("MatMul", {"a": d.any(m, k, dtype=dtype), "b": d.any(k, n, dtype=dtype)})


@covers("matmul")
def gemm(d: Drawer) -> Case:
    m, k, n = d.int(0, 5), d.int(1, 6), d.int(1, 20)
    ta, tb = d.bool(), d.bool()
    a, b = d.normal(*((k, m) if ta else (m, k))), d.normal(*((n, k) if tb else (k, n)))
    c = d.normal(*d.broadcast((m, n))) if d.bool() else None
    attributes = {"transA": int(ta), "transB": int(tb), "alpha": d.pick(1.0, 0.5), "beta": d.pick(1.0, 2.0, 0.0)}
    return one("Gemm", {"a": a, "b": b, "c": c}, attributes, opset=13, constant=d.pick((), ("b",), ("b", "c")))


@covers("matmul")
def einsum(d: Drawer) -> Case:
    sizes = {letter: d.int(1, 4) for letter in "ijkb"}
    equation = d.pick("ij,jk->ik", "bij,bjk->bik", "ij,kj->ki", "ij,ij->ij", "bij,kj->bki", "i,j->ij", "bij,bik->bjk")
    terms = equation.split("->")[0].split(",")
    inputs = {f"x{i}": d.normal(*(sizes[c] for c in term)) for i, term in enumerate(terms)}
    if equation in ("ij,ij->ij", "i,j->ij"):
        equation, inputs = "ij,jk->ik", {"x0": d.normal(2, 3), "x1": d.normal(3, 2)}
    return one("Einsum", inputs, {"equation": equation})


@covers("det")
def det(d: Drawer) -> Case:
    n = d.int(1, 4)
    return one("Det", {"x": d.normal(*d.shape(high=2), n, n)}, opset=11, rtol=1e-3, atol=1e-4)


@covers("inverse")
def inverse(d: Drawer) -> Case:
    n = d.int(1, 4)
    x = d.normal(*d.shape(high=2, smallest=1), n, n) * f32(0.2) + np.eye(n, dtype=f32)
    return one("Inverse", {"x": x}, domain=MS, opset=1, rtol=1e-3, atol=1e-3)


@covers("layer_norm")
def layer_norm(d: Drawer) -> Case:
    shape = d.shape(low=1, smallest=1)
    axis = d.axis(len(shape))
    rest = shape[axis:]
    bias = d.normal(*rest) if d.bool() else None
    inputs = {"x": d.normal(*shape), "s": d.uniform(*rest), "b": bias}
    constant = d.pick((), ("s",), ("s", "b"))
    attributes = {"axis": axis, "epsilon": d.pick(1e-5, 1e-2)}
    return one("LayerNormalization", inputs, attributes, opset=17, constant=constant, rtol=1e-3, atol=1e-4)


@covers("rms_norm")
def rms_norm(d: Drawer) -> Case:
    shape = d.shape(low=1, smallest=1)
    axis = d.axis(len(shape))
    inputs = {"x": d.normal(*shape), "s": d.uniform(*shape[axis:])}
    attributes = {"axis": axis, "epsilon": d.pick(1e-5, 1e-2)}
    return one("RMSNormalization", inputs, attributes, opset=23, constant=d.pick((), ("s",)), rtol=1e-3, atol=1e-4)


@covers("group_norm", no_oracle="onnxruntime has no CPU kernel for GroupNormalization")
def group_norm(d: Drawer) -> Case:
    groups, each = d.int(1, 3), d.int(1, 3)
    channels = groups * each
    x = d.normal(d.int(1, 2), channels, *d.shape(low=1, high=2, smallest=1))
    inputs = {"x": x, "s": d.uniform(channels), "b": d.normal(channels)}
    return one("GroupNormalization", inputs, {"num_groups": groups}, opset=21, rtol=1e-3, atol=1e-3)


@covers("group_norm")
def instance_norm(d: Drawer) -> Case:
    channels = d.int(1, 5)
    x = d.normal(d.int(1, 2), channels, *d.shape(low=1, high=3, smallest=1))
    inputs = {"x": x, "s": d.uniform(channels), "b": d.normal(channels)}
    return one("InstanceNormalization", inputs, opset=6, constant=d.pick((), ("s", "b")), rtol=1e-3, atol=1e-3)


@covers("lrn")
def lrn(d: Drawer) -> Case:
    x = d.normal(d.int(1, 2), d.int(1, 6), *d.shape(low=2, high=2, smallest=1))
    attributes = {
        "size": d.pick(1, 3, 5),
        "alpha": d.pick(1e-4, 0.5),
        "beta": d.pick(0.75, 0.5),
        "bias": d.pick(1.0, 2),
    }
    return one("LRN", {"x": x}, {k: v if k == "size" else float(v) for k, v in attributes.items()}, opset=13)


@covers("topk")
def topk(d: Drawer) -> Case:
    shape = d.shape(low=1, smallest=1)
    axis = d.axis(len(shape))
    x = d.any(*shape, dtype=d.pick(f32, f32, np.int32, np.int64, f64))
    k = np.array([d.int(0, shape[axis])])
    attributes = {"axis": axis, "largest": d.int(0, 1), "sorted": 1}
    return one("TopK", {"x": x, "k": k}, attributes, outputs=2, opset=11, constant=d.pick((), ("k",)))


@covers("unique")
def unique(d: Drawer) -> Case:
    shape = d.shape(low=1, high=3, smallest=1)
    x = d.any(*shape, dtype=d.pick(f32, np.int64, np.int8, object))
    attributes = {"axis": d.pick(None, d.axis(len(shape))), "sorted": d.int(0, 1)}
    return one("Unique", {"x": x}, attributes, outputs=4, opset=11)


@covers("bit_cast")
def bit_cast(d: Drawer) -> Case:
    source, to = d.pick((f32, TensorProto.INT32), (np.int32, TensorProto.FLOAT), (np.int64, TensorProto.DOUBLE),
                        (np.int8, TensorProto.UINT8), (np.uint16, TensorProto.INT16))  # fmt: skip
    x = np.abs(d.any(*d.shape(), dtype=source))
    return one("BitCast", {"x": x}, {"to": to}, opset=26)


@covers("random_normal")
def random_normal(d: Drawer) -> Case:
    attributes = {"mean": 1.0, "scale": d.pick(0.5, 2.0), "seed": 3.0, "dtype": d.pick(1, 11)}
    if d.bool():
        return one("RandomNormalLike", {"x": d.normal(*d.shape())}, attributes, opset=1, values=False)
    return one("RandomNormal", {}, {**attributes, "shape": d.shape(low=1)}, opset=1, values=False)


@covers("random_uniform")
def random_uniform(d: Drawer) -> Case:
    attributes = {"low": -1.0, "high": d.pick(0.5, 2.0), "seed": 3.0, "dtype": d.pick(1, 11)}
    if d.bool():
        return one("RandomUniformLike", {"x": d.normal(*d.shape())}, attributes, opset=1, values=False)
    return one("RandomUniform", {}, {**attributes, "shape": d.shape(low=1)}, opset=1, values=False)


@covers("multinomial")
def multinomial(d: Drawer) -> Case:
    x = d.normal(d.int(1, 3), d.int(1, 5))
    attributes = {"sample_size": d.int(1, 4), "dtype": d.pick(6, 7), "seed": 1.0}
    return one("Multinomial", {"x": x}, attributes, opset=7, values=False)


@covers("bernoulli", no_oracle="onnxruntime expands Bernoulli into RandomUniformLike of bool types it lacks")
def bernoulli(d: Drawer) -> Case:
    x = d.uniform(*d.shape(), low=0, high=1)
    return one("Bernoulli", {"x": x}, {"dtype": d.pick(None, 1, 9, 11, 7), "seed": 1.0}, opset=15, values=False)
