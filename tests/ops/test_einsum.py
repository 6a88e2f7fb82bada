"""Einsum: parsing, and random equations against numpy.einsum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgerun.errors import EdgerunError
from edgerun_converters.onnx.ops.einsum import parse
from tests.ops.shapes import assert_symbolic_shapes
from tests.ops.single_node import NodeCase

SIZES = {"a": 2, "b": 3, "c": 4, "d": 2, "e": 5}


def integers(*shape, seed=0, dtype=np.float32):
    """Small whole numbers: every order of summation gives the same result."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


@st.composite
def equations(draw):
    """(equation, operand shapes), with repeated labels, ellipses, axes of one and implicit outputs."""
    count = draw(st.integers(1, 3))
    inputs, shapes = [], []
    ellipsis = draw(st.integers(0, 2)) if draw(st.booleans()) else None
    for _ in range(count):
        labels = draw(st.lists(st.sampled_from(sorted(SIZES)), max_size=3))
        shape = [SIZES[label] for label in labels]
        if ellipsis is not None and draw(st.booleans()):
            place = draw(st.integers(0, len(labels)))
            hidden = [draw(st.sampled_from([size, 1])) for size in (3, 2)[2 - ellipsis :]]
            hidden = hidden[draw(st.integers(0, len(hidden))) :]
            labels.insert(place, "...")
            shape[place:place] = hidden
        inputs.append("".join(labels))
        shapes.append(tuple(shape))
    left = ",".join(inputs)
    if draw(st.booleans()):
        return left, shapes
    used = sorted(set(left) - set(",."))
    output = draw(st.lists(st.sampled_from(used), unique=True, max_size=4)) if used else []
    if "..." in left:
        output.insert(draw(st.integers(0, len(output))), "...")
    return f"{left}->{''.join(output)}", shapes


@given(equations(), st.sampled_from([np.float32, np.int32]))
@settings(max_examples=250, deadline=None)
def test_einsum_matches_numpy(node, dtype):
    equation, shapes = node
    arrays = [integers(*shape, seed=k, dtype=dtype) for k, shape in enumerate(shapes)]
    inputs = {f"x{k}": array for k, array in enumerate(arrays)}
    (y,) = NodeCase("Einsum", inputs, {"equation": equation}).edgerun()
    expected = np.einsum(equation, *arrays)
    assert y.shape == expected.shape
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
        ("ii->i", [(3, 3)]),
        ("...ij,jk->...ik", [(2, 3, 4), (4, 5)]),
        ("ijk,il->", [(2, 3, 4), (2, 5)]),
    ],
)
def test_symbolic_sizes(equation, shapes):
    inputs = {f"x{k}": integers(*shape, seed=k) for k, shape in enumerate(shapes)}
    if equation == "ii->i":
        inputs = {"x0": inputs["x0"]}
    case = NodeCase("Einsum", inputs, {"equation": equation})
    assert_symbolic_shapes(case)


def test_labels_of_size_one_broadcast():
    a, b = integers(2, 1), integers(3, 4, seed=1)
    (y,) = NodeCase("Einsum", {"a": a, "b": b}, {"equation": "ij,jk->ik"}).edgerun()
    np.testing.assert_array_equal(y, np.einsum("ij,jk->ik", a, b))


def test_attention_becomes_one_matmul():
    inputs = {"q": integers(2, 3, 4, 5), "k": integers(2, 3, 6, 5)}
    graph = NodeCase("Einsum", inputs, {"equation": "bhqd,bhkd->bhqk"}).graph()
    ops = [n.op for n in graph.nodes]
    assert ops.count("matmul") == 1
    assert set(ops) <= {"matmul", "transpose", "reshape"}


def test_parse_writes_out_ellipses_and_implicit_outputs():
    assert parse("...ij, jk", [4, 2]) == ([("1", "0", "i", "j"), ("j", "k")], ("1", "0", "i", "k"))
    assert parse("ba", [2])[1] == ("a", "b")
    assert parse("Ab->bA", [2])[1] == ("b", "A")


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij,jk->ik", "names 2 operands"),
        ("ijk->i", "rank"),
        ("ij->ii", "repeats"),
        ("ij->k", "invents"),
        ("i1->i", "malformed"),
        ("......->", "malformed"),
        ("ii->i", "sizes"),
    ],
)
def test_refusals(equation, message):
    with pytest.raises(EdgerunError, match=message):
        NodeCase("Einsum", {"x": integers(2, 3)}, {"equation": equation}).graph()
