"""Movement ops: hand values, rules against kernels on random inputs, and single ONNX nodes against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgerun.dims import evaluate, symbol
from edgerun.dtypes import DType
from edgerun.errors import EdgerunError, ShapeError
from edgerun.ops.movement import slice_range
from edgerun.ops.registry import TensorType, infer
from tests.ops.core_op import apply
from tests.ops.single_node import NodeCase

DTYPES = [np.float32, np.float16, np.int8, np.int64, np.bool_, np.dtype(object)]
shapes = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)
filled = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def numbers(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """0, 1, 2 ... in row-major order."""
    line = np.arange(int(np.prod(shape)))
    values = np.array([str(v) for v in line], object) if np.dtype(dtype) == object else line.astype(dtype)
    return values.reshape(shape)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


# -- transpose, reshape, expand, concat


@given(shapes, st.sampled_from(DTYPES), st.randoms(use_true_random=False))
def test_transpose(shape: tuple[int, ...], dtype: Any, random: Any):
    perm = list(range(len(shape)))
    random.shuffle(perm)
    x = numbers(shape, dtype)
    y = apply("transpose", x, perm=tuple(perm))
    for index in np.ndindex(*y.shape):
        assert y[index] == x[tuple(index[perm.index(a)] for a in range(len(shape)))]


@pytest.mark.parametrize("perm", [(0,), (0, 0), (0, 2), (1, 0, 2)])
def test_transpose_needs_a_permutation(perm: tuple[int, ...]):
    with pytest.raises(ShapeError):
        infer("transpose", [TensorType(DType.F32, (2, 3))], {"perm": perm})


@pytest.mark.parametrize(
    ("shape", "target", "allowzero", "expected"),
    [
        ((2, 3, 4), (6, -1), False, (6, 4)),
        ((2, 3, 4), (0, 0, 2, -1), False, (2, 3, 2, 2)),
        ((2, 3), (3, 0, -1), False, None),  # the 0 copies 3: 9 does not divide 6
        ((0, 6, 2), (3, 2, -1), True, (3, 2, 0)),
        ((3, 2, 0), (0, 0, 3), True, (0, 0, 3)),
        ((0, 3), (0, -1), False, (0, 0)),
        ((), (1, 1), False, (1, 1)),
        ((1,), (), False, ()),
        ((4,), (2, -1, -1), False, None),
        ((4,), (2, 0), False, None),  # no axis 1 to copy
        ((4,), (3,), False, None),
        ((4,), (-2, -2), False, None),
    ],
)
def test_reshape_targets(shape: Any, target: Any, allowzero: bool, expected: Any):
    x = numbers(shape)
    if expected is None:
        with pytest.raises(ShapeError):
            apply_in_node("Reshape", x, i64(*target), {"allowzero": int(allowzero)})
        return
    y = apply("reshape", x, i64(*target), allowzero=allowzero)
    assert y.shape == expected
    assert y.ravel().tolist() == x.ravel().tolist()
    assert apply("reshape", x, to=expected).tolist() == y.tolist()


def apply_in_node(op_type: str, x: np.ndarray, sizes: np.ndarray, attributes: dict[str, Any]) -> None:
    """Run with the sizes known, and with the sizes computed; both must raise, so the second runs after the first."""
    try:
        NodeCase(op_type, {"x": x, "sizes": sizes}, attributes, constant=["sizes"]).edgerun()
    except EdgerunError:
        NodeCase(op_type, {"x": x, "sizes": sizes}, attributes).edgerun()


@given(filled, st.data())
def test_expand(shape: tuple[int, ...], data: Any):
    thin = tuple(1 if data.draw(st.booleans()) else n for n in shape)
    x = numbers(thin[data.draw(st.integers(0, len(shape))) :])
    expected = np.broadcast_to(x, shape[len(shape) - x.ndim :] if x.ndim else ())
    to = np.broadcast_shapes(x.shape, shape)
    assert apply("expand", x, to=to).tolist() == np.broadcast_to(expected, to).tolist()
    assert apply("expand", x, i64(*shape)).tolist() == np.broadcast_to(expected, to).tolist()


def test_expand_is_bidirectional():
    assert apply("expand", numbers((3, 1)), i64(2, 1, 1)).shape == (2, 3, 1)
    with pytest.raises(ShapeError):
        NodeCase("Expand", {"x": numbers((3,)), "shape": i64(2)}).edgerun()


@given(filled, st.lists(st.integers(0, 3), min_size=1, max_size=4), st.data())
def test_concat(shape: tuple[int, ...], lengths: list[int], data: Any):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for k, n in enumerate(lengths):
        size = list(shape)
        size[axis] = n
        parts.append(numbers(tuple(size)) + 100 * k)
    y = apply("concat", *parts, axis=axis)
    assert y.tolist() == np.concatenate(parts, axis).tolist()


def test_concat_refuses_other_sizes_and_types():
    a = TensorType(DType.F32, (2, 3))
    for b in (TensorType(DType.F32, (2, 4)), TensorType(DType.F32, (2,)), TensorType(DType.I32, (2, 3))):
        with pytest.raises(ShapeError):
            infer("concat", [a, b], {"axis": 0})


# -- slice


def slow_slice(length: int, start: int, end: int, step: int) -> list[int]:
    """The positions an ONNX slice takes, by the words of the specification."""
    start = start + length if start < 0 else start
    end = end + length if end < 0 else end
    if step > 0:
        start, end = min(max(start, 0), length), min(max(end, 0), length)
    else:
        start, end = min(max(start, 0), length - 1), min(max(end, -1), length - 1)
    found = []
    while length and (start < end if step > 0 else start > end):
        found.append(start)
        start += step
    return found


bound = st.one_of(st.integers(-8, 8), st.sampled_from([-(1 << 63), (1 << 63) - 1, -(1 << 31), (1 << 31) - 1]))
stride = st.integers(-3, 3).filter(bool)


@given(st.integers(0, 5), bound, bound, stride)
def test_slice_range(length: int, start: int, end: int, step: int):
    expected = slow_slice(length, start, end, step)
    first, size = slice_range(length, start, end, step)
    assert [first + i * step for i in range(size)] == expected
    y = apply("slice", numbers((length,)), i64(start), i64(end), None, i64(step))
    assert y.tolist() == expected


@settings(deadline=None, max_examples=60)
@given(filled, st.data())
def test_slice_node(shape: tuple[int, ...], data: Any):
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1))
    starts, steps = [data.draw(bound) for _ in axes], [data.draw(stride) for _ in axes]
    # onnxruntime takes the largest numbers for "to the front" when the step is negative; the specification does not.
    ends = [data.draw(bound if step > 0 else bound.filter(lambda e: e < 100)) for step in steps]
    inputs = {"x": numbers(shape), "s": i64(*starts), "e": i64(*ends), "a": i64(*axes), "t": i64(*steps)}
    computed = NodeCase("Slice", inputs)
    computed.check()
    known = NodeCase("Slice", inputs, constant=["s", "e", "a", "t"])
    np.testing.assert_array_equal(known.edgerun()[0], computed.edgerun()[0])


def test_slice_by_hand():
    x = numbers((10,))
    for start, end, step, expected in [
        (0, 5, -1, []),
        (-20, -100, -1, [0]),  # the start is clamped to the first element
        (20, -100, -4, [9, 5, 1]),
        (-3, 100, 1, [7, 8, 9]),
        (5, 5, 1, []),
        (3, 0, -1, [3, 2, 1]),
    ]:
        assert apply("slice", x, i64(start), i64(end), None, i64(step)).tolist() == expected


@pytest.mark.parametrize(("axes", "steps"), [((0, 0), (1, 1)), ((0, -2), (1, 1)), ((2,), (1,)), ((0,), (0,))], ids=str)
def test_slice_refuses(axes: Any, steps: Any):
    zeros = i64(*[0] * len(axes))
    inputs = {"x": numbers((2, 3)), "s": zeros, "e": zeros + 1, "a": i64(*axes), "t": i64(*steps)}
    for constant in ((), ("s", "e", "a", "t")):
        with pytest.raises(EdgerunError):
            NodeCase("Slice", inputs, constant=constant).edgerun()


# -- pad


def slow_pad(x: np.ndarray, before: int, after: int, mode: str, value: float) -> np.ndarray:
    """Padding of a vector, one element at a time."""
    kept = x[max(-before, 0) : len(x) - max(-after, 0)]
    result = []
    n = len(kept)
    for i in range(-max(before, 0), n + max(after, 0)):
        if 0 <= i < n:
            result.append(kept[i])
        elif mode == "constant":
            result.append(value)
        elif mode == "edge":
            result.append(kept[0 if i < 0 else -1])
        elif mode == "wrap":
            result.append(kept[i % n])
        else:
            result.append(kept[-i if i < 0 else 2 * n - 2 - i])
    return np.array(result, x.dtype)


@given(
    st.integers(0, 5), st.integers(-4, 4), st.integers(-4, 4), st.sampled_from(["constant", "edge", "wrap", "reflect"])
)
def test_pad_of_a_vector(length: int, before: int, after: int, mode: str):
    x = numbers((length,)) + 1
    kept = length + min(before, 0) + min(after, 0)
    grown = max(before, after, 0)
    if kept < 0 or (mode != "constant" and grown and kept == 0) or (mode == "reflect" and grown >= kept and grown):
        with pytest.raises(ShapeError):
            infer("pad", [TensorType(DType.F32, (length,))], {"widths": ((before, after),), "mode": mode})
        with pytest.raises(ShapeError):
            apply("pad", x, i64(before, after), mode=mode)
        return
    value = np.array(-7, np.float32)
    expected = slow_pad(x, before, after, mode, -7).tolist()
    assert apply("pad", x, None, value, widths=((before, after),), mode=mode).tolist() == expected
    assert apply("pad", x, i64(before, after), value, mode=mode).tolist() == expected


@settings(deadline=None, max_examples=60)
@given(filled, st.data())
def test_pad_node(shape: tuple[int, ...], data: Any):
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect"]))
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True, min_size=1))
    low = -1 if mode == "constant" else 0
    widest = [shape[a] - 1 if mode == "reflect" else 2 for a in axes]
    pads = [data.draw(st.integers(max(low, -(shape[a] // 2)), w)) for a, w in zip(axes * 2, widest * 2, strict=True)]
    inputs = {"x": numbers(shape), "p": i64(*pads), "v": np.array(5, np.float32), "a": i64(*axes)}
    case = NodeCase("Pad", inputs, {"mode": mode}, opset=18)
    case.check()
    known = NodeCase("Pad", inputs, {"mode": mode}, opset=18, constant=["p", "a"])
    np.testing.assert_array_equal(known.edgerun()[0], case.edgerun()[0])


def test_pad_refuses_at_run_time():
    x = numbers((2, 3))
    for pads, axes in [((1, 1), (2,)), ((1, 1, 1), (0,)), ((-3, 0), (0,))]:
        with pytest.raises(ShapeError):
            NodeCase("Pad", {"x": x, "p": i64(*pads), "v": None, "a": i64(*axes)}).edgerun()


# -- tile, shape, range


@given(shapes, st.sampled_from(DTYPES), st.data())
def test_tile(shape: tuple[int, ...], dtype: Any, data: Any):
    times = tuple(data.draw(st.integers(0, 3)) for _ in shape)
    x = numbers(shape, dtype)
    y = apply("tile", x, times=times)
    assert apply("tile", x, i64(*times)).tolist() == y.tolist()
    for index in np.ndindex(*y.shape):
        assert y[index] == x[tuple(i % n for i, n in zip(index, shape, strict=True))]


@pytest.mark.parametrize("times", [(2,), (1, 2, 1), (-1, 1)])
def test_tile_refuses(times: tuple[int, ...]):
    for constant in ((), ("t",)):
        with pytest.raises(EdgerunError):
            NodeCase("Tile", {"x": numbers((2, 3)), "t": i64(*times)}, constant=constant).edgerun()


@given(shapes, st.integers(-6, 6), st.one_of(st.none(), st.integers(-6, 6)))
def test_shape(shape: tuple[int, ...], start: int, end: int | None):
    assert apply("shape", numbers(shape), start=start, end=end).tolist() == list(shape[start:end])


@given(st.integers(-9, 9), st.integers(-9, 9), stride, st.sampled_from([np.int32, np.int64, np.float32, np.float64]))
def test_range(start: int, limit: int, step: int, dtype: Any):
    arguments = [np.array(v, dtype) for v in (start, limit, step)]
    assert apply("range", *arguments).tolist() == list(range(start, limit, step))


def test_range_by_hand():
    y = apply("range", *(np.array(v, np.float32) for v in (1, 2, 0.3)))
    np.testing.assert_allclose(y, [1, 1.3, 1.6, 1.9], rtol=1e-6)
    with pytest.raises(ShapeError):
        NodeCase("Range", {k: np.array(v, np.int64) for k, v in {"a": 0, "b": 3, "c": 0}.items()}).edgerun()


def test_range_of_a_symbol_never_has_a_negative_size():
    n = symbol("n")
    value = np.empty((), object)
    value[()] = n - 3
    zero, one = (TensorType(DType.I64, (), np.array(v, np.int64)) for v in (0, 1))
    (size,) = infer("range", [zero, TensorType(DType.I64, (), value), one], {})[0].dims
    assert [evaluate(size, {"n": k}) for k in (1, 3, 5)] == [0, 0, 2]


# -- operators that the importer composes


@settings(deadline=None, max_examples=40)
@given(filled, st.data())
def test_split_node(shape: tuple[int, ...], data: Any):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    count = data.draw(st.integers(1, shape[axis]))
    NodeCase("Split", {"x": numbers(shape)}, {"axis": axis, "num_outputs": count}, outputs=count, opset=18).check()


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_blocks_of_pixels(batch: int, depth: int, height: int, width: int, size: int):
    x = numbers((batch, depth * size * size, height, width))
    for mode in ("DCR", "CRD"):
        NodeCase("DepthToSpace", {"x": x}, {"blocksize": size, "mode": mode}, opset=13).check()
    y = numbers((batch, depth, height * size, width * size))
    NodeCase("SpaceToDepth", {"x": y}, {"blocksize": size}, opset=13).check()


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_space_to_depth_undoes_depth_to_space(mode: str):
    x = numbers((2, 8, 2, 3))
    y = NodeCase("DepthToSpace", {"x": x}, {"blocksize": 2, "mode": mode}).edgerun()[0]
    z = NodeCase("SpaceToDepth", {"x": y}, {"blocksize": 2, "mode": mode}, opset=27).edgerun()[0]
    np.testing.assert_array_equal(z, x)


@given(st.integers(0, 4), st.integers(0, 4), st.integers(-5, 5))
@settings(deadline=None, max_examples=30)
def test_eye_like(rows: int, columns: int, k: int):
    x = np.zeros((rows, columns), np.float32)
    y = NodeCase("EyeLike", {"x": x}, {"k": k}).edgerun()[0]
    np.testing.assert_array_equal(y, np.eye(rows, columns, k, dtype=np.float32))


@given(filled, st.data())
@settings(deadline=None, max_examples=40)
def test_flatten_and_squeeze(shape: tuple[int, ...], data: Any):
    x = numbers(shape)
    NodeCase("Flatten", {"x": x}, {"axis": data.draw(st.integers(-len(shape), len(shape)))}, opset=13).check()
    ones = [i for i, n in enumerate(shape) if n == 1]
    assume(ones)
    NodeCase("Squeeze", {"x": x, "axes": i64(*ones)}, opset=13, constant=["axes"]).check()
    NodeCase("Squeeze", {"x": x}, opset=13).check()


@pytest.mark.parametrize(("sizes", "expected"), [((2,), [1, 2]), ((3,), [0, 1, 2]), ((6,), [0, 0, 1, 2, 3, 0])])
def test_center_crop_pad(sizes: tuple[int, ...], expected: list[int]):
    x = numbers((4,))
    y = NodeCase("CenterCropPad", {"x": x, "s": i64(*sizes)}, opset=18, constant=["s"]).edgerun()[0]
    assert y.tolist() == expected
