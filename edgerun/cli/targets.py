"""`edgerun targets`: boards and architectures."""

from __future__ import annotations

import click

from edgerun.cli.options import common
from edgerun.report import Column, Report, Table


@click.command("targets")
@click.argument("name", required=False)
@common
def command(name: str | None) -> Report:
    """List boards and architectures, or show one.

    \b
    $ edgerun targets
    $ edgerun targets rpi4

    NAME may also be the path of a .toml profile of your own; packing takes it too.
    """
    from edgerun_targets import load, names

    if name is None:
        rows = [load(n).as_dict() for n in names()]
        columns = [
            Column("name", left=True),
            Column("arch", left=True),
            Column("cpu", left=True),
            Column("cores", show=lambda v: str(v) if v else "-"),
            Column("ram_mb", show=lambda v: str(v) if v else "-"),
            Column("features", left=True),
            Column("description", left=True),
        ]
        return Report(rows, [Table(rows, columns)])
    target = load(name).as_dict()
    fields = [{"field": k, "value": " ".join(v) if isinstance(v, list) else v} for k, v in target.items()]
    return Report(target, [Table(fields, [Column("field", left=True), Column("value", left=True)])])
