"""Entry point: finds the verb, turns errors into one message and an exit code.

Exit codes: 0 ok, 1 negative result (over budget, mismatch), 2 usage, 3 hardware or backend absent, 5 file error,
70 internal error, 130 interrupted.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from edgerun import __version__
from edgerun.errors import EdgerunError
from edgerun.report import FORMATS

VERBS = {
    "check": "List everything that would keep a model from running, all at once.",
    "convert": "Import a model, optimise it and write a bundle (.edge).",
    "quantize": "Make a model smaller and faster: 8 or 4-bit weights, the loss measured.",
    "inspect": "Show inputs, outputs, ops and weights of a model, plan or packed file.",
    "plan": "Show the memory plan: arena, peak step, offsets.",
    "run": "Run a model once on given inputs.",
    "generate": "Continue a text with a language model.",
    "verify": "Compare a backend with the reference, layer by layer.",
    "bench": "Measure latency and memory on this machine or on a board.",
    "pack": "Make one executable for a board from a model.",
    "update": "Give a packed file another model, or bring the one before back.",
    "targets": "List boards and architectures.",
    "doctor": "Say what this installation can do, and what is missing.",
    "why": "Explain which kernel each layer got, and why.",
}
STARTER = "edgerun pack model.onnx --target aarch64"


class LazyGroup(click.Group):
    """Imports `edgerun.cli.VERB` when VERB is called, so that `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        return importlib.import_module(f"edgerun.cli.{cmd_name}").command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[Any, Any, list[str]]:
        if args and args[0] not in VERBS:
            near = difflib.get_close_matches(args[0], VERBS, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "see `edgerun --help`"
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))
        with formatter.section("Exit status"):
            formatter.write_text(
                "0 ok, 1 negative result (over budget, mismatch), 2 usage, 3 hardware or backend absent, "
                "5 file error, 70 internal error, 130 interrupted"
            )
        with formatter.section("Environment"):
            formatter.write_dl([("NO_COLOR", "no colours and no progress bars")])


def _version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"edgerun {__version__} (Python {sys.version.split()[0]}, {sys.platform})")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=f"Turn a model into one small executable for an edge board.\n\n\b\n$ {STARTER}",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default=None, help="How results are printed.")
@click.option("-v", "--verbose", count=True, help="More messages; -vv also shows tracebacks.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version."
)
@click.pass_context
def cli(ctx: click.Context, form: str | None, verbose: int) -> None:
    ctx.obj = {"form": form, "verbose": verbose}
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit the process."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. Nothing but KeyboardInterrupt's exit is left to the caller."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    traceback_wanted = sum(w.count("v") for w in words if w in ("-v", "-vv", "--verbose")) >= 2
    try:
        result = cli.main(args=words, prog_name="edgerun", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.UsageError as e:
        where = f"; see `{e.ctx.command_path} --help`" if e.ctx is not None else ""
        return _complain(e.format_message().removesuffix(".") + where, "", 2)
    except click.ClickException as e:
        return _complain(e.format_message(), "", 5 if isinstance(e, click.FileError) else 2)
    except (KeyboardInterrupt, click.Abort):
        return _complain("interrupted", "", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # keeps the interpreter's last flush quiet
        return 5
    except EdgerunError as e:
        if traceback_wanted:
            raise
        problems = getattr(e, "problems", [])
        message = e.message
        if len(problems) > 1:
            message = f"{len(problems)} problems:\n" + "\n".join(f"  - {p}" for p in problems)
        return _complain(message, e.hint, e.exit_code)
    except OSError as e:
        if traceback_wanted:
            raise
        return _complain(f"{e.filename or 'file'}: {e.strerror or e}", "", 5)
    except Exception as e:
        if traceback_wanted:
            raise
        return _complain(f"internal error: {type(e).__name__}: {e}", "run again with -vv and report the traceback", 70)


def _complain(message: str, hint: str, code: int) -> int:
    click.echo(f"edgerun: {message}" + (f"; {hint}" if hint and "\n" not in message else ""), err=True)
    if hint and "\n" in message:
        click.echo(f"  {hint}", err=True)
    return code


if __name__ == "__main__":
    main()
