"""Chat templates: what a model wants before and after a message, found by rendering its template once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MESSAGE = "\u0001message\u0001"
MAX_TEMPLATE = 1 << 16


def around(template: Any, names: Mapping[str, str]) -> tuple[str, str]:
    """(before, after) a first message of the user, up to where the answer starts; empty when there is no template.

    The template is rendered in Jinja's sandbox (package jinja2); without the package, or when rendering fails, only
    ChatML (<|im_start|>) is recognised.
    """
    if not isinstance(template, str) or not template or len(template) > MAX_TEMPLATE:
        return "", ""
    rendered = _render(template, names)
    if rendered is not None and rendered.count(MESSAGE) == 1:
        before, _, after = rendered.partition(MESSAGE)
        return before, after
    if "<|im_start|>" in template and "<|im_end|>" in template:
        return "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    return "", ""


def _render(template: str, names: Mapping[str, str]) -> str | None:
    try:
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        return None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    try:
        return environment.from_string(template).render(
            messages=[{"role": "user", "content": MESSAGE}], add_generation_prompt=True, **names
        )
    except Exception:  # a template is a program: it can fail in any way
        return None
