"""What is going on, on standard error: a line per stage with -v, a spinner on a terminal, nothing otherwise."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator

import click


def _verbose() -> int:
    context = click.get_current_context(silent=True)
    if context is None:
        return 0
    return int(context.params.get("verbose") or 0) + int((context.obj or {}).get("verbose") or 0)


def _fancy() -> bool:
    plain = "NO_COLOR" in os.environ or "CI" in os.environ or os.environ.get("TERM") == "dumb"
    return sys.stderr.isatty() and not plain


@contextlib.contextmanager
def stage(label: str) -> Iterator[None]:
    """Name the work inside the block."""
    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if _fancy():
            with contextlib.suppress(ModuleNotFoundError):
                from rich.console import Console

                stack.enter_context(Console(stderr=True).status(label))
        yield
    if _verbose():
        click.echo(f"{label}: {time.perf_counter() - start:.2f} s", err=True)
