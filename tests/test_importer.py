"""The importer: names, dimensions, functions, problems; control flow against loops written out in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from edgerun.backends.numpy.executor import NumpyExecutor
from edgerun.dims import symbol
from edgerun.errors import ImportFailure, ShapeError, UnsupportedError, UsageError
from edgerun.graph import Graph
from edgerun_converters.onnx.importer import import_model
from edgerun_converters.passes import optimize


def load(text: str) -> onnx.ModelProto:
    """A model in ONNX's textual form, with the header filled in."""
    return parser.parse_model('<ir_version: 8, opset_import: ["" : 17, "local" : 1]>\n' + text)


def run(graph: Graph, **inputs: Any) -> list[Any]:
    """Run the graph as imported and optimised; both must agree."""
    plain = NumpyExecutor(graph).run(inputs)
    better = NumpyExecutor(optimize(graph)).run(inputs)
    assert list(plain) == list(better)
    for name in plain:
        np.testing.assert_equal(plain[name], better[name])
    return list(plain.values())


def f32(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


X = np.arange(6, dtype=np.float32).reshape(2, 3)


# -- names


def test_tensors_keep_their_source_names():
    graph = import_model(load("g (float[N,3] x) => (float[N,3] y) { h = Relu(x)  y = Add(h, x) }"))
    assert graph.inputs == ["x"]
    assert graph.outputs == ["y"]
    assert [n.outputs for n in graph.nodes] == [["h"], ["y"]]


def test_a_node_called_like_a_later_value_does_not_take_its_name():
    model = load("g (float[2] x) => (float[2] y, float[2] z) { z = Elu(x)  y = Relu(z) }")
    model.graph.node[0].name = "y"
    graph = import_model(model)
    assert graph.outputs == ["y", "z"]
    np.testing.assert_array_equal(run(graph, x=f32([1, -1]))[0], [1, 0])


def test_outputs_that_are_inputs_weights_or_repeated_get_copies():
    text = """g (float[2] x) => (float[2] a, float[2] b, float[2] c, float[2] w)
    <float[2] w = {1, 2}> { a = Identity(x)  r = Relu(x)  b = Identity(r)  c = Identity(r) }"""
    graph = import_model(load(text))
    assert graph.outputs == ["a", "b", "c", "w"]
    for value, expected in zip(run(graph, x=f32([3, -4])), ([3, -4], [3, 0], [3, 0], [1, 2]), strict=True):
        np.testing.assert_array_equal(value, expected)


def test_an_initializer_that_is_also_an_input_is_a_constant_with_a_note():
    graph = import_model(load("g (float[2] x, float[2] w = {5, 6}) => (float[2] y) { y = Add(x, w) }"))
    assert graph.inputs == ["x"]
    assert graph.meta["notes"] == ["input 'w' has a default; it is taken as a constant"]


def test_provenance():
    meta = import_model(load("g (float[2] x) => (float[2] y) { y = Relu(x) }")).meta
    assert len(meta["sha256"]) == 64
    assert meta["opset_imports"] == {"ai.onnx": 17, "local": 1}
    assert meta["converter"].startswith("edgerun ")


# -- dimensions


def test_symbols_are_cleaned_and_unnamed_dimensions_differ():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch size", None, None, 3])
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [x], [helper.make_empty_tensor_value_info("y")]
    )
    shape = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])).tensors["y"].shape
    assert shape is not None
    assert shape[0] == symbol("batch_size")
    assert len(set(shape)) == 4


TWO = "g (float[N,T] x, float[T,4] w) => (float[N,4] y) { y = MatMul(x, w) }"


def test_shapes_bind_a_symbol_everywhere():
    graph = import_model(load(TWO), shapes={"x": (2, 3)})
    assert graph.tensors["w"].shape == (3, 4)
    assert graph.tensors["y"].shape == (2, 4)


