"""`gapless accept-gap`: accept a loss by name, so that what is behind it goes on."""

from __future__ import annotations

from datetime import UTC, datetime
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
    if (gap is None) == (partition is None):
        raise problems.Stop("Give a gap's number, or --partition N.", problems.USAGE)
    if not note:
        raise problems.Stop("Say why with --note: the decision is kept.", problems.USAGE)
    if gap is not None:
        _recorded(gap, note)
    else:
        assert partition is not None
        _halted(partition, note)


def _recorded(gap: int, note: str) -> None:
    import psycopg

    from ops import gaps

    with psycopg.connect(context.load_settings().postgres, connect_timeout=5) as connection:
        try:
            said = gaps.accept_gap(connection, gap, by=context.operator(), note=note)
        except gaps.NothingToAccept as nothing:
            raise problems.Stop(f"{nothing} See `gapless status`.", problems.USAGE) from None
    typer.echo(f"Accepted: {said}.")


def _halted(partition: int, note: str) -> None:
    from apply.gaps import NothingHalted, accept_gap

    settings = context.load_settings()
    try:
        found = accept_gap(
            settings, partition, by=context.operator(), note=note, now=datetime.now(UTC)
        )
    except NothingHalted as nothing:
        raise problems.Stop(f"{nothing}. See `gapless status`.", problems.USAGE) from None
    typer.echo(
        f"Accepted: {found.cause} in partition {found.partition}.\n"
        f"apply goes on at offset {found.next_offset}, log generation {found.generation}."
    )
