"""Writes tokenizers.json: small tokenizers trained on a few sentences, and how Hugging Face's library encodes texts.

python tests/text/make_tokenizers.py      (needs tokenizers)
"""

import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's the dog's day; they'll say we've won, I'm sure you'd agree.",
    "def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n\n\nprint(fibonacci(10))\n",
    "In 2024, 1234567 people paid 99.95 dollars; in 1999 it was 3.5%.",
    "বাংলা ভাষা একটি সুন্দর ভাষা। আমি বাংলায় গান গাই।",
    "日本語のテキスト、中文文本。 Ünïcödé naïve café",
]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PIECES = ["a", "B", "'", "s", " ", "  ", "\n", "1", "9", "é", "ß", "中", "।", "ি", "!", ".", "😀", "\t", "'ll", "'LL",
          "\u00a0", "²", "<|end|>", "the", " the", "\r\n", "ভাষা", "fibonacci", "_", "½", "'"]  # fmt: skip


def byte_level(splitter, **options):
    made = Tokenizer(models.BPE(**options))
    made.pre_tokenizer = splitter
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|end|>"]))  # fmt: skip
    return made


def split(pattern):
    behaviour = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([behaviour, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def pieces():
    """As the fast tokenizers of Llama 2: spaces become U+2581, unknown characters bytes."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.train_from_iterator(CORPUS[:3], trainers.BpeTrainer(vocab_size=200))
    document = json.loads(trained.to_str())
    first = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    vocabulary = [t for t, _ in sorted(document["model"]["vocab"].items(), key=lambda row: row[1])]
    table = {t: i for i, t in enumerate(first + vocabulary)}
    merges = [tuple(m) for m in document["model"]["merges"]]
    made = Tokenizer(models.BPE(table, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")])
    return made


def main():
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    kinds = {
        "gpt2": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
        "digits": byte_level(digits),
        "llama3": byte_level(split(LLAMA3)),
        "whole": byte_level(split(LLAMA3), ignore_merges=True),
        "qwen2": byte_level(split(LLAMA3.replace("{1,3}", ""))),
        "pieces": pieces(),
    }
    generator = random.Random(4)
    texts = [*CORPUS, *("".join(generator.choices(PIECES, k=generator.randint(1, 16))) for _ in range(120))]
    found = {}
    for name, tokenizer in kinds.items():
        ids = [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]
        found[name] = {"tokenizer": json.loads(tokenizer.to_str()), "ids": ids}
    text = json.dumps({"texts": texts, "kinds": found}, separators=(",", ":"), ensure_ascii=True)
    Path(__file__).with_name("tokenizers.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
