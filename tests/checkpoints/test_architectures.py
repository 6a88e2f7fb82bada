"""Every architecture against what PyTorch computes from the same weights (references.json, make_references.py)."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from edgerun.errors import ImportFailure, UnsupportedError
from edgerun.session import from_graph, load_graph
from edgerun_converters.checkpoints.load import unwrapped
from tests.checkpoints.seeded import image, token_ids, weight

REFERENCES = json.loads(Path(__file__).with_name("references.json").read_text())
DECODERS = [name for name, row in REFERENCES.items() if "tokens" in row["inputs"]]


def write(folder, name, change=None):
    """The checkpoint `name` as a folder (with config.json) or a file; `change` edits the tensors before."""
    row = REFERENCES[name]
    tensors = {k: weight(k, tuple(shape)) for k, shape in row["tensors"].items()}
    if change is not None:
        change(tensors)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    if row["config"] is None:
        return folder / "model.safetensors"
    (folder / "config.json").write_text(json.dumps(row["config"]))
    return folder


def inputs_of(name):
    shapes = REFERENCES[name]["inputs"]
    if "image" in shapes:
        return {"image": image(*shapes["image"])}
    ids = token_ids(97, *shapes["input_ids"])
    mask = np.ones_like(ids)
    mask[1, 5:] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", [n for n in REFERENCES if n not in DECODERS])
def test_equals_pytorch(tmp_path, name, backend):
    feeds = inputs_of(name)
    path = write(tmp_path, name)
    feeds = {k: v for k, v in feeds.items() if k in load_graph(path, optimize=False).inputs}
    graph = load_graph(path, shapes={k: v.shape for k, v in feeds.items()}, optimize=backend == "native")
    found = from_graph(graph, backend).run(feeds)
    for key, values in REFERENCES[name]["outputs"].items():
        expected = np.array(values)
        actual = found[key][:, 0] if key == "last_hidden" else found[key]
        np.testing.assert_allclose(actual.reshape(-1), expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("backend", ["numpy", "native"])
@pytest.mark.parametrize("name", DECODERS)
def test_decoders_equal_pytorch_in_chunks_and_token_by_token(tmp_path, name, backend):
    graph = load_graph(write(tmp_path, name), optimize=backend == "native", context=16)
    tokens = token_ids(97, 9)
    session = from_graph(graph, backend)
    first = session.run({"tokens": tokens[:6], "position": np.array([0])})["logits"]
    session.run({"tokens": tokens[6:8], "position": np.array([6])})
    last = session.run({"tokens": tokens[8:], "position": np.array([8])})["logits"]
    for found, key in ((first, "first"), (last, "logits")):
        expected = np.array(REFERENCES[name]["outputs"][key])
        np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-4 * np.abs(expected).max())


def test_misfits_are_listed_together(tmp_path):
    def damage(tensors):
        del tensors["layer2.0.conv1.weight"]
        tensors["layer1.0.bn1.bias"] = np.zeros(3, np.float32)
        tensors["extra.weight"] = np.zeros((2, 2), np.float32)
        tensors["layer3.1.bn2.weight"] = np.zeros(256, np.int32)

    with pytest.raises(ImportFailure) as caught:
        load_graph(write(tmp_path, "resnet18", damage))
    text = "\n".join(caught.value.problems)
    assert "'layer2.0.conv1.weight' of shape [128, 64, " in text
    assert "'layer1.0.bn1.bias' has the shape [3] instead of [64]" in text
    assert "'extra.weight' of shape [2, 2] is not used" in text
    assert "'layer3.1.bn2.weight' is int32" in text


def test_a_misspelt_tensor_names_the_missing_one(tmp_path):
    def damage(tensors):
        tensors["encoder.layer.0.output.dense.wieght"] = tensors.pop("encoder.layer.0.output.dense.weight")

    with pytest.raises(ImportFailure, match=r"not used; is it the missing 'encoder.layer.0.output.dense.weight'"):
        load_graph(write(tmp_path, "bert", damage))


@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "vocab_size"])
@pytest.mark.parametrize("value", ["x", 0, -1, True, None, 1.5, []])
def test_a_hostile_configuration_is_refused(tmp_path, key, value):
    path = write(tmp_path, "bert")
    config = {**REFERENCES["bert"]["config"], key: value}
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ImportFailure, match=key):
        load_graph(path)


def test_unknown_architectures_are_named_with_those_known(tmp_path):
    path = write(tmp_path, "bert")
    (path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(UnsupportedError, match=r"'mamba' .* bert"):
        load_graph(path)
    safetensors.numpy.save_file({"w": np.zeros(3, np.float32)}, tmp_path / "x.safetensors")
    (tmp_path / "config.json").unlink()
    with pytest.raises(UnsupportedError, match=r"tensors like 'w'.*resnet"):
        load_graph(tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("llama", {"num_hidden_layers": 1 << 40}),
        ("llama", {"hidden_size": 1 << 40}),
        ("llama", {"head_dim": 1 << 30}),
        ("llama", {"vocab_size": 1 << 40}),
        ("llama", {"num_key_value_heads": 3}),
        ("llama", {"rope_parameters": {"rope_type": "yarn"}}),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 0}}),
        ("llama", {"rope_parameters": {"rope_theta": "x"}}),
        ("llama", {"rope_parameters": 5}),
        ("mistral", {"sliding_window": -4}),
        ("gpt2", {"n_inner": 7}),
        ("bert", {"num_hidden_layers": 1 << 40}),
        ("vit", {"image_size": 1 << 40}),
    ],
)
def test_configurations_that_do_not_fit_are_refused_quickly(tmp_path, name, change):
    path = write(tmp_path, name)
    (path / "config.json").write_text(json.dumps({**REFERENCES[name]["config"], **change}))
    with pytest.raises((ImportFailure, UnsupportedError)):
        load_graph(path)


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 5000, "\xff"])
def test_a_broken_config_is_refused(tmp_path, text):
    path = write(tmp_path, "distilbert")
    (path / "config.json").write_text(text)
    with pytest.raises((ImportFailure, UnsupportedError)):
        load_graph(path)


def test_sentence_transformers_get_their_pooling(tmp_path):
    path = write(tmp_path, "bert")
    (path / "1_Pooling").mkdir()
    (path / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    feeds = inputs_of("bert")
    found = from_graph(load_graph(path), "numpy").run(feeds)
    weights = feeds["attention_mask"][..., None]
    mean = (found["last_hidden"] * weights).sum(1) / weights.sum(1)
    expected = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    np.testing.assert_allclose(found["sentence_embedding"], expected, atol=1e-6)
    (path / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    with pytest.raises(ImportFailure, match="mean over tokens"):
        load_graph(path)


def test_what_trainers_wrap_around_a_state_dict_is_removed():
    a = np.zeros(1)
    assert set(unwrapped({"module.a": a, "module.b": a})) == {"a", "b"}
    assert set(unwrapped({"state_dict.model.a": a, "state_dict.model.b": a, "epoch.x": a})) == {"a", "b"}
    assert set(unwrapped({"model.a": a, "optimizer.state.0": a})) == {"a"}
    assert set(unwrapped({"model.a": a, "head.b": a})) == {"model.a", "head.b"}
