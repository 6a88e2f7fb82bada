"""Classic machine learning: trees, support vectors, tables, maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.ops.test_ml_tree import forest
from tests.properties.case import Case
from tests.properties.draw import ML, Drawer, covers, one

f32, f64 = np.float32, np.float64


@covers("tree_ensemble")
def trees(d: Drawer) -> Case:
    targets, features = d.int(1, 3), d.int(1, 5)
    nodes, weights = forest(
        d.int(1, 4), d.int(1, 4), features, range(targets),
        d.pick(("BRANCH_LEQ",), ("BRANCH_LT",), ("BRANCH_LEQ", "BRANCH_GT", "BRANCH_EQ")), d.int(0, 99), every=True,
    )  # fmt: skip
    mixed = len(set(nodes["nodes_modes"])) > 2
    x = np.round(d.normal(d.int(1, 9), features), 1)
    attributes = nodes | {f"target_{k}": v for k, v in weights.items()}
    attributes |= {"n_targets": targets, "aggregate_function": d.pick("SUM", "AVERAGE", "MIN", "MAX")}
    reason = "onnxruntime walks mixed modes by the first node's" if mixed else ""
    return one("TreeEnsembleRegressor", {"x": x}, attributes, opset=3, domain=ML, no_oracle=reason)


@covers("svm_kernel")
def support_vectors(d: Drawer) -> Case:
    kind, features, count = d.pick("LINEAR", "POLY", "RBF", "SIGMOID"), d.int(1, 4), d.int(1, 5)
    attributes = {
        "kernel_type": kind, "kernel_params": [0.3, 0.5, 2.0], "n_supports": count, "rho": [0.25],
        "support_vectors": d.normal(count * features).tolist(), "coefficients": d.normal(count).tolist(),
    }  # fmt: skip
    x = d.normal(d.int(1, 5), features)
    return one("SVMRegressor", {"x": x}, attributes, opset=1, domain=ML, rtol=1e-3, atol=1e-4)


@covers("pairwise_probability")
def probabilities(d: Drawer) -> Case:
    classes, features, each = d.int(2, 4), d.int(1, 3), d.int(1, 2)
    count, pairs = classes * each, classes * (classes - 1) // 2
    attributes = {
        "kernel_type": "RBF", "kernel_params": [0.3, 0.0, 0.0], "vectors_per_class": [each] * classes,
        "classlabels_ints": list(range(classes)), "support_vectors": d.normal(count * features).tolist(),
        "coefficients": d.normal((classes - 1) * count).tolist(), "rho": d.normal(pairs).tolist(),
        "prob_a": (-d.uniform(pairs)).tolist(), "prob_b": d.normal(pairs).tolist(),
    }  # fmt: skip
    x = d.normal(d.int(1, 4), features)
    return one("SVMClassifier", {"x": x}, attributes, outputs=2, opset=1, domain=ML, rtol=1e-2, atol=1e-3)


@covers("lookup")
def labels(d: Drawer) -> Case:
    tables: dict[str, Any] = {"strings": ["a", "be", "42"], "int64s": [4, 5, 6], "floats": [0.5, 1.5, 2.0]}
    keys, values = d.pick(*tables), d.pick(*tables)
    shape = d.shape(low=1)
    pool = {"strings": ["a", "be", "?"], "int64s": [4, 6, 9], "floats": [0.5, 2.0, 7.0]}[keys]
    dtype = {"strings": object, "int64s": np.int64, "floats": f32}[keys]
    x = np.array(pool, dtype)[d.rng.integers(0, 3, shape)]
    default = {"strings": "none", "int64s": 42, "floats": 1.5}[values]
    attributes = {
        f"keys_{keys}": tables[keys], f"values_{values}": tables[values],
        f"default_{values.removesuffix('s')}": default if d.bool() else None,
    }  # fmt: skip
    return one("LabelEncoder", {"x": np.asarray(x).reshape(shape)}, attributes, opset=4, domain=ML)


@covers("lookup")
def typed_labels(d: Drawer) -> Case:
    attributes = {
        "keys_tensor": numpy_helper.from_array(np.array([1.5, 2.5])),
        "values_tensor": numpy_helper.from_array(np.array([7, 8], np.int16)),
        "default_tensor": numpy_helper.from_array(np.array([-3], np.int16)),
    }
    x = np.array([1.5, 2.5, 0.0])[d.rng.integers(0, 3, d.shape(low=1))]
    return one("LabelEncoder", {"x": x}, attributes, opset=4, domain=ML, no_oracle="no such types in onnxruntime")


@covers("zip_map")
def zip_map(d: Drawer) -> Case:
    classes = d.int(1, 4)
    attributes: dict[str, Any] = {"classlabels_int64s": list(range(3, 3 + classes))}
    if d.bool():
        attributes = {"classlabels_strings": ["a", "b", "c", "d"][:classes]}
    return one("ZipMap", {"x": d.normal(d.int(1, 3), classes)}, attributes, opset=1, domain=ML)


def map_case(
    op_type: str, key: int, keys: Any, values: Any, dtype: type, attributes: dict[str, Any], **kinds: Any
) -> Case:
    """A node that takes one map from `keys` to `values` (of `dtype`)."""
    made = helper.make_node(op_type, ["m"], ["y"], "n", domain=ML, **attributes)
    port = onnx.ValueInfoProto(name="m")
    port.type.map_type.key_type = key
    port.type.map_type.value_type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph([made], "g", [port], [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return Case(model, {"m": dict(zip(keys, values, strict=True))}, **kinds)


@covers("map_to_tensor")
def dict_vectorizer(d: Drawer) -> Case:
    names = ["a", "b", "c", "d"]
    chosen = [n for n in names if d.bool()] or ["b"]
    values = [float(v) for v in d.normal(len(chosen))]
    return map_case("DictVectorizer", 8, chosen, values, f32, {"string_vocabulary": names})


@covers("map_to_tensor")
def cast_map(d: Drawer) -> Case:
    size = d.int(3, 6)
    keys = sorted({d.int(0, size - 1) for _ in range(3)})
    attributes = {"cast_to": d.pick("TO_FLOAT", "TO_INT64"), "map_form": "SPARSE", "max_map": size}
    if d.bool():
        attributes = {"cast_to": attributes["cast_to"], "map_form": "DENSE"}
    return map_case("CastMap", 7, keys, [float(v) for v in d.integers(len(keys))], f32, attributes)