def test_dims_bind_or_bound_symbols():
    graph = import_model(load(TWO), dims={"N": (1, 8), "T": 3})
    assert graph.symbols == {"N": (1, 8)}
    assert graph.tensors["x"].shape == (symbol("N"), 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shapes": {"z": (1, 2)}}, "no input 'z'"),
        ({"shapes": {"x": (1, 2, 3)}}, "cannot have the shape"),
        ({"shapes": {"w": (3, 5)}}, "cannot have the shape"),
        ({"shapes": {"x": (1, 2), "w": (3, 4)}}, "bound to 2 and to 3"),
        ({"shapes": {"x": (1, -2)}}, "cannot have the shape"),
        ({"dims": {"Q": 3}}, "no dimension 'Q'"),
        ({"dims": {"N": (5, 2)}}, "empty or negative"),
    ],
)
def test_contradictory_bindings(options: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        import_model(load(TWO), **options)


def test_a_declared_shape_that_contradicts_the_nodes_names_both_and_the_path():
    with pytest.raises(ShapeError, match=r"'y' is declared \[7, 3\] but its shape is \[2, 3\] .*y: f32\[2, 3\] <- h"):
        import_model(load("g (float[2,3] x) => (float[7,3] y) { h = Relu(x)  y = Relu(h) }"))


def test_other_symbol_names_in_declarations_do_not_matter():
    graph = import_model(load("g (float[N,3] x) => (float[M,3] y) { y = Relu(x) }"))
    assert graph.tensors["y"].shape == (symbol("N"), 3)


# -- problems


def test_all_problems_are_listed_with_their_nodes():
    text = """g (float[2,3] x, float[4] v) => (float[2,3] y) {
        a = Nonsense(x)  b = Relu(a)  c = Other(b)  d = Add(x, v)  y = Relu(c) }"""
    model = load(text)
    for node in model.graph.node:
        node.name = f"layer_{node.output[0]}"
    with pytest.raises(UnsupportedError) as caught:
        import_model(model)
    problems = caught.value.problems
    assert len(problems) == 3
    assert "layer_a" in problems[0] and "Nonsense" in problems[0]
    assert "layer_c" in problems[1]
    assert "layer_d" in problems[2] and "[2, 3]" in problems[2]


def test_malformed_attributes_are_a_problem_of_their_node():
    node = helper.make_node("Concat", ["x", "x"], ["y"], name="bad", axis="zero")
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, [2])], [helper.make_empty_tensor_value_info("y")]
    )
    with pytest.raises((ShapeError, UnsupportedError), match="'bad'"):
        import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


# -- functions


def test_functions_of_the_model_take_attributes_and_defaults():
    model = load("g (float[2] x) => (float[2] y) { y = local.Leak <slope: float = 0.5> (x) }")
    body = [helper.make_node("LeakyRelu", ["a"], ["b"])]
    body[0].attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    function = helper.make_function("local", "Leak", ["a"], ["b"], body, [helper.make_opsetid("", 17)], ["slope"])
    model.functions.append(function)
    np.testing.assert_allclose(run(import_model(model), x=f32([2, -2]))[0], [2, -1])


def test_operators_that_onnx_defines_by_others_are_expanded(monkeypatch: pytest.MonkeyPatch):
    from edgerun_converters.onnx import importer

    found = importer.find_lowering
    monkeypatch.setattr(importer, "find_lowering", lambda d, t: None if t in ("Softsign", "Selu") else found(d, t))
    graph = import_model(load("g (float[2] x) => (float[2] y) { a = Softsign(x)  y = Selu(a) }"))
    x = f32([1, -3])
    a = x / (1 + np.abs(x))
    expected = np.where(a > 0, 1.0507 * a, 1.0507 * 1.67326 * (np.exp(a) - 1))
    np.testing.assert_allclose(run(graph, x=x)[0], expected, rtol=1e-4)


# -- opset 6


def test_explicit_broadcasting():
    add = helper.make_node("Add", ["x", "v"], ["y"], broadcast=1, axis=0)
    graph = helper.make_graph(
        [add],
        "g",
        [helper.make_tensor_value_info("x", 1, [2, 3]), helper.make_tensor_value_info("v", 1, [2])],
        [helper.make_empty_tensor_value_info("y")],
    )
    imported = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)]))
    v = f32([10, 20])
    np.testing.assert_array_equal(run(imported, x=X, v=v)[0], X + v[:, None])


# -- control flow

BRANCHES = """<
    then_branch = t () => (float[M,3] r) { r = Add(x, x) },
    else_branch = e () => (float[M,3] r) { r = Neg(x) }>"""


def test_if_runs_the_branch_that_holds():
    graph = import_model(load(f"g (float[N,3] x, bool c) => (float[N,3] y) {{ y = If {BRANCHES} (c) }}"))
    assert graph.tensors["y"].shape == (symbol("N"), 3)
    np.testing.assert_array_equal(run(graph, x=X, c=np.array(True))[0], X + X)
    np.testing.assert_array_equal(run(graph, x=X, c=np.array(False))[0], -X)


