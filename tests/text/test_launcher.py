"""The packed program's tokenizer and sampler (C) against Python's, and whole packed models."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from edgerun.cli.main import cli
from edgerun.errors import FileFormatError
from edgerun.machine import host_arch
from edgerun.session import load, load_graph
from edgerun.text.generate import Generator
from edgerun.text.sampling import Sampler
from edgerun.text.tokenizer import Tokenizer
from edgerun.text.vocabulary import from_bytes
from edgerun_packaging.pack import Options, pack
from edgerun_packaging.zig import LAUNCHER
from edgerun_targets import load as load_target
from tests.packaging.conftest import emulator
from tests.text import models
from tests.text.test_tokenizer import KINDS, TEXTS, converted

PROMPT = "The quick brown fox says 123 ভাষা. " * 3


@pytest.fixture(scope="session")
def harness(tmp_path_factory):
    """Runs records through tests/text/csrc/tokens.c; undefined behaviour traps."""
    program = tmp_path_factory.mktemp("tokens") / "tokens"
    names = ("tokenizer.c", "split.c", "sampling.c")
    sources = [Path(__file__).parent / "csrc" / "tokens.c", *(LAUNCHER / name for name in names)]
    checks = ["-fsanitize=undefined", "-fsanitize-trap=undefined", "-O1", "-g"]
    command = [sys.executable, "-m", "ziglang", "cc", "-std=gnu11", *checks, f"-I{LAUNCHER}", *map(str, sources), "-lm"]
    subprocess.run([*command, "-o", str(program)], check=True)

    def run(*records: bytes) -> list[str]:
        done = subprocess.run([str(program)], input=b"".join(records), capture_output=True)
        assert done.returncode == 0, done.returncode
        return done.stdout.decode().splitlines()

    return run


def record(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data


@pytest.mark.parametrize("name", KINDS)
def test_the_same_tokens_in_c(tmp_path, harness, name):
    raw = converted(tmp_path, name)
    found = harness(record(0, raw.tobytes()), *(record(1, t.encode()) for t in TEXTS))
    assert found[0] == "ok"
    tokenizer = Tokenizer(from_bytes(raw))
    for text, line in zip(TEXTS, found[1:], strict=True):
        tokens, _, spelt = line.partition("|")
        expected = tokenizer.encode(text)
        assert [int(t) for t in tokens.split()] == expected
        assert bytes.fromhex(spelt) == b"".join(tokenizer.bytes_of(t) for t in expected)


def test_texts_that_are_no_utf8_do_no_harm(tmp_path, harness):
    generator = random.Random(5)
    texts = [bytes(generator.choices([0x41, 0x20, 0xC3, 0xA9, 0xE2, 0xF0, 0x80, 0xFF, 0x0A], k=30)) for _ in range(200)]
    for name in ("digits", "llama3", "pieces"):
        found = harness(record(0, converted(tmp_path, name).tobytes()), *(record(1, t) for t in texts))
        if name != "pieces":
            assert [bytes.fromhex(line.partition("|")[2]) for line in found[1:]] == texts


def test_damaged_tokenizers_are_refused_as_in_python(tmp_path, harness):
    data = converted(tmp_path, "digits")
    generator = random.Random(11)
    mutants = []
    for _ in range(400):
        mutant = data.copy()
        for _ in range(generator.randint(1, 2)):
            mutant[generator.randrange(mutant.size)] = generator.randrange(256)
        mutants.append(mutant[: generator.randrange(mutant.size)] if generator.random() < 0.2 else mutant)
    text = record(1, "It's 12 <|end|> ভাষা".encode())
    found = harness(*(record(0, m.tobytes()) + text for m in mutants))
    for mutant, line in zip(mutants, found[::2], strict=True):
        try:
            from_bytes(mutant)
            assert line == "ok"
        except FileFormatError:
            assert line != "ok"


def test_the_same_draws_in_c(harness):
    logits = np.random.default_rng(2).normal(0, 3, 500).astype(np.float32)
    logits[[7, 9]] = logits.max() + 1
    cases = [(0, 1.0, 0.0), (0, 1.0, 1.0), (5, 1.0, 0.7), (0, 0.9, 1.3), (40, 0.5, 2.0), (1, 1.0, 5.0)]
    records = [
        struct.pack("<IIIffI", 2, logits.size, k, p, t, seed) + logits.tobytes() for k, p, t in cases for seed in (0, 9)
    ]
    found = harness(*records)
    for index, line in enumerate(found):
        k, p, t = cases[index // 2]
        sampler = Sampler(float(np.float32(t)), k, float(np.float32(p)), (0, 9)[index % 2])
        assert [int(v) for v in line.split()] == [sampler.choose(logits) for _ in range(20)]


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    """packed(arch, kind): a tiny model as an executable, and the folder it was made from."""
    folder = tmp_path_factory.mktemp("language models")

    def make(arch, kind="digits"):
        source, path = folder / kind, folder / f"{kind}-{arch}"
        if not path.exists():
            graph = load_graph(models.write(source, kind), context=128)
            pack(graph, load_target(arch), path, options=Options(threads=1))
        return path, source

    return make


def call(arch, path, *arguments):
    """Runs it; output as text, what is no UTF-8 replaced, line ends as they are."""
    done = subprocess.run([*emulator(arch), str(path), *arguments], capture_output=True)
    done.stdout, done.stderr = (raw.decode("utf-8", "replace") for raw in (done.stdout, done.stderr))
    return done


PACKED = [(host_arch(), "digits"), (host_arch(), "pieces"), ("aarch64", "llama3"), ("armv7", "gpt2")]


@pytest.mark.parametrize(("arch", "kind"), PACKED)
def test_a_packed_model_writes_what_python_writes(packed, arch, kind):
    path, source = packed(arch, kind)
    generator = Generator(load(source, "numpy", context=128))
    for settings, sampler in (
        ((), Sampler()),
        (("--temperature", "0.9", "--top-k", "50", "--top-p", "0.9", "--seed", "4"), Sampler(0.9, 50, 0.9, 4)),
    ):
        expected = "".join(generator.text(PROMPT, sampler, 20))
        done = call(arch, path, "generate", PROMPT, "-n", "20", *settings)
        assert done.returncode == 0, done.stderr
        assert done.stdout == expected + "\n" and "tokens (" in done.stderr
        told = json.loads(call(arch, path, "generate", PROMPT, "-n", "20", "--json", *settings).stdout)
        assert told["text"] == expected and told["prompt_tokens"] == generator.statistics.prompt_tokens
        assert told["tokens"] == generator.statistics.tokens and told["finish"] == generator.statistics.finish


def test_python_opens_the_packed_model(packed):
    path, source = packed(host_arch())
    sessions = (load(path), load(source, "native", context=128))
    texts = ["".join(Generator(session).text(PROMPT, limit=12)) for session in sessions]
    assert texts[0] == texts[1]


def test_refusals_of_the_packed_model(packed):
    arch = host_arch()
    path, _ = packed(arch)
    for arguments, message in (
        (["generate"], "takes a prompt"),
        (["generate", ""], "prompt is empty"),
        (["generate", "a " * 400], "the context 128"),
        (["generate", "a", "b"], "one word too many"),
        (["generate", "a", "--chat"], "no chat template"),
        (["generate", "a", "--top-p", "2"], "--top-p takes a number"),
        (["generate", "a", "-n", "0"], "--tokens takes a whole number"),
        (["genrate", "a"], "did you mean 'generate'"),
    ):
        done = call(arch, path, *arguments)
        assert done.returncode == 2 and message in done.stderr, done.stderr
    assert "--temperature" in call(arch, path, "generate", "--help").stdout


def test_bench_and_selftest_of_a_packed_model(packed):
    arch = host_arch()
    path, source = packed(arch)
    told = json.loads(call(arch, path, "bench", "--threads", "1,2", "--runs", "200", "--json").stdout)
    assert [(row["threads"], row["runs"]) for row in told["rows"]] == [(1, 200), (2, 200)]  # longer than the context
    shown = call(arch, path, "bench", "--runs", "3", "--layers")
    assert shown.returncode == 0 and "a run is one token of text; prompts" in shown.stdout and "matmul" in shown.stdout
    for model in (path, source):
        done = CliRunner().invoke(cli, ["bench", str(model), "--runs", "3", "--threads", "1"])
        assert done.exit_code == 0, done.output
    assert call(arch, path, "selftest").returncode == 0
    assert "tokens" in call(arch, path, "info").stdout
