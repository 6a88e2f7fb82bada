"""Scalers, encoders and maps of ai.onnx.ml against onnxruntime and hand values."""

import numpy as np
import pytest

from edgerun.backends.numpy.ml_features import map_to_tensor, zip_map
from edgerun.dtypes import DType
from edgerun.errors import EdgerunError
from edgerun_converters.onnx.builder import find
from tests.ops.single_node import NodeCase

f32 = np.float32
ML = "ai.onnx.ml"


def node(op_type, inputs, opset=1, outputs=1, **attributes):
    return NodeCase(op_type, inputs, attributes, outputs=outputs, opset=opset, domain=ML)


def strings(values):
    return np.array(values, dtype=object)


X = np.array([[1, -2, 3], [0, 0, 0], [-5, -1, -4], [0.5, 2, np.nan]], f32)


@pytest.mark.parametrize("dtype", [f32, np.int64])
def test_scaler(dtype):
    node("Scaler", {"x": X[:3].astype(dtype)}, offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 1.0]).check()


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm):
    node("Normalizer", {"x": np.abs(X[:3])}, norm=norm).check()
    (y,) = node("Normalizer", {"x": X[:3]}, norm=norm).edgerun()
    scale = {"MAX": X[:3].max(1), "L1": np.abs(X[:3]).sum(1), "L2": np.sqrt((X[:3] ** 2).sum(1))}[norm]
    scale[scale == 0] = 1
    np.testing.assert_allclose(y, X[:3] / scale[:, None], rtol=1e-6)


def test_binarizer():
    node("Binarizer", {"x": X[:3]}, threshold=0.5).check()


@pytest.mark.parametrize("values", [[7.0], [7.0, 8.0, 9.0]], ids=["one", "each"])
@pytest.mark.parametrize("replaced", [0.0, float("nan")], ids=["zero", "nan"])
def test_imputer(values, replaced):
    node("Imputer", {"x": X}, imputed_value_floats=values, replaced_value_float=replaced).check()


def test_imputer_of_integers():
    x = X[:3].astype(np.int64)
    node("Imputer", {"x": x}, imputed_value_int64s=[4], replaced_value_int64=-1).check()


def test_feature_vectorizer():
    y = np.arange(8, dtype=f32).reshape(4, 2)
    node("FeatureVectorizer", {"x": X, "y": y}, inputdimensions=[3, 2]).check()


@pytest.mark.parametrize("shape", [(4, 3), (2, 2, 3), (3,)])
def test_array_feature_extractor(shape):
    x = np.arange(np.prod(shape), dtype=f32).reshape(shape)
    node("ArrayFeatureExtractor", {"x": x, "i": np.array([2, 0, 2])}).check()


def test_one_hot_encoder():
    node("OneHotEncoder", {"x": np.array([[1, 5], [7, 2]])}, cats_int64s=[5, 7, 1]).check()
    node("OneHotEncoder", {"x": strings(["b", "z"])}, cats_strings=["a", "b"]).check()
    with pytest.raises(EdgerunError, match="no entry"):
        node("OneHotEncoder", {"x": strings(["z"])}, cats_strings=["a", "b"], zeros=0).edgerun()


@pytest.mark.parametrize("keys", ["strings", "int64s", "floats"])
@pytest.mark.parametrize("values", ["strings", "int64s", "floats"])
def test_label_encoder(keys, values):
    tables = {"strings": ["a", "b", "c"], "int64s": [4, 5, 6], "floats": [0.5, float("nan"), 2.0]}
    inputs = {"strings": strings(["b", "?"]), "int64s": np.array([6, 1]), "floats": np.array([np.nan, 9], f32)}
    attributes = {f"keys_{keys}": tables[keys], f"values_{values}": tables[values]}
    node("LabelEncoder", {"x": inputs[keys]}, opset=4, **attributes).check()
    default = {"strings": "none", "int64s": 42, "floats": 1.5}[values]
    name = {"strings": "default_string", "int64s": "default_int64", "floats": "default_float"}[values]
    node("LabelEncoder", {"x": inputs[keys]}, opset=4, **attributes, **{name: default}).check()


def test_label_encoder_with_tensors():
    from onnx import numpy_helper

    attributes = {
        "keys_tensor": numpy_helper.from_array(np.array([1.5, 2.5])),
        "values_tensor": numpy_helper.from_array(np.array([7, 8], np.int16)),
        "default_tensor": numpy_helper.from_array(np.array([-3], np.int16)),
    }
    (y,) = node("LabelEncoder", {"x": np.array([2.5, 0, 1.5])}, opset=4, **attributes).edgerun()
    np.testing.assert_array_equal(y, np.array([8, -3, 7], np.int16))


def test_first_label_encoder_and_category_mapper():
    x, numbers = strings(["b", "?", "a"]), np.array([1, 7, 0])
    for given in (x, numbers):
        node("LabelEncoder", {"x": given}, classes_strings=["a", "b"]).check()
        node("CategoryMapper", {"x": given}, cats_strings=["a", "b"], cats_int64s=[7, 1]).check()


def test_maps():
    maps = zip_map(np.array([[0.5, 1], [2, 3]], f32), strings(["no", "yes"]))
    assert maps == [{"no": 0.5, "yes": 1.0}, {"no": 2.0, "yes": 3.0}]
    y = map_to_tensor({"b": 2.0, "z": 5.0}, strings(["a", "b"]), dtype=DType.F32)
    np.testing.assert_array_equal(y, np.array([[0, 2]], f32))
    np.testing.assert_array_equal(map_to_tensor({3: 1.5, 1: 0.5}, dtype=DType.F32), np.array([[0.5, 1.5]], f32))
    np.testing.assert_array_equal(map_to_tensor({3: 1.5}, dtype=DType.I64, size=5), np.array([[0, 0, 0, 1, 0]]))
    with pytest.raises(EdgerunError, match="outside"):
        map_to_tensor({9: 1.0}, dtype=DType.F32, size=5)


def test_zip_map_gives_a_sequence_of_maps():
    graph = node("ZipMap", {"x": np.ones((2, 3), f32)}, classlabels_int64s=[1, 2, 3])
    assert graph.edgerun()[0] == [{1: 1.0, 2: 1.0, 3: 1.0}] * 2


def test_every_operator_has_a_lowering():
    names = ["CastMap", "DictVectorizer", "ZipMap", "TreeEnsemble", "SVMClassifier", "LinearClassifier", "Imputer"]
    assert all(find(ML, name) for name in names)
