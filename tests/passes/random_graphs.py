"""Small random ONNX graphs of the layers that the passes rewrite."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
MAX_ELEMENTS = 6000
UNARY = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid", "HardSwish", "Softplus", "Erf", "Neg", "Abs",
         "Identity", "Celu", "Cos", "Selu", "Softsign")  # fmt: skip


@dataclass
class Maker:
    """Adds layers at random to a graph. `shapes` holds what can be read; its order is that of the graph."""

    seed: int
    shapes: dict[str, Shape] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    # -- choices

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def source(self, fits: Callable[[Shape], bool] = lambda s: True) -> tuple[str, Shape] | None:
        """One of the tensors so far, rather a late one."""
        names = [n for n, s in self.shapes.items() if fits(s)]
        if not names:
            return None
        name = names[-1] if self.chance(0.6) else self.pick(*names[-6:])
        return name, self.shapes[name]

    def any(self) -> tuple[str, Shape]:
        found = self.source()
        assert found is not None, "a graph has inputs"
        return found

    # -- parts

    def const(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        return self.const(values, np.int64)

    def weight(self, *shape: int, scale: float = 0.5) -> str:
        return self.const(self.rng.standard_normal(shape) * scale)

    def positive(self, *shape: int) -> str:
        return self.const(self.rng.uniform(0.5, 2, shape))

    def node(self, op: str, inputs: list[str], outputs: int = 1, **attrs: Any) -> list[str]:
        number = len(self.nodes)
        names = [f"{op.lower()}{number}" + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, f"{op}_{number}", **attrs))
        return names

    def add(self, op: str, inputs: list[str], shape: Shape, **attrs: Any) -> str:
        (name,) = self.node(op, inputs, **attrs)
        self.shapes[name] = tuple(int(d) for d in shape)
        return name

    def inner(self, op: str, *inputs: str, **attrs: Any) -> str:
        """A step within a layer: nothing else reads it."""
        return self.node(op, list(inputs), **attrs)[0]

    def either(self, a: str, b: str) -> list[str]:
        return self.pick([a, b], [b, a])

    # -- layers: each adds one, or does nothing where no tensor fits

    def unary(self) -> None:
        x, shape = self.any()
        self.add(self.pick(*UNARY), [x], shape)

    def clip(self) -> None:
        x, shape = self.any()
        ends = self.pick((0.0, 6.0), (-1.0, 1.0), (0.0, None), (None, 0.5), (-3.0, 3.0))
        self.add("Clip", [x, *("" if v is None else self.const(v) for v in ends)], shape)

    def written_out(self) -> None:
        """An activation as a chain of elementwise operations."""
        x, shape = self.any()
        kind = self.pick("silu", "hardswish", "gelu", "gelu_tanh", "mish", "prelu", "where", "sqrt", "hardsigmoid")
        one, half = self.const(1.0), self.const(0.5)
        if kind == "silu":
            self.add("Mul", self.either(x, self.inner("Sigmoid", x)), shape)
        elif kind == "hardswish":
            gate = self.inner("Clip", self.inner("Add", x, self.const(3.0)), self.const(0.0), self.const(6.0))
            self.add("Div", [self.inner("Mul", x, gate), self.const(6.0)], shape)
        elif kind == "gelu":
            erf = self.inner("Erf", self.inner("Div", x, self.const(math.sqrt(2))))
            self.add("Mul", [self.inner("Mul", x, self.inner("Add", erf, one)), half], shape)
        elif kind == "gelu_tanh":
            cube = self.inner("Pow", x, self.const(3.0))
            arg = self.inner("Add", x, self.inner("Mul", cube, self.const(0.044715)))
            tanh = self.inner("Tanh", self.inner("Mul", arg, self.const(math.sqrt(2 / math.pi))))
            self.add("Mul", [self.inner("Mul", half, x), self.inner("Add", one, tanh)], shape)
        elif kind == "mish":
            self.add("Mul", [x, self.inner("Tanh", self.inner("Softplus", x))], shape)
        elif kind == "prelu":
            slope = (shape[1], *(1 for _ in shape[2:])) if len(shape) > 2 else shape[-1:]
            self.add("PRelu", [x, self.positive(*slope)], shape)
        elif kind == "where":
            self.add("Where", [self.inner("Less", x, self.const(0.0)), self.inner("Mul", x, half), x], shape)
        elif kind == "sqrt":
            self.add("Sqrt", [self.inner("Add", self.inner("Abs", x), one)], shape)
        else:
            line = self.inner("Add", self.inner("Mul", x, self.const(0.2)), half)
            self.add("Clip", [line, self.const(0.0), one], shape)

    def affine(self) -> None:
        """One operand is constant: a scalar, one value for each channel, ..."""
        x, shape = self.any()
        rank = len(shape)
        masks = [(), (0,) * rank, (1,) * rank, (0,) * (rank + 1)]
        if shape:
            masks += [(0,) * (rank - 1) + (1,), tuple(int(i == 1) for i in range(rank))]
            masks += [tuple(int(self.chance(0.5)) for _ in shape)]
        mask = self.pick(*masks)
        extent = tuple(d if m else 1 for d, m in zip((1,) * (len(mask) - rank) + shape, mask, strict=False))
        op = self.pick("Add", "Sub", "Mul", "Div", "Mul", "Add", "Max", "Min")
        w = self.positive(*extent) if op == "Div" or self.chance(0.3) else self.weight(*extent)
        right = op == "Div" or self.chance(0.6)
        self.add(op, [x, w] if right else [w, x], np.broadcast_shapes(shape, extent))

    def merge(self) -> None:
        """Two tensors so far that broadcast."""
        x, shape = self.any()
        others = []
        for name, other in self.shapes.items():
            try:
                result = np.broadcast_shapes(shape, other)
            except ValueError:
                continue
            if math.prod(result) <= MAX_ELEMENTS:
                others.append((name, result))
        y, result = self.pick(*others)
        self.add(self.pick("Add", "Sub", "Mul", "Max", "Min", "Add", "Mean"), self.either(x, y), result)

    def conv(self) -> None:
        found = self.source(lambda s: len(s) in (3, 4) and s[1] <= 48)
        if not found:
            return
        x, (n, c, *size) = found
        group = self.pick(1, 1, c, *(g for g in (2, 3) if c % g == 0))
        out = group * int(self.rng.integers(1, max(2, 16 // group)))
        kernel = [self.pick(1, 1, 2, 3) for _ in size]
        stride = [self.pick(1, 1, 2) for _ in size]
        dilation = [self.pick(1, 1, 2) for _ in size]
        pads = [int(self.rng.integers(0, 2)) for _ in range(2 * len(size))]
        ends = pads[len(size) :]
        spans = [size[i] + pads[i] + ends[i] - dilation[i] * (kernel[i] - 1) - 1 for i in range(len(size))]
        if min(spans) < 0:
            return
        bias = [self.weight(out)] if self.chance(0.6) else []
        weight = self.weight(out, c // group, *kernel, scale=0.4)
        shape = (n, out, *(v // s + 1 for v, s in zip(spans, stride, strict=True)))
        self.add("Conv", [x, weight, *bias], shape, kernel_shape=kernel, strides=stride, dilations=dilation, pads=pads,
                 group=group)  # fmt: skip

    def conv_transpose(self) -> None:
        found = self.source(lambda s: len(s) == 4 and s[1] <= 24 and math.prod(s) < 1500)
        if not found:
            return
        x, (n, c, h, w) = found
        group, stride, kernel, each = self.pick(1, 1, c), self.pick(1, 2), self.pick(2, 3), self.pick(1, 2, 3)
        bias = [self.weight(group * each)] if self.chance(0.5) else []
        shape = (n, group * each, (h - 1) * stride + kernel, (w - 1) * stride + kernel)
        self.add("ConvTranspose", [x, self.weight(c, each, kernel, kernel), *bias], shape, group=group,
                 strides=[stride] * 2, kernel_shape=[kernel] * 2)  # fmt: skip

    def batch_norm(self) -> None:
        found = self.source(lambda s: len(s) >= 2)
        if found:
            c = found[1][1]
            parameters = [self.positive(c), self.weight(c), self.weight(c), self.positive(c)]
            self.add("BatchNormalization", [found[0], *parameters], found[1], epsilon=1e-3)

    def norm(self) -> None:
        """Layer, instance, RMS norm; as one op or written out."""
        found = self.source(lambda s: len(s) >= 2 and s[-1] >= 3)
        if not found:
            return
        x, shape = found
        last = shape[-1]
        kind = self.pick("layer", "layer", "instance", "rms", "op")
        if kind == "op":
            self.add("LayerNormalization", [x, self.positive(last), self.weight(last)], shape, axis=-1, epsilon=1e-3)
        elif kind == "instance" and len(shape) > 2:
            parameters = [self.positive(shape[1]), self.weight(shape[1])]
            self.add("InstanceNormalization", [x, *parameters], shape, epsilon=1e-3)
        elif kind == "layer":
            centred = self.inner("Sub", x, self.inner("ReduceMean", x, self.ints(-1)))
            how = self.pick(("Mul", centred), ("Pow", self.const(2.0)))
            square = self.inner(how[0], centred, how[1])
            variance = self.inner("Add", self.inner("ReduceMean", square, self.ints(-1)), self.const(1e-3))
            scaled = self.inner("Div", centred, self.inner("Sqrt", variance))
            self.add("Add", [self.inner("Mul", scaled, self.positive(last)), self.weight(last)], shape)
        else:
            mean = self.inner("ReduceMean", self.inner("Mul", x, x), self.ints(-1))
            root = self.inner("Sqrt", self.inner("Add", mean, self.const(1e-3)))
            self.add("Mul", [self.inner("Div", x, root), self.positive(last)], shape)

    def pool(self) -> None:
        found = self.source(lambda s: len(s) == 4 and min(s[2:]) >= 3)
        if not found:
            return
        x, (n, c, h, w) = found
        kernel, stride, pad = self.pick((2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 1, 0), (3, 2, 0))
        attrs: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        op = self.pick("MaxPool", "AveragePool")
        if op == "AveragePool":
            attrs["count_include_pad"] = self.pick(0, 1)
        self.add(op, [x], (n, c, *((s + 2 * pad - kernel) // stride + 1 for s in (h, w))), **attrs)

    def global_pool(self) -> None:
        found = self.source(lambda s: len(s) >= 3)
        if found and self.chance(0.4):
            x, shape = found
            self.add(self.pick("GlobalAveragePool", "GlobalMaxPool"), [x], shape[:2] + (1,) * (len(shape) - 2))

    def reduce(self) -> None:
        found = self.source(lambda s: len(s) >= 2)
        if not found:
            return
        x, shape = found
        axes = sorted(set(self.rng.integers(0, len(shape), self.pick(1, 1, 2)).tolist()))
        keep = self.pick(0, 1)
        result = [1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes]
        op = self.pick("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp")
        self.add(op, [x, self.ints(*axes)], tuple(result), keepdims=keep)

    def softmax(self) -> None:
        found = self.source(lambda s: len(s) >= 1)
        if found:
            op = self.pick("Softmax", "Softmax", "LogSoftmax")
            self.add(op, [found[0]], found[1], axis=int(self.rng.integers(-len(found[1]), len(found[1]))))

    def matmul(self) -> None:
        found = self.source(lambda s: len(s) >= 1)
        if not found:
            return
        x, shape = found
        n = self.pick(1, 2, 5, 8, 17)
        kind = self.pick("right", "right", "left", "square", "batched")
        if kind == "right":
            y = self.add("MatMul", [x, self.weight(shape[-1], n)], (*shape[:-1], n))
            if self.chance(0.6):
                self.add("Add", self.either(y, self.weight(n)), self.shapes[y])
        elif kind == "left" and len(shape) >= 2:
            self.add("MatMul", [self.weight(n, shape[-2]), x], (*shape[:-2], n, shape[-1]))
        elif kind == "square" and len(shape) >= 2:
            rank = len(shape)
            turned = self.inner("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])
            self.add("Mul", [self.inner("MatMul", x, turned), self.const(0.3)], (*shape[:-1], shape[-2]))
        elif kind == "batched" and len(shape) >= 3:
            self.add("MatMul", [x, self.weight(*shape[:-2], shape[-1], n)], (*shape[:-1], n))

    def gemm(self) -> None:
        found = self.source(lambda s: len(s) == 2)
        if not found:
            return
        x, shape = found
        turn_a, turn_b, n = self.pick(0, 1), self.pick(0, 1), self.pick(1, 4, 9)
        m, k = shape[::-1] if turn_a else shape
        weight = self.weight(*((n, k) if turn_b else (k, n)))
        c = [self.weight(*self.pick((n,), (m, n), (m, 1), (1,), ()))] if self.chance(0.7) else []
        self.add("Gemm", [x, weight, *c], (m, n), transA=turn_a, transB=turn_b, alpha=self.pick(1.0, 0.5),
                 beta=self.pick(1.0, 2.0))  # fmt: skip

    def attention(self) -> None:
        found = self.source(lambda s: len(s) == 3 and s[-1] % 2 == 0 and s[-1] >= 4)
        if not found:
            return
        x, (n, s, width) = found
        heads = self.pick(1, 2)
        parts: list[str] = []
        for perm in ((0, 2, 1, 3), self.pick((0, 2, 3, 1), (0, 2, 1, 3)), (0, 2, 1, 3)):
            y = self.inner("Add", self.inner("MatMul", x, self.weight(width, width)), self.weight(width))
            split = self.inner("Reshape", y, self.ints(0, 0, heads, width // heads))
            part = self.inner("Transpose", split, perm=perm)
            if len(parts) == 1 and perm == (0, 2, 1, 3):
                part = self.inner("Transpose", part, perm=(0, 1, 3, 2))
            parts.append(part)
        scores = self.inner("Mul", self.inner("MatMul", parts[0], parts[1]), self.const((width // heads) ** -0.5))
        if self.chance(0.4):
            scores = self.inner("Add", scores, self.weight(*self.pick((s, s), (1, 1, s, s), (n, heads, s, s))))
        mixed = self.inner("MatMul", self.inner("Softmax", scores, axis=-1), parts[2])
        back = self.inner("Transpose", mixed, perm=(0, 2, 1, 3))
        self.add("Reshape", [back, self.ints(0, 0, width)], (n, s, width))

    def transpose(self) -> None:
        x, shape = self.any()
        if len(shape) < 2:
            return
        perms = [tuple(self.rng.permutation(len(shape)).tolist())]
        perms += {3: [(0, 2, 1)], 4: [(0, 2, 3, 1), (0, 3, 1, 2)]}.get(len(shape), [])
        perm = self.pick(*perms)
        self.add("Transpose", [x], tuple(shape[p] for p in perm), perm=perm)

    def reshape(self) -> None:
        x, shape = self.any()
        left, target = math.prod(shape), list[int]()
        for _ in range(int(self.rng.integers(1, 4))):
            target.append(self.pick(*(d for d in range(1, min(left, 40) + 1) if left % d == 0)))
            left //= target[-1]
        target.insert(int(self.rng.integers(0, len(target) + 1)), left)
        shape = tuple(target)
        if self.chance(0.4):
            target[int(self.rng.integers(len(target)))] = -1
        self.add("Reshape", [x, self.ints(*target)], shape)

    def flatten(self) -> None:
        x, shape = self.any()
        axis = int(self.rng.integers(0, len(shape) + 1))
        self.add("Flatten", [x], (math.prod(shape[:axis]), math.prod(shape[axis:])), axis=axis)

    def unsqueeze(self) -> None:
        x, shape = self.any()
        ones = [i for i, d in enumerate(shape) if d == 1]
        if ones and self.chance(0.7):
            axis = self.pick(*ones)
            self.add("Squeeze", [x, self.ints(axis)], shape[:axis] + shape[axis + 1 :])
        elif len(shape) < 5:
            axis = int(self.rng.integers(0, len(shape) + 1))
            self.add("Unsqueeze", [x, self.ints(axis)], (*shape[:axis], 1, *shape[axis:]))

    def concat(self) -> None:
        found = self.source(lambda s: len(s) >= 1)
        if not found:
            return
        x, shape = found
        axis = int(self.rng.integers(len(shape)))
        rest = shape[:axis] + shape[axis + 1 :]
        fits = [n for n, s in self.shapes.items() if len(s) == len(shape) and s[:axis] + s[axis + 1 :] == rest]
        names = [x, *(self.pick(*fits) for _ in range(self.pick(1, 1, 2)))]
        long = sum(self.shapes[n][axis] for n in names)
        if self.chance(0.2):
            names.append(self.weight(*shape))
            long += shape[axis]
        if math.prod(rest) * long <= MAX_ELEMENTS:
            self.add("Concat", names, (*shape[:axis], long, *shape[axis + 1 :]), axis=axis)

    def split(self) -> None:
        found = self.source(lambda s: any(d >= 2 for d in s))
        if not found:
            return
        x, shape = found
        axis = self.pick(*(i for i, d in enumerate(shape) if d >= 2))
        first = int(self.rng.integers(1, shape[axis]))
        sizes = [first, shape[axis] - first]
        for name, size in zip(self.node("Split", [x, self.ints(*sizes)], 2, axis=axis), sizes, strict=True):
            self.shapes[name] = (*shape[:axis], size, *shape[axis + 1 :])

    def slice(self) -> None:
        found = self.source(lambda s: any(d >= 2 for d in s))
        if not found:
            return
        x, shape = found
        axis = self.pick(*(i for i, d in enumerate(shape) if d >= 2))
        start, end, step = self.pick((1, 10**6, 1), (0, -1, 1), (-1, -(10**6), -1), (0, 10**6, 2), (1, 10**6, 3))
        size = len(range(shape[axis])[start:end:step])
        self.add("Slice", [x, *map(self.ints, (start, end, axis, step))], (*shape[:axis], size, *shape[axis + 1 :]))

    def gather(self) -> None:
        found = self.source(lambda s: len(s) >= 1)
        if not found:
            return
        x, shape = found
        axis = int(self.rng.integers(len(shape)))
        count = self.pick((), (1,), (2,), (3,))
        index = self.const(self.rng.integers(-shape[axis], shape[axis], count), np.int64)
        self.add("Gather", [x, index], (*shape[:axis], *count, *shape[axis + 1 :]), axis=axis)

    def pad(self) -> None:
        found = self.source(lambda s: len(s) >= 1 and math.prod(d + 2 for d in s) <= MAX_ELEMENTS)
        if not found:
            return
        x, shape = found
        mode = self.pick("constant", "constant", "reflect", "edge")
        room = [2 if mode != "reflect" else min(2, d) for d in shape]
        pads = [int(self.rng.integers(0, r)) if self.chance(0.5) else 0 for r in room * 2]
        value = [self.const(self.pick(0.0, 1.5))] if mode == "constant" else []
        result = tuple(d + a + b for d, a, b in zip(shape, pads, pads[len(shape) :], strict=False))
        self.add("Pad", [x, self.ints(*pads), *value], result, mode=mode)

    def expand(self) -> None:
        x, shape = self.any()
        if not shape:
            return
        repeats = [self.pick(1, 1, 2) for _ in shape]
        result = tuple(d * r for d, r in zip(shape, repeats, strict=True))
        if math.prod(result) > MAX_ELEMENTS:
            return
        if self.chance(0.5):
            self.add("Tile", [x, self.ints(*repeats)], result)
        else:
            result = tuple(d * r if d == 1 else d for d, r in zip(shape, repeats, strict=True))
            self.add("Expand", [x, self.ints(*result)], result)

    def spatial(self) -> None:
        found = self.source(lambda s: len(s) == 4 and math.prod(s) <= 1500)
        if not found:
            return
        x, (n, c, h, w) = found
        kind = self.pick("resize", "resize", "depth", "space", "shuffle")
        if kind == "resize":
            up, right = self.pick((2, 2), (1, 2), (2, 1))
            mode, how = self.pick(("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners"))
            attrs = {"mode": mode, "coordinate_transformation_mode": how}
            if mode == "nearest":
                attrs["nearest_mode"] = "floor"
            self.add("Resize", [x, "", self.const([1, 1, up, right])], (n, c, h * up, w * right), **attrs)
        elif kind == "depth" and c % 4 == 0:
            self.add("DepthToSpace", [x], (n, c // 4, h * 2, w * 2), blocksize=2, mode=self.pick("DCR", "CRD"))
        elif kind == "space" and h % 2 == 0 and w % 2 == 0:
            self.add("SpaceToDepth", [x], (n, c * 4, h // 2, w // 2), blocksize=2)
        elif kind == "shuffle" and c % 2 == 0:
            halves = self.inner("Reshape", x, self.ints(n, 2, c // 2, h, w))
            turned = self.inner("Transpose", halves, perm=(0, 2, 1, 3, 4))
            self.add("Reshape", [turned, self.ints(n, c, h, w)], (n, c, h, w))

    def gated(self) -> None:
        """Squeeze and excitation."""
        found = self.source(lambda s: len(s) == 4)
        if not found:
            return
        x, shape = found
        c = shape[1]
        mean = self.inner("GlobalAveragePool", x)
        gate = self.inner("Relu", self.inner("Conv", mean, self.weight(3, c, 1, 1), self.weight(3)))
        gate = self.inner("Conv", gate, self.weight(c, 3, 1, 1), self.weight(c))
        self.add("Mul", self.either(x, self.inner(self.pick("Sigmoid", "HardSigmoid"), gate)), shape)

    LAYERS = (unary, unary, clip, written_out, written_out, affine, affine, affine, merge, merge, conv, conv,
              conv_transpose, batch_norm, batch_norm, norm, pool, global_pool, reduce, softmax, matmul, matmul, gemm,
              attention, transpose, transpose, transpose, reshape, reshape, flatten, unsqueeze, concat, split, slice,
              gather, pad, expand, spatial, gated)  # fmt: skip


def random_model(seed: int, layers: int = 10) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of about `layers` layers (float32, opset 18) and values for its inputs. The same seed, the same model."""
    maker = Maker(seed)
    shapes = [
        (maker.pick(1, 2), maker.pick(3, 4, 8, 16), maker.pick(5, 6, 8), maker.pick(4, 7, 8)),
        (maker.pick(1, 2, 3), maker.pick(4, 7, 16), maker.pick(4, 8, 12)),
        (maker.pick(1, 3, 8), maker.pick(1, 4, 10)),
    ]
    inputs: dict[str, Shape] = {f"x{i}": maker.pick(*shapes) for i in range(maker.pick(1, 1, 2))}
    maker.shapes.update(inputs)
    while len(maker.shapes) < layers:
        maker.pick(*Maker.LAYERS)(maker)
    read = {i for n in maker.nodes for i in n.input}
    outputs = [n for n in maker.shapes if n not in inputs and (n not in read or maker.chance(0.1))]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        maker.nodes, f"random{seed}",
        [info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [info(n, TensorProto.FLOAT, maker.shapes[n]) for n in outputs],
        maker.weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return model, {n: maker.rng.standard_normal(s).astype(np.float32) for n, s in inputs.items()}
