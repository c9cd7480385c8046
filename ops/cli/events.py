"""`gapless events`: events that wait to be published, and decisions on dead ones."""

from __future__ import annotations

from typing import Annotated

import typer

from ops import problems
from ops.cli import context

Number = Annotated[int, typer.Argument(metavar="EVENT", help="Its number, as listed.")]
Note = Annotated[str, typer.Option(help="Why; kept with the decision.")]

events = typer.Typer(
    help="List events that wait, retry or skip dead ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    app.add_typer(events, name="events")


@events.command("list")
def list_(json: context.Json = False) -> None:
    """List unsent and dead events; a dead one holds up the newer ones of its key."""
    from ops.relay import waiting

    rows = waiting(context.load_settings().postgres)
    if json:
        plain = [
            {n: v.isoformat() if hasattr(v, "isoformat") else v for n, v in row.items()}
            for row in rows
        ]
        context.print_json(plain)
        return
    for row in rows:
        typer.echo(
            f"{row['id']:>8}  {row['state']:<7} {row['mapping']}  {row['type']} to {row['topic']}"
            f"  sequence {row['sequence']}  {row['attempts']} attempts  {row['created_at']:%F %T}"
        )
    if not rows:
        typer.echo("Nothing waits to be published.")


@events.command()
def retry(event: Number, note: Note = "") -> None:
    """Publish a dead event again."""
    _decide("retry", event, note)


@events.command()
def skip(event: Number, note: Note = "") -> None:
    """Never publish a dead event; newer ones of its key go on."""
    if not note:
        raise problems.Stop("Say why with --note: the decision is kept.", problems.USAGE)
    _decide("skip", event, note)


def _decide(action: str, event: int, note: str) -> None:
    import psycopg

    from ops.relay import decide

    with psycopg.connect(context.load_settings().postgres, connect_timeout=5) as connection:
        if not decide(connection, action, event, by=context.operator(), note=note):
            raise problems.Stop(
                f"Event {event} is not dead. See `gapless events list`.", problems.USAGE
            )
    typer.echo("Done.")