@pytest.mark.parametrize("value", [0, 1])
def test_if_with_a_known_condition_leaves_only_its_branch(value: int):
    graph = import_model(load(f"g (float[N,3] x) => (float[N,3] y) <bool c = {{{value}}}> {{ y = If {BRANCHES} (c) }}"))
    assert all(not list(n.subgraphs()) for n in graph.nodes)
    np.testing.assert_array_equal(run(graph, x=X)[0], X + X if value else -X)


def test_branches_of_different_shapes():
    text = """g (float[2,3] x, bool c) => (float[A,B] y) { y = If <
        then_branch = t () => (float[A,B] r) { r = Transpose(x) },
        else_branch = e () => (float[A,B] r) { r = Identity(x) }> (c)  }"""
    graph = import_model(load(text))
    assert run(graph, x=X, c=np.array(True))[0].shape == (3, 2)
    assert run(graph, x=X, c=np.array(False))[0].shape == (2, 3)


def test_branches_of_different_types_are_refused():
    text = """g (float[2,3] x, bool c) => (y) { y = If <
        then_branch = t () => (r) { r = Identity(x) },
        else_branch = e () => (r) { r = Cast <to = 7> (x) }> (c) }"""
    with pytest.raises(ShapeError, match="f32 may also be a tensor of i64"):
        import_model(load(text))


LOOP = """g (int64 n, float[1,3] x) => (float[R,3] y, float[n,3] s) <bool yes = {1}> {
    y, s = Loop <body = b (int64 i, bool c, float[K,3] acc) => (bool d, float[L,3] next, float[3] row) {
        d = Identity(c)
        next = Concat <axis = 0> (acc, x)
        row = ReduceSum <keepdims = 0> (next, axes)
        }> (n, yes, x)
}"""


def test_loop_whose_carried_value_grows():
    model = load(LOOP)
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axes"))
    graph = import_model(model)
    x = f32([[1, 2, 3]])
    y, s = run(graph, n=np.array(4), x=x)
    np.testing.assert_array_equal(y, np.repeat(x, 5, 0))
    np.testing.assert_array_equal(s, x * np.arange(2, 6)[:, None])
    y, s = run(graph, n=np.array(0), x=x)
    assert y.shape == (1, 3)
    assert s.shape == (0, 3)


def test_loop_ended_by_its_condition():
    text = """g (float x) => (float y) <bool yes = {1}, float two = {2}, float limit = {100}> {
        e = Identity(yes)
        y = Loop <body = b (int64 i, bool c, float v) => (bool d, float w) {
            w = Mul(v, two)  d = Less(w, limit) }> (, yes, x)
    }"""
    graph = import_model(load(text))
    assert run(graph, x=np.array(3, np.float32))[0] == 192


def test_loop_that_carries_a_sequence():
    text = """g (int64 n, float[2] x) => (float[R] y) <bool yes = {1}> {
        start = SequenceEmpty <dtype = 1> ()
        all = Loop <body = b (int64 i, bool c, seq(float[K]) q) => (bool d, seq(float[K]) r) {
            d = Identity(c)
            f = Cast <to = 1> (i)
            v = Mul(x, f)
            r = SequenceInsert(q, v)
        }> (n, yes, start)
        y = ConcatFromSequence <axis = 0> (all)
    }"""
    x = f32([1, 10])
    np.testing.assert_array_equal(run(import_model(load(text)), n=np.array(3), x=x)[0], [0, 0, 1, 10, 2, 20])


def test_carried_value_that_changes_its_type_is_refused():
    text = """g (int64 n, float[2] x) => (y) <bool yes = {1}> {
        y = Loop <body = b (int64 i, bool c, float[2] v) => (bool d, int64[2] w) {
            d = Identity(c)  w = Cast <to = 7> (v) }>
            (n, yes, x) }"""
    with pytest.raises(ShapeError, match="carried value 0 is a tensor of f32 at first, then a tensor of i64"):
        import_model(load(text))


def test_scan_with_axes_and_directions():
    text = """g (float[2] s, float[2,N] x) => (float[2] z, float[2,N] y) {
        z, y = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1], scan_output_axes = [1],
            scan_output_directions = [1], body = b (float[2] a, float[2] v) => (float[2] c, float[2] o) {
            c = Add(a, v)
            o = Identity(c) }> (s, x) }"""
    graph = import_model(load(text))
    assert graph.tensors["y"].shape == (2, symbol("N"))
    s = f32([100, 200])
    z, y = run(graph, s=s, x=X)
    np.testing.assert_array_equal(y, s[:, None] + np.cumsum(X[:, ::-1], 1)[:, ::-1])
    np.testing.assert_array_equal(z, y[:, 0])


