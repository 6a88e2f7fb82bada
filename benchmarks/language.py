"""Decode speed of a packed language model beside llama.cpp's Python package, run by run in turn; medians.

    python -m benchmarks.language ./smollm2 smollm2.gguf --python VENV/bin/python [--runs 5] [--tokens 64]

The peer is driven through the C interface, so that Python adds nothing to its time. Both read the same weights and
continue the same prompt greedily. VENV has llama-cpp-python. One line for each thread count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path

PROMPT = "Once upon a time, there was a little"

_PEER = """
import json, sys, time
import llama_cpp as api
import numpy as np
path, threads, count, prompt = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
model = api.Llama(path, n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)
ids = model.tokenize(prompt.encode(), add_bos=False, special=False)
context = model.ctx


def decode(tokens):
    array = (api.llama_token * len(tokens))(*tokens)
    batch = api.llama_batch_get_one(array, len(tokens))
    assert api.llama_decode(context, batch) == 0
    logits = api.llama_get_logits_ith(context, -1)
    return int(np.ctypeslib.as_array(logits, (model.n_vocab(),)).argmax())


decode(ids)
api.llama_memory_clear(api.llama_get_memory(context), True)
start = time.perf_counter()
token = decode(ids)
prompt_seconds = time.perf_counter() - start
start = time.perf_counter()
for _ in range(count):
    token = decode([token])
seconds = time.perf_counter() - start
print(json.dumps({"tokens_per_second": count / seconds, "prompt_tokens_per_second": len(ids) / prompt_seconds}))
"""


def _run(command: Sequence[str]) -> dict[str, float]:
    """The JSON that a command prints; without this environment's import path, which is not the other's."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/")
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packed")
    parser.add_argument("gguf")
    parser.add_argument("--python", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    count = options.tokens
    for threads in (1, 2):
        arms = {
            "edgerun": [
                str(Path(options.packed).resolve()),
                "generate",
                PROMPT,
                "-n",
                str(count + 1),
                "--threads",
                str(threads),
                "--json",
            ],
            "llama.cpp": [
                options.python,
                "-c",
                _PEER,
                str(Path(options.gguf).resolve()),
                str(threads),
                str(count),
                PROMPT,
            ],
        }
        rates: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(options.runs):
            for name, command in arms.items():
                rates[name].append(_run(command)["tokens_per_second"])
        row = ", ".join(
            f"{name} {statistics.median(found):.1f} tokens/s (of {min(found):.1f} to {max(found):.1f})"
            for name, found in rates.items()
        )
        print(f"{threads} thread{'s' * (threads > 1)}: {row}")


if __name__ == "__main__":
    main()
