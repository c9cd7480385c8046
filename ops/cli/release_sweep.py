"""`gapless release-sweep`: let a held sweep of a snapshot delete what it found absent."""

from __future__ import annotations

from typing import Annotated

import typer

from ops import problems
from ops.cli import context

Owner = Annotated[str, typer.Argument(metavar="PARTITION_ID")]
Snapshot = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="As `gapless status` names it.")]
Note = Annotated[str, typer.Option(help="Why; kept with the decision.")]


def register(app: typer.Typer) -> None:
    app.command("release-sweep")(release)


def release(partition_id: Owner, snapshot: Snapshot, note: Note = "") -> None:
    """Let a held sweep happen: rows that the snapshot lacked are marked deleted."""
    import psycopg

    from apply.snapshots import release_sweep

    if not note:
        raise problems.Stop("Say why with --note: the decision is kept.", problems.USAGE)
    with psycopg.connect(context.load_settings().postgres, connect_timeout=5) as connection:
        number = release_sweep(connection, partition_id, snapshot, by=context.operator(), note=note)
    if not number:
        raise problems.Stop(
            f"No sweep of {partition_id}, snapshot {snapshot}, is held. See `gapless status`.",
            problems.USAGE,
        )
    typer.echo("Released; the owner of the partition sweeps next. See `gapless status`.")