def test_nested_bodies_read_every_enclosing_scope():
    text = """g (int64 n, float[2] x, bool c) => (float[2] y) <bool yes = {1}> {
        y = Loop <body = b (int64 i, bool e, float[2] v) => (bool d, float[2] w) {
            d = Identity(e)
            t = Add(v, x)
            w = If <then_branch = t1 () => (float[2] r) {
                r = Add(t, x) }, else_branch = t2 () => (float[2] r) { r = Sub(v, t) }> (c)
        }> (n, yes, x) }"""
    graph = import_model(load(text))
    x = f32([1, 2])
    np.testing.assert_array_equal(run(graph, n=np.array(3), x=x, c=np.array(True))[0], 7 * x)
    np.testing.assert_array_equal(run(graph, n=np.array(3), x=x, c=np.array(False))[0], -x)


def test_inner_problems_are_reported_once():
    text = """g (int64 n, float[1,3] x) => (float[R,3] y) <bool yes = {1}> {
        y = Loop <body = b (int64 i, bool c, float[K,3] acc) => (bool d, float[L,3] next) {
            d = Identity(c)
            q = Nonsense(acc)
            next = Concat <axis = 0> (acc, x) }> (n, yes, x) }"""
    with pytest.raises(UnsupportedError) as caught:
        import_model(load(text))
    assert len(caught.value.problems) == 1
    assert "Nonsense" in caught.value.problems[0]


def test_wrong_number_of_body_inputs():
    text = """g (int64 n, float[1] x) => (float[1] y) <bool yes = {1}> {
        y = Loop <body = b (int64 i, bool c) => (bool d, float[1] w) {
            d = Identity(c)  w = Identity(x) }> (n, yes, x) }"""
    with pytest.raises(ImportFailure, match="takes 2 inputs but is given 3"):
        import_model(load(text))


SQUEEZE = """g (float[N,4,T] x, float[4,2] w) => (float[A,B] y)
    <int64[1] last = {-1}, int64 one = {1}, int64 two = {2}> {
    s = Shape(x)
    t = Gather(s, two)
    c = Equal(t, one)
    z = If <then_branch = a () => (r) { r = Squeeze(x, last) },
            else_branch = b () => (r) { r = Identity(x) }> (c)
    m = MatMul(z, w)
    y = Gemm(m, v)
}"""


def test_branches_of_different_rank_are_chosen_by_what_the_rest_can_use():
    model = load(SQUEEZE)
    model.graph.initializer.append(numpy_helper.from_array(np.eye(2, dtype=np.float32), "v"))
    model.graph.node[3].name = "squeeze"
    graph = import_model(model)
    x, w = np.ones((3, 4, 1), np.float32), np.ones((4, 2), np.float32)
    np.testing.assert_array_equal(run(graph, x=x, w=w)[0], np.full((3, 2), 4))
    assert any("'squeeze' is taken to run its then branch" in note for note in graph.meta["notes"])
    with pytest.raises(ShapeError, match="bind the input shapes"):
        NumpyExecutor(graph).run({"x": np.ones((3, 4, 2), np.float32), "w": w})


def test_a_branch_that_contradicts_the_shapes_fails_only_when_taken():
    text = """g (float[2,3] x, bool c) => (float[2,3] y) <float[4] v = {1, 2, 3, 4}> {
        y = If <then_branch = a () => (r) { r = Add(x, v) }, else_branch = b () => (r) { r = Neg(x) }> (c) }"""
    graph = import_model(load(text))
    np.testing.assert_array_equal(run(graph, x=X, c=np.array(False))[0], -X)
    with pytest.raises(ShapeError, match="do not broadcast"):
        NumpyExecutor(graph).run({"x": X, "c": np.array(True)})


def test_a_question_mark_is_no_name():
    graph = import_model(load("g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }"))
    assert graph.tensors["x"].shape == (symbol("N"), 3)
    model = load("g (float[N,M] x) => (float[P,Q] y) { y = Relu(x) }")
    for dim in model.graph.input[0].type.tensor_type.shape.dim:
        dim.dim_param = "?"
    shape = import_model(model).tensors["x"].shape
    assert shape is not None
    assert shape[0] != shape[1]
