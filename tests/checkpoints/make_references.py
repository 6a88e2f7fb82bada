"""Writes references.json: what PyTorch computes from checkpoints with seeded weights (seeded.py).

    python tests/checkpoints/make_references.py      (needs torch, torchvision, timm, transformers)

Each entry: `config` (config.json, or null for a bare state dict), `tensors` (name: shape), `inputs`, `outputs`.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors.numpy
import timm
import torch
import torchvision
import transformers

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from seeded import image, token_ids, weight  # noqa: E402

models = torchvision.models
SIZE = 32
IMAGES = {
    "resnet18": lambda: models.resnet18(num_classes=10),
    "resnext": lambda: models.ResNet(models.resnet.Bottleneck, [1, 2, 1, 1], 10, groups=8, width_per_group=4),
    "mobilenet_v2": lambda: models.mobilenet_v2(num_classes=10),
    "mobilenet_v3_small": lambda: models.mobilenet_v3_small(num_classes=10),
    "mobilenet_v3_large": lambda: models.mobilenet_v3_large(num_classes=10),
    "timm_resnet26": lambda: timm.create_model("resnet26", num_classes=10),
    "timm_mobilenet_v2": lambda: timm.create_model("mobilenetv2_050", num_classes=10),
    "timm_mobilenet_v3_small": lambda: timm.create_model("mobilenetv3_small_050", num_classes=10),
    "timm_vit": lambda: timm.create_model("vit_tiny_patch16_224", img_size=SIZE, depth=2, num_classes=10),
    "timm_deit": lambda: timm.create_model("deit_tiny_distilled_patch16_224", img_size=SIZE, depth=2, num_classes=10),
}
SMALL = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 80}
TEXT = {**SMALL, "vocab_size": 97, "max_position_embeddings": 32}
DISTIL = {"dim": 48, "n_layers": 2, "n_heads": 4, "hidden_dim": 80, "vocab_size": 97, "max_position_embeddings": 32}


def fill(model):
    """The model with seeded weights in place of its own, and name: shape.

    Transformers' own names differ from those in its files; the latter count.
    """
    if isinstance(model, transformers.PreTrainedModel):
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            path = Path(folder) / "model.safetensors"
            tensors = {k: weight(k, v.shape) for k, v in safetensors.numpy.load_file(path).items()}
            safetensors.numpy.save_file(tensors, path, {"format": "pt"})
            filled = type(model).from_pretrained(folder).eval()
            return filled, {k: list(v.shape) for k, v in tensors.items()}
    state = model.state_dict()
    for name, tensor in state.items():
        tensor.copy_(torch.from_numpy(weight(name, tuple(tensor.shape))))
    model.load_state_dict(state)
    return model.eval(), {name: list(tensor.shape) for name, tensor in state.items()}


def numbers(tensor):
    return [float(f"{v:.7g}") for v in tensor.detach().numpy().reshape(-1)]


def entry(model, inputs, outputs, config=None):
    model, shapes = fill(model)
    with torch.no_grad():
        found = outputs(model)
    return {"config": config, "tensors": shapes, "inputs": inputs, "outputs": {k: numbers(v) for k, v in found.items()}}


def of_image(model, config=None, size=SIZE):
    x = torch.from_numpy(image(1, 3, size, size))

    def run(m):
        y = m(x)
        y = y.logits if hasattr(y, "logits") else y
        return {"logits": sum(y) / 2 if isinstance(y, tuple) else y}

    return entry(model, {"image": [1, 3, size, size]}, run, config)


def of_text(model, key, pick):
    ids = torch.from_numpy(token_ids(97, 2, 7))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return entry(model, {"input_ids": [2, 7]}, lambda m: {key: pick(m(ids, attention_mask=mask))}, config_of(model))


def of_tokens(model):
    """Logits after token 5 and after the last of nine."""
    ids = torch.from_numpy(token_ids(97, 1, 9))

    def run(m):
        logits = m(ids).logits[0]
        return {"first": logits[5], "logits": logits[8]}

    return entry(model, {"tokens": [9]}, run, config_of(model))


def config_of(model):
    return json.loads(model.config.to_json_string(use_diff=False))


def main():
    t = transformers
    found = {name: of_image(make()) for name, make in IMAGES.items()}
    bert = t.BertConfig(**TEXT)
    found["bert"] = of_text(t.BertModel(bert), "last_hidden", lambda y: y.last_hidden_state[:, 0])
    classifier = t.BertForSequenceClassification(t.BertConfig(**TEXT, num_labels=3))
    found["bert_classifier"] = of_text(classifier, "logits", lambda y: y.logits)
    distil = t.DistilBertConfig(**DISTIL)
    found["distilbert"] = of_text(t.DistilBertModel(distil), "last_hidden", lambda y: y.last_hidden_state[:, 0])
    distil = t.DistilBertForSequenceClassification(t.DistilBertConfig(**DISTIL, num_labels=3))
    found["distilbert_classifier"] = of_text(distil, "logits", lambda y: y.logits)
    for name, config, kind in (
        ("vit", t.ViTConfig, t.ViTForImageClassification),
        ("deit", t.DeiTConfig, t.DeiTForImageClassificationWithTeacher),
    ):
        model = kind(config(**SMALL, image_size=SIZE, patch_size=8, num_labels=5))
        found[name] = of_image(model, config_of(model))
    llama = {**TEXT, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 16, "rope_theta": 100.0}  # fmt: skip
    found["llama"] = of_tokens(t.LlamaForCausalLM(t.LlamaConfig(**llama, head_dim=16)))
    found["llama3"] = of_tokens(
        t.LlamaForCausalLM(t.LlamaConfig(**llama, rope_parameters=scaling, tie_word_embeddings=True))
    )
    found["mistral"] = of_tokens(t.MistralForCausalLM(t.MistralConfig(**llama, sliding_window=4)))
    found["qwen2"] = of_tokens(t.Qwen2ForCausalLM(t.Qwen2Config(**llama)))
    gpt2 = t.GPT2Config(n_embd=48, n_layer=2, n_head=4, n_positions=32, vocab_size=97, bos_token_id=1, eos_token_id=2)
    found["gpt2"] = of_tokens(t.GPT2LMHeadModel(gpt2))
    text = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in found.items())
    (HERE / "references.json").write_text("{\n" + text + "\n}\n")


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
