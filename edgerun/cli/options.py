"""Options that several verbs share, and how their values are read. Imports nothing heavy."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import click

from edgerun.errors import UsageError
from edgerun.report import FORMATS, Report, render

_UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9}
_BINARY = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


class SizeType(click.ParamType):
    """A number of bytes such as 24MB (decimal) or 24MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
        scale = (_UNITS | _BINARY).get(match.group(2).lower()) if match else None
        if match is None or scale is None:
            self.fail(f"{value!r} is no size; write 24MB, 512kB or 64MiB", param, ctx)
        return int(float(match.group(1)) * scale)


class DurationType(click.ParamType):
    """A time such as 40ms or 1.5s, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s)\s*", value)
        if match is None:
            self.fail(f"{value!r} is no time; write 40ms, 800us or 1.5s", param, ctx)
        return float(match.group(1)) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[match.group(2)]


class PercentType(click.ParamType):
    """A share such as 5% or 0.05."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*", value)
        if match is None:
            self.fail(f"{value!r} is no share; write 5% or 0.05", param, ctx)
        return float(match.group(1)) / (100 if match.group(2) else 1)


def common(function: Callable[..., Any], products: tuple[str, ...] = ()) -> Callable[..., Any]:
    """Adds --format and -v; the verb returns a Report, or (Report, exit code), which is printed here.

    `products`: words for --format that say what is made; the verb gets the chosen one as `product`, else None.
    """
    words = "How results are printed" + (f", or what is made: {', '.join(products)}." if products else ".")

    @click.option("--format", "form", type=click.Choice([*FORMATS, *products]), default=None, help=words)
    @click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
    @click.option("-v", "--verbose", count=True, help="More messages; -vv also shows tracebacks.")
    @click.pass_context
    @functools.wraps(function)
    def wrapped(ctx: click.Context, /, *args: Any, form: str | None, as_json: bool, verbose: int, **kwargs: Any) -> int:
        if products:
            kwargs["product"] = form if form in products else None
            form = None if form in products else form
        result = function(*args, **kwargs)
        report, code = result if isinstance(result, tuple) else (result, 0)
        if isinstance(report, Report):
            chosen = "json" if as_json else form or (ctx.obj or {}).get("form") or "table"
            click.echo(render(report, chosen), nl=False)
        return code

    return wrapped


@dataclass(frozen=True, slots=True)
class Backend:
    """What runs a model, and the options of that backend."""

    name: str
    options: dict[str, Any]


def backend_option(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--backend, one of `names` (the first is the default), and what belongs to it; the verb gets a Backend."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--backend", "chosen", type=click.Choice(names), default=names[0], help="What runs the model.")
        @click.option(
            "--split", is_flag=True, help="wgpu: compute nodes without a GPU kernel on the CPU, and list them."
        )
        @click.option("--allow-software-adapter", "software", is_flag=True, help="wgpu: also a GPU that is a program.")
        @functools.wraps(function)
        def wrapped(*args: Any, chosen: str, split: bool, software: bool, **kwargs: Any) -> Any:
            if software and chosen != "wgpu":
                raise UsageError("--allow-software-adapter belongs to --backend wgpu")
            if split and chosen not in ("wgpu", "cuda"):
                raise UsageError("--split belongs to --backend wgpu and cuda")
            options = {"split": split} if chosen in ("wgpu", "cuda") else {}
            options |= {"allow_software": software} if chosen == "wgpu" else {}
            return function(*args, backend=Backend(chosen, options), **kwargs)

        return wrapped

    return decorate


def model_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """The MODEL argument: .onnx, .edge, a plan or a packed file."""
    return click.argument("model", type=click.Path())(function)


def shape_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--shape NAME=1,3,224,224 and --dim NAME=V or NAME=LOW..HIGH."""
    function = click.option(
        "--dim", "dims", multiple=True, metavar="NAME=V|LO..HI", help="Value or range of a free dimension."
    )(function)
    return click.option("--shape", "shapes", multiple=True, metavar="NAME=1,3,8,8", help="Shape of an input.")(function)


def input_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--input [NAME=]SOURCE and --seed."""
    function = click.option("--seed", type=click.IntRange(0), default=0, help="For random inputs.")(function)
    return click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="[NAME=]SOURCE",
        help="file.npy, file.npz, file.raw, an image, random, zeros, or standard input: - (npy), raw:- (plain bytes).",
    )(function)


def parse_shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """`x=1,3,8,8` to {"x": (1, 3, 8, 8)}. Raises UsageError."""
    shapes = {}
    for text in texts:
        name, equals, dims = text.rpartition("=")
        try:
            shape = tuple(int(d) for d in dims.split(",")) if dims else ()
        except ValueError:
            shape = (-1,)
        if not equals or not name or any(d < 0 for d in shape):
            raise UsageError(f"--shape {text!r} cannot be read", hint="write --shape NAME=1,3,224,224")
        shapes[name] = shape
    return shapes


def parse_dims(texts: Iterable[str]) -> dict[str, int | tuple[int, int]]:
    """`n=4` to {"n": 4}, `n=1..64` to {"n": (1, 64)}. Raises UsageError."""
    dims: dict[str, int | tuple[int, int]] = {}
    for text in texts:
        match = re.fullmatch(r"(.+)=(\d+)(?:\.\.(\d+))?", text)
        if match is None or (match.group(3) and int(match.group(3)) < int(match.group(2))):
            raise UsageError(f"--dim {text!r} cannot be read", hint="write --dim NAME=4 or --dim NAME=1..64")
        dims[match.group(1)] = (int(match.group(2)), int(match.group(3))) if match.group(3) else int(match.group(2))
    return dims
