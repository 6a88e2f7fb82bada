"""Scalers, encoders and maps of ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgerun.dtypes import DType
from edgerun.errors import UnsupportedError
from edgerun_converters.onnx.builder import Builder, OnnxNode, lowering
from edgerun_converters.onnx.scores import rows_of_floats

ML = "ai.onnx.ml"


@lowering("Scaler", domain=ML)
def scaler(b: Builder, n: OnnxNode) -> None:
    x = b.cast(n.input(0), DType.F32)
    offset, scale = (np.array(n.attr(k, ()), np.float32) for k in ("offset", "scale"))
    y = b.scalar("sub", x, b.const(offset)) if offset.size else x
    n.bind(b.scalar("mul", y, b.const(scale)) if scale.size else y)


@lowering("Normalizer", domain=ML)
def normalizer(b: Builder, n: OnnxNode) -> None:
    """A row whose norm is zero stays as it is. MAX divides by the largest element, without taking magnitudes."""
    x = b.cast(n.input(0), DType.F32)
    kind = str(n.attr("norm", "MAX"))
    reductions = {"MAX": "max", "L1": "l1", "L2": "l2"}
    if kind not in reductions:
        raise UnsupportedError(f"there is no norm {kind!r}")
    norm = b.one("reduce", [x], kind=reductions[kind], over=(b.rank(x) - 1,))
    zero = b.scalar("eq", norm, b.fill(norm, 0))
    n.bind(b.scalar("div", x, b.scalar("where", zero, b.fill(norm, 1), norm)))


@lowering("Binarizer", domain=ML)
def binarizer(b: Builder, n: OnnxNode) -> None:
    x = n.input(0)
    above = b.scalar("gt", x, b.fill(x, float(n.attr("threshold", 0.0))))
    n.bind(b.cast(above, b.dtype(x)))


@lowering("Imputer", domain=ML)
def imputer(b: Builder, n: OnnxNode) -> None:
    x = n.input(0)
    if b.dtype(x).is_float:
        values, replaced = n.attr("imputed_value_floats", ()), float(n.attr("replaced_value_float", 0.0))
    else:
        values, replaced = n.attr("imputed_value_int64s", ()), int(n.attr("replaced_value_int64", 0))
    if not values:
        raise UnsupportedError("Imputer has no values of the input's kind")
    wrong = b.scalar("is_nan", x) if replaced != replaced else b.scalar("eq", x, b.fill(x, replaced))
    n.bind(b.scalar("where", wrong, b.const(np.array(values), b.dtype(x)), x))


@lowering("FeatureVectorizer", domain=ML)
def feature_vectorizer(b: Builder, n: OnnxNode) -> None:
    columns = [b.cast(rows_of_floats(b, x), DType.F32) for x in n.inputs if x]
    sizes = [int(s) for s in n.attr("inputdimensions", ())]
    for k, size in enumerate(sizes[: len(columns)]):
        given = b.shape(columns[k])[1]
        if isinstance(given, int) and given != size:
            raise UnsupportedError(f"input {k} of FeatureVectorizer has {given} columns, not {size}")
    n.bind(columns[0] if len(columns) == 1 else b.one("concat", columns, axis=1))


@lowering("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(b: Builder, n: OnnxNode) -> None:
    x, indices = n.input(0), n.input(1)
    if b.rank(x) == 1:
        x = b.reshape(x, (1, *b.shape(x)))
    if b.rank(indices) != 1:
        count: Any = 1
        for d in b.shape(indices):
            count = count * d
        indices = b.reshape(indices, (count,))
    n.bind(b.one("gather", [x, indices], axis=b.rank(x) - 1))


@lowering("OneHotEncoder", domain=ML)
def one_hot_encoder(b: Builder, n: OnnxNode) -> None:
    """A row of zeros for an unknown category; with zeros = 0 it is an error."""
    x = n.input(0)
    strings, numbers = n.attr("cats_strings", ()), n.attr("cats_int64s", ())
    keys = np.array(strings, dtype=object) if strings else np.array(numbers, np.int64)
    if not keys.size or (b.dtype(x) is DType.STRING) != bool(strings):
        raise UnsupportedError("OneHotEncoder has no categories of the input's kind")
    if b.dtype(x) is not DType.STRING:
        x = b.cast(x, DType.I64)
    default = b.const(-1, DType.I64) if n.attr("zeros", 1) else ""
    found = b.one("lookup", [x, b.const(keys), b.const(np.arange(keys.size)), default])
    hot = b.scalar("eq", b.reshape(found, (*b.shape(found), 1)), b.const(np.arange(keys.size)))
    n.bind(b.cast(hot, DType.F32))


@lowering("LabelEncoder", domain=ML)
def label_encoder(b: Builder, n: OnnxNode) -> None:
    x = n.input(0)
    if n.opset < 2:
        strings = np.array(n.attr("classes_strings"), dtype=object)
        numbers = np.arange(len(strings))
        _between(b, n, x, strings, numbers)
        return
    keys, values = _column(n, "keys"), _column(n, "values")
    if keys.dtype != object:
        keys = keys.astype(b.dtype(x).numpy)
    tensor = n.attr("default_tensor", None)
    if tensor is not None:
        default = np.asarray(tensor).reshape(()).astype(values.dtype)
    elif values.dtype == object:
        default = np.array(n.attr("default_string", "_Unused"), dtype=object)
    elif values.dtype.kind == "f":
        default = np.array(n.attr("default_float", -0.0), values.dtype)
    else:
        default = np.array(n.attr("default_int64", -1), values.dtype)
    n.bind(b.one("lookup", [x, b.const(keys), b.const(values), b.const(default)]))


def _column(n: OnnxNode, name: str) -> np.ndarray:
    tensor = n.attr(f"{name}_tensor", None)
    if tensor is not None:
        return np.asarray(tensor).ravel()
    for ending, dtype in (("strings", object), ("int64s", np.int64), ("floats", np.float32)):
        if n.attr(f"{name}_{ending}", ()):
            return np.array(n.attr(f"{name}_{ending}"), dtype=dtype)
    raise UnsupportedError(f"LabelEncoder has no {name}")


@lowering("CategoryMapper", domain=ML)
def category_mapper(b: Builder, n: OnnxNode) -> None:
    numbers = np.array(n.attr("cats_int64s"), np.int64)
    _between(b, n, n.input(0), np.array(n.attr("cats_strings"), dtype=object), numbers)


def _between(b: Builder, n: OnnxNode, x: str, strings: np.ndarray, numbers: np.ndarray) -> None:
    """Strings to numbers or back, whichever x holds."""
    if b.dtype(x) is DType.STRING:
        keys, values = strings, numbers
        default = np.array(n.attr("default_int64", -1), np.int64)
    else:
        keys, values = numbers, strings
        default = np.array(n.attr("default_string", "_Unused"), dtype=object)
    n.bind(b.one("lookup", [x, b.const(keys), b.const(values), b.const(default)]))


@lowering("ZipMap", domain=ML)
def zip_map(b: Builder, n: OnnxNode) -> None:
    strings, numbers = n.attr("classlabels_strings", ()), n.attr("classlabels_int64s", ())
    labels = np.array(strings, dtype=object) if strings else np.array(numbers, np.int64)
    n.bind(b.one("zip_map", [n.input(0), b.const(labels)]))


@lowering("DictVectorizer", domain=ML)
def dict_vectorizer(b: Builder, n: OnnxNode) -> None:
    strings, numbers = n.attr("string_vocabulary", ()), n.attr("int64_vocabulary", ())
    keys = np.array(strings, dtype=object) if strings else np.array(numbers, np.int64)
    n.bind(b.one("map_to_tensor", [n.input(0), b.const(keys)], dtype=b.dtype(n.input(0))))


@lowering("CastMap", domain=ML)
def cast_map(b: Builder, n: OnnxNode) -> None:
    types = {"TO_FLOAT": DType.F32, "TO_STRING": DType.STRING, "TO_INT64": DType.I64}
    target, form = str(n.attr("cast_to", "TO_FLOAT")), str(n.attr("map_form", "DENSE"))
    if target not in types or form not in ("DENSE", "SPARSE"):
        raise UnsupportedError(f"CastMap of the form {form!r} to {target!r}")
    size = int(n.attr("max_map", 1)) if form == "SPARSE" else None
    n.bind(b.one("map_to_tensor", [n.input(0)], dtype=types[target], size=size))
