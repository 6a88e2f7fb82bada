"""Samplers, the loop from prompt to text, and the command."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from edgerun.cli.main import cli
from edgerun.errors import UsageError
from edgerun.session import load
from edgerun.text.generate import Generator
from edgerun.text.sampling import Sampler
from tests.text import models

PROMPT = "The quick brown fox says 123 ভাষা" * 4


def test_greedy_takes_the_first_of_equals():
    assert Sampler().choose(np.array([0.0, 3.0, 3.0, 1.0], np.float32)) == 1


def test_drawing_follows_the_distribution():
    logits = np.log(np.array([0.5, 0.1, 0.3, 0.1])).astype(np.float32)
    for settings, allowed in (
        ({}, {0: 0.5, 2: 0.3, 1: 0.1, 3: 0.1}),
        ({"top_k": 2}, {0: 0.625, 2: 0.375}),
        ({"top_p": 0.7}, {0: 0.625, 2: 0.375}),
        ({"top_p": 0.5}, {0: 1.0}),
    ):
        sampler = Sampler(temperature=1.0, seed=3, **settings)
        counts = np.bincount([sampler.choose(logits) for _ in range(2000)], minlength=4) / 2000
        assert {i for i in range(4) if counts[i]} == set(allowed)
        assert all(abs(counts[i] - p) < 0.04 for i, p in allowed.items())
    cold = Sampler(temperature=0.05, seed=1)
    assert {cold.choose(logits) for _ in range(100)} == {0}


def test_the_same_seed_draws_the_same():
    logits = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    a, b, c = (Sampler(1.0, seed=s) for s in (5, 5, 6))
    drawn = [[s.choose(logits) for _ in range(20)] for s in (a, b, c)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize("settings", [{"temperature": -1}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.5}])
def test_senseless_settings_are_refused(settings):
    with pytest.raises(UsageError):
        Sampler(**settings)


@pytest.mark.parametrize("kind", ["digits", "pieces"])
def test_backends_write_the_same_text(tmp_path, kind):
    folder = models.write(tmp_path / "m", kind)
    texts = []
    for backend in ("numpy", "native"):
        generator = Generator(load(folder, backend, context=128))
        texts.append("".join(generator.text(PROMPT, limit=24)))
        statistics = generator.statistics.as_dict()
        assert statistics["prompt_tokens"] > 64 and statistics["finish"] in ("length", "stop")
        again = "".join(generator.text(PROMPT, limit=24))
        assert again == texts[-1]  # the cache of the first text does not matter
    assert texts[0] == texts[1] and texts[0]


def test_the_context_ends_the_text(tmp_path):
    generator = Generator(load(models.write(tmp_path / "m"), "native", context=20))
    prompt = generator.tokenizer.encode("The quick brown")
    found = list(generator.tokens(prompt, Sampler(), 100))
    if generator.statistics.finish == "length":
        assert len(prompt) + len(found) == 21
    with pytest.raises(UsageError, match="the context 20"):
        "".join(generator.text(PROMPT))
    with pytest.raises(UsageError, match="empty"):
        "".join(generator.text(""))


def test_the_command(tmp_path):
    folder = models.write(tmp_path / "m")
    run = CliRunner().invoke
    made = run(cli, ["convert", str(folder), "--context", "64", "-o", str(tmp_path / "m.edge")])
    assert made.exit_code == 0, made.output
    shown = run(cli, ["generate", str(tmp_path / "m.edge"), "The quick", "-n", "5"])
    assert shown.exit_code == 0 and "text 5 tokens" in shown.stderr
    told = json.loads(run(cli, ["generate", str(tmp_path / "m.edge"), "The quick", "-n", "5", "--json"]).stdout)
    assert told["text"] + "\n" == shown.stdout and told["tokens"] == 5 and told["prompt_tokens"] > 1
    for model in (tmp_path / "m.edge", "examples/digits/digits.onnx"):
        late = run(cli, ["generate", str(model), "hi", "--context", "9"])
        assert isinstance(late.exception, UsageError) and "context" in str(late.exception)
    chat = run(cli, ["generate", str(tmp_path / "m.edge"), "hi", "--chat"])
    assert isinstance(chat.exception, UsageError)


def test_other_verbs_know_states(tmp_path):
    folder = str(models.write(tmp_path / "m"))
    run = CliRunner().invoke
    plan = json.loads(run(cli, ["plan", folder, "--json"]).stdout)
    assert plan["lower_bound_bytes"] > 2 * 2 * 2 * 256 * 8 * 4  # both caches of both layers live throughout
    assert "cache" not in run(cli, ["convert", folder, "-o", str(tmp_path / "m.edge")]).stdout
    shapes = ["--shape", "tokens=5"]
    for verb in (["check"], ["verify", *shapes], ["run", *shapes, "--input", "zeros"], ["why"]):
        done = run(cli, [verb[0], folder, *verb[1:]])
        assert done.exit_code == 0, (verb, done.output, done.exception)
