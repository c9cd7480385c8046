"""`gapless accept-gap`: accept a loss by name, so that what is behind it goes on."""

from __future__ import annotations

from typing import Annotated

import typer

from ops import problems
from ops.cli import context

Gap = Annotated[int | None, typer.Argument(metavar="[GAP]", help="A gap's number, from status.")]
Partition = Annotated[
    int | None, typer.Option(min=0, help="A halted partition of the log instead.")
]
Note = Annotated[str, typer.Option(help="Why it is accepted; kept with the decision.")]


def register(app: typer.Typer) -> None:
    app.command("accept-gap")(accept_gap)


def accept_gap(gap: Gap = None, partition: Partition = None, note: Note = "") -> None:
    """Accept that something is lost. Nothing brings it back; reading goes on behind it."""
    import psycopg

    from apply.opening import topic_id
    from ops import gaps

    if (gap is None) == (partition is None):
        raise problems.Stop("Give a gap's number, or --partition N.", problems.USAGE)
    if not note:
        raise problems.Stop("Say why with --note: the decision is kept.", problems.USAGE)
    settings, by = context.load_settings(), context.operator()
    try:
        with psycopg.connect(settings.postgres, connect_timeout=5) as connection:
            if gap is not None:
                said = gaps.accept_gap(connection, gap, by=by, note=note)
                typer.echo(f"Accepted: {said}.")
                return
            assert partition is not None
            found = gaps.accept_halted(connection, partition, topic_id(settings), by=by, note=note)
    except gaps.NothingToAccept as nothing:
        raise problems.Stop(f"{nothing} See `gapless status`.", problems.USAGE) from None
    typer.echo(
        f"Accepted: {found.cause} in partition {found.partition}: {found.detail}.\n"
        f"apply goes on at offset {found.next_offset}, log generation {found.generation}."
    )
