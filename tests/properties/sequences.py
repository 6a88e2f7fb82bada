"""Sequences, optionals, strings and control flow: models of a few nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edgerun.dtypes import from_numpy
from tests.properties.case import Case
from tests.properties.draw import Drawer, covers, one

f32 = np.float32
node = helper.make_node


def graph_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray] | None = None,
) -> onnx.GraphProto:
    """Inputs are arrays, or None for inputs without a type (of bodies)."""
    ports = [
        onnx.ValueInfoProto(name=k)
        if v is None
        else helper.make_tensor_value_info(k, from_numpy(v.dtype).onnx, v.shape)
        for k, v in inputs.items()
    ]
    kept = [numpy_helper.from_array(v, k) for k, v in (weights or {}).items()]
    return helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name=o) for o in outputs], kept)


def several(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Any],
    outputs: Sequence[str],
    constant: Sequence[str] = (),
    **kinds: Any,
) -> Case:
    """A case of several nodes; `constant` names feeds that become weights."""
    given = {k: v for k, v in feeds.items() if k not in constant}
    graph = graph_of(nodes, given, outputs, {k: feeds[k] for k in constant})
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return Case(model, given, **kinds)


def parts(d: Drawer) -> tuple[dict[str, Any], onnx.NodeProto]:
    """Arrays that may differ in one size, and the node that makes the sequence `s` of them."""
    rest, dtype = d.shape(high=2, smallest=1), d.pick(f32, np.int64)
    same = d.bool()
    first = d.int(1, 3)
    feeds = {f"x{i}": d.any(first if same else d.int(0, 3), *rest, dtype=dtype) for i in range(d.int(1, 3))}
    return feeds, node("SequenceConstruct", list(feeds), ["s"])


def position(d: Drawer, count: int) -> np.ndarray:
    return np.array(d.int(-count, count - 1), d.pick(np.int32, np.int64))


@covers("sequence_construct")
def sequence_construct(d: Drawer) -> Case:
    feeds, make = parts(d)
    return several([make], feeds, ["s"])


@covers("sequence_empty")
def sequence_empty(d: Drawer) -> Case:
    dtype, number = d.pick((f32, 1), (np.int64, 7), (np.uint8, 2))
    x = d.any(*d.shape(), dtype=dtype)
    nodes = [node("SequenceEmpty", [], ["e"], dtype=number), node("SequenceInsert", ["e", "x"], ["s"])]
    return several(nodes, {"x": x}, ["s"])


@covers("sequence_at")
def sequence_at(d: Drawer) -> Case:
    feeds, make = parts(d)
    at = position(d, len(feeds))
    return several([make, node("SequenceAt", ["s", "p"], ["y"])], {**feeds, "p": at}, ["y"])


@covers("sequence_insert")
def sequence_insert(d: Drawer) -> Case:
    feeds, make = parts(d)
    at = position(d, len(feeds))
    names = ["s", "x0", "p"] if d.bool() else ["s", "x0"]
    return several([make, node("SequenceInsert", names, ["y"])], {**feeds, **({"p": at} if names[2:] else {})}, ["y"])


@covers("sequence_erase")
def sequence_erase(d: Drawer) -> Case:
    feeds, make = parts(d)
    at = position(d, len(feeds))
    names = ["s", "p"] if d.bool() else ["s"]
    return several([make, node("SequenceErase", names, ["y"])], {**feeds, **({"p": at} if names[1:] else {})}, ["y"])


@covers("sequence_length")
def sequence_length(d: Drawer) -> Case:
    feeds, make = parts(d)
    return several([make, node("SequenceLength", ["s"], ["n"])], feeds, ["n"])


@covers("split_to_sequence")
def split_to_sequence(d: Drawer) -> Case:
    shape = [*d.shape(low=1, high=3, smallest=1)]
    axis = d.axis(len(shape))
    kind = d.pick("ones", "size", "sizes")
    sizes = [d.int(0, 2) for _ in range(3)]
    if kind == "sizes":
        shape[axis] = sum(sizes)
    splits = {"ones": None, "size": np.array(d.int(1, 3)), "sizes": np.array(sizes)}[kind]
    attributes = {"axis": axis, "keepdims": d.int(0, 1) if kind == "ones" else None}
    inputs = {"x": d.any(*shape, dtype=d.pick(f32, np.int64)), "split": splits}
    return one("SplitToSequence", inputs, attributes, opset=11, constant=d.pick((), ("split",)))


@covers("concat_from_sequence")
def concat_from_sequence(d: Drawer) -> Case:
    feeds, make = parts(d)
    stack = len({v.shape for v in feeds.values()}) == 1 and d.bool()
    rank = next(iter(feeds.values())).ndim
    attributes = {"axis": d.int(-rank - 1, rank) if stack else d.pick(0, -rank), "new_axis": int(stack)}
    return several([make, node("ConcatFromSequence", ["s"], ["y"], **attributes)], feeds, ["y"])


@covers("sequence_map", no_oracle="onnxruntime keeps to the function body, which it inlines with other names")
def sequence_map(d: Drawer) -> Case:
    feeds, make = parts(d)
    like = next(iter(feeds.values()))
    body = graph_of([node("Add", ["a", "b"], ["c"])], {"a": None, "b": None}, ["c"])
    nodes = [make, node("SequenceMap", ["s", "k"], ["y"], body=body)]
    return several(nodes, {**feeds, "k": d.any(dtype=like.dtype.type)}, ["y"])


def optional_type(d: Drawer, x: np.ndarray) -> Any:
    return helper.make_tensor_type_proto(from_numpy(x.dtype).onnx, x.shape)


@covers("optional")
def optional(d: Drawer) -> Case:
    x = d.any(*d.shape(), dtype=d.pick(f32, np.int64))
    nodes = [node("Optional", ["x"], ["o"]), node("OptionalGetElement", ["o"], ["y"])]
    return several(nodes, {"x": x}, ["y"])


@covers("optional_none")
def optional_none(d: Drawer) -> Case:
    x = d.any(*d.shape(), dtype=f32)
    nodes = [node("Optional", [], ["o"], type=optional_type(d, x)), node("OptionalHasElement", ["o"], ["y"])]
    return several(nodes, {}, ["y"])


@covers("optional_get_element")
def optional_get_element(d: Drawer) -> Case:
    feeds, make = parts(d)
    nodes = [make, node("Optional", ["s"], ["o"]), node("OptionalGetElement", ["o"], ["y"])]
    return several(nodes, feeds, ["y"])


@covers("optional_has_element")
def optional_has_element(d: Drawer) -> Case:
    x = d.any(*d.shape(), dtype=d.pick(f32, np.int64))
    nodes = [node("Optional", ["x"], ["o"]), node("OptionalHasElement", ["o"], ["y"])]
    return several(nodes, {"x": x}, ["y"])


@covers("copy")
def copy(d: Drawer) -> Case:
    """A sequence that is an output twice."""
    feeds, make = parts(d)
    return several([make, node("Identity", ["s"], ["t"])], feeds, ["s", "t"])


@covers("if")
def if_(d: Drawer) -> Case:
    """Branches that read from around them; of equal, broadcast or different ranks."""
    x, shape = d.normal(2, 3), d.pick((2, 3), (1, 3), (3,), (4, 2, 3))
    then = graph_of([node("Add", ["x", "x"], ["t"])], {}, ["t"])
    other = graph_of([node("Mul", ["y", "y"], ["e"])], {}, ["e"])
    feeds = {"c": np.array(d.bool()), "x": x, "y": d.normal(*shape)}
    return several([node("If", ["c"], ["z"], then_branch=then, else_branch=other)], feeds, ["z"])


@covers(
    "fail", no_symbols="with symbols the branch may be right", no_oracle="onnxruntime refuses the branch as a whole"
)
def fail(d: Drawer) -> Case:
    """A branch that no input of these shapes can take."""
    x = d.normal(2, d.int(2, 4))
    then = graph_of([node("Add", ["x", "x"], ["t"])], {}, ["t"])
    other = graph_of([node("MatMul", ["x", "y"], ["e"])], {}, ["e"])
    feeds = {"c": np.array(True), "x": x, "y": d.normal(x.shape[1] + 1, 3)}
    return several([node("If", ["c"], ["z"], then_branch=then, else_branch=other)], feeds, ["z"])


@covers("loop")
def loop(d: Drawer) -> Case:
    """A carried value and a scanned one; perhaps no round at all, perhaps an early end."""
    shape = d.shape(high=2, smallest=1)
    limit = d.normal(dtype=f32) if d.bool() else f32(1e9)
    nodes = [
        node("Add", ["v", "x"], ["next"]),
        node("ReduceMax", ["next"], ["top"], keepdims=0),
        node("Less", ["top", "limit"], ["go"]),
        node("Mul", ["next", "next"], ["scanned"]),
    ]
    body = graph_of(nodes, {"i": np.array(0), "c": np.array(True), "v": None}, ["go", "next", "scanned"])
    feeds = {
        "n": np.array(d.int(0, 4)), "start": np.array(d.pick(True, True, False)), "x": d.normal(*shape),
        "limit": np.array(limit, f32),
    }  # fmt: skip
    runs = bool(feeds["start"]) and feeds["n"] > 0
    reason = "" if runs else "without a round onnxruntime stacks nothing to the shape [0]"
    made = [node("Loop", ["n", "start", "x"], ["last", "all"], body=body)]
    return several(made, feeds, ["last", "all"], d.pick((), ("n",)), no_oracle=reason)


@covers("loop")
def counted_loop(d: Drawer) -> Case:
    """Of a known length, which the native backend unrolls."""
    shape = d.shape(high=2, smallest=1)
    nodes = [node("Identity", ["c"], ["go"]), node("Add", ["v", "x"], ["next"]), node("Mul", ["v", "v"], ["squares"])]
    ports = {"i": np.array(0), "c": np.array(True), "v": np.zeros(shape, f32)}
    body = graph_of(nodes, ports, ["go", "next", "squares"])
    feeds = {"n": np.array(d.int(1, 4)), "x": d.normal(*shape)}
    made = [node("Loop", ["n", "", "x"], ["last", "all"], body=body)]
    return several(made, feeds, ["last", "all"], ["n"])


@covers("scan")
def scan(d: Drawer) -> Case:
    steps, width = d.int(1, 4), d.int(1, 3)
    axis = d.int(0, 1)
    body = graph_of(
        [node("Add", ["h", "x"], ["g"]), node("Identity", ["g"], ["y"])],
        {"h": np.zeros(width, f32), "x": np.zeros(width, f32)},
        ["g", "y"],
    )
    feeds = {"h0": d.normal(width), "xs": d.normal(*((steps, width) if axis == 0 else (width, steps)))}
    attributes = {
        "num_scan_inputs": 1, "scan_input_axes": [axis], "scan_output_axes": [d.int(-2, 1)],
        "scan_input_directions": [d.int(0, 1)], "scan_output_directions": [d.int(0, 1)],
    }  # fmt: skip
    return several([node("Scan", ["h0", "xs"], ["h", "ys"], body=body, **attributes)], feeds, ["h", "ys"])


@covers("string_concat")
def string_concat(d: Drawer) -> Case:
    shape = d.shape()
    a, b = d.strings(*shape), d.strings(*d.broadcast(shape))
    return one("StringConcat", {"a": a, "b": b}, opset=20)


@covers("string_split")
def string_split(d: Drawer) -> Case:
    attributes = {"delimiter": d.pick(None, "", " ", "b"), "maxsplit": d.pick(None, 1, 2)}
    x = d.strings(*d.shape(smallest=1))
    empty = bool(attributes["delimiter"]) and (np.asarray(x) == "").any()
    reason = (
        "onnxruntime finds no substring in an empty string, Python and the specification's reference one"
        if empty
        else ""
    )
    return one("StringSplit", {"x": x}, attributes, outputs=2, opset=20, no_oracle=reason)


@covers("string_normalize")
def string_normalize(d: Drawer) -> Case:
    x = d.strings(*d.pick((d.int(1, 5),), (1, d.int(1, 5))))
    x[x == "é"] = "e"  # what upper case is depends on the locales that onnxruntime finds
    attributes = {
        "case_change_action": d.pick("NONE", "LOWER", "UPPER"), "is_case_sensitive": d.int(0, 1), "locale": "C",
        "stopwords": d.pick(None, ["a"], ["A b", "42"]),
    }  # fmt: skip
    return one("StringNormalizer", {"x": x}, attributes, opset=10)


@covers("regex_full_match")
def regex_full_match(d: Drawer) -> Case:
    pattern = d.pick("[a-z]+", "a|b", r"\d*", "(a b)?.*", "é")
    return one("RegexFullMatch", {"x": d.strings(*d.shape(low=1, smallest=1))}, {"pattern": pattern}, opset=20)


@covers("tfidf")
def tfidf(d: Drawer) -> Case:
    shortest = d.int(1, 2)
    longest = d.int(shortest, 2)
    pool = [2, 3, 5, 2, 3, 5, 4]
    attributes: dict[str, Any] = {
        "mode": d.pick("TF", "IDF", "TFIDF"), "min_gram_length": shortest, "max_gram_length": longest,
        "max_skip_count": d.int(0, 2), "ngram_counts": [0, 3], "ngram_indexes": [0, 1, 2, 3, 4],
        "weights": [1.0, 2.0, 0.5, 1.5, 3.0],
    }  # fmt: skip
    shape = d.pick((d.int(1, 7),), (d.int(1, 2), d.int(1, 7)))
    if d.bool():
        x = d.integers(*shape, low=2, high=5, dtype=d.pick(np.int32, np.int64))
        return one("TfIdfVectorizer", {"x": x}, attributes | {"pool_int64s": pool}, opset=9)
    words = np.array([str(v) for v in d.integers(int(np.prod(shape)), low=2, high=5)], object).reshape(shape)
    return one("TfIdfVectorizer", {"x": words}, attributes | {"pool_strings": [str(p) for p in pool]}, opset=9)
