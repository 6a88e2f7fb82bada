"""`edgerun update`: another model for a packed file, and back."""

from __future__ import annotations

from pathlib import Path

import click

from edgerun.cli.options import common
from edgerun.errors import UsageError
from edgerun.report import Report


@click.command("update")
@click.argument("packed", type=click.Path(exists=True, dir_okay=False))
@click.argument("new", type=click.Path(exists=True, dir_okay=False), required=False)
@click.option("--rollback", is_flag=True, help="Bring back the file before the last update.")
@common
def command(packed: str, new: str | None, rollback: bool) -> Report:
    """Give a packed file the model of another one, at once or not at all.

    \b
    $ edgerun update ./detector ./detector-v2
    $ edgerun update ./detector --rollback

    The executable part stays; the file before is kept as PACKED.old. A signed file takes only models signed with the
    same key.
    """
    from edgerun_packaging import update

    if rollback == (new is not None):
        raise UsageError("give either a new model or --rollback")
    if new is None:
        update.rollback(Path(packed))
        done = "the file before the last update is back"
    else:
        update.update(Path(packed), Path(new))
        done = f"has the model of {new}; --rollback brings the one before back"
    document = {"packed": packed, "model": new, "bytes": Path(packed).stat().st_size}
    return Report(document, [], [f"{packed}: {done}"])
