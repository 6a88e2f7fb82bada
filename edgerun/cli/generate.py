"""`edgerun generate`: text from a language model."""

from __future__ import annotations

from typing import Any

import click

from edgerun.cli.options import common, model_argument
from edgerun.report import Report


@click.command("generate")
@model_argument
@click.argument("prompt")
@click.option(
    "-n", "--tokens", "limit", type=click.IntRange(1), default=128, show_default=True, help="At most so many."
)
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0: always the most likely token.")
@click.option("--top-k", type=int, default=0, help="Draw from the K most likely tokens (0: all).")
@click.option("--top-p", type=float, default=1.0, help="Draw from the fewest tokens with this probability together.")
@click.option("--seed", type=click.IntRange(0), default=0, help="For drawing.")
@click.option("--chat", is_flag=True, help="The prompt is a message to an assistant: use the model's chat template.")
@click.option("--backend", type=click.Choice(("auto", "numpy", "native")), default="auto", help="What computes.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--context", type=click.IntRange(1), help="Tokens that the cache holds, for a checkpoint.")
@common
def command(
    model: str,
    prompt: str,
    limit: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    chat: bool,
    backend: str,
    threads: int,
    context: int | None,
) -> Report | int:
    """Continue a text, printing it as it comes; tokens per second go to standard error.

    \b
    $ edgerun generate smollm2.edge "The capital of France is"
    $ edgerun generate smollm2.gguf "Write a haiku" --chat --temperature 0.8 --top-p 0.95 --seed 7
    """
    from edgerun.session import load
    from edgerun.text.generate import Generator
    from edgerun.text.sampling import Sampler

    sampler = Sampler(temperature, top_k, top_p, seed)
    generator = Generator(load(model, backend, threads=threads, context=context))
    words = generator.chat(prompt) if chat else prompt
    settings = click.get_current_context().params
    quiet = bool(settings.get("as_json")) or settings.get("form") not in (None, "table")
    pieces = []
    for piece in generator.text(words, sampler, limit):
        pieces.append(piece)
        if not quiet:
            click.echo(piece, nl=False)
    found = generator.statistics.as_dict()
    if quiet:
        return Report({"model": model, "prompt": prompt, "text": "".join(pieces), **found}, [], [])
    click.echo()
    click.echo(_summary(found, generator.session.backend, threads), err=True)
    return 0


def _summary(found: dict[str, Any], backend: str, threads: int) -> str:
    def speed(key: str) -> str:
        return f"{found[key]:.1f}/s" if found[key] else "-"

    return (
        f"prompt {found['prompt_tokens']} tokens ({speed('prompt_tokens_per_second')}), text {found['tokens']} tokens "
        f"({speed('tokens_per_second')}), {found['finish']}; {backend}, {threads} thread{'s' * (threads != 1)}"
    )
