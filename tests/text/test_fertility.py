"""The report of tokens by script."""

import json

from click.testing import CliRunner

from edgerun.cli.main import cli
from edgerun.errors import UsageError
from edgerun.text.fertility import measure, script_of
from edgerun.text.tokenizer import Tokenizer
from edgerun.text.vocabulary import from_bytes
from tests.text import models
from tests.text.test_tokenizer import converted


def test_scripts_of_words():
    words = {
        "the": "Latin",
        "naïve,": "Latin",
        "ভাষা।": "Bengali",
        "日本語": "Cjk",
        "привет": "Cyrillic",
        "1234": "Other",
    }
    assert {w: script_of(w) for w in words} == words


def test_counts_add_up_and_bytes_are_seen(tmp_path):
    tokenizer = Tokenizer(from_bytes(converted(tmp_path, "gpt2")))
    rows = {row.script: row for row in measure(tokenizer, "the the quick приветствие 12")}
    latin, cyrillic = rows["Latin"], rows["Cyrillic"]
    assert (latin.words, latin.characters, rows["Other"].words) == (3, 11, 1)
    expected = 2 * len(tokenizer.encode(" the")) + len(tokenizer.encode(" quick"))
    assert latin.tokens == expected and latin.fragments == 0
    assert cyrillic.tokens > 2 * cyrillic.characters and cyrillic.fragments == cyrillic.tokens - 1


def test_the_command(tmp_path):
    folder = models.write(tmp_path / "m", "gpt2")
    (tmp_path / "sample.txt").write_text("The quick fox, বাংলা ভাষা привет 12", encoding="utf-8")
    shown = CliRunner().invoke(cli, ["inspect", str(folder), "--text", str(tmp_path / "sample.txt"), "--json"])
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    assert {row["script"] for row in told["scripts"]} == {"Latin", "Bengali", "Cyrillic", "Other"}
    assert told["context"] == 256 and told["tokens"] > 10
    assert min(row["cost"] for row in told["scripts"] if row["script"] != "Other") == 1
    plain = CliRunner().invoke(cli, ["inspect", "examples/digits/digits.onnx", "--text", str(tmp_path / "sample.txt")])
    assert isinstance(plain.exception, UsageError)
    assert CliRunner().invoke(cli, ["inspect", str(folder)]).exit_code == 0
