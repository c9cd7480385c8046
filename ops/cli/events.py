"""`gapless events`: events that wait to be published, and decisions on dead ones."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ops import problems
from ops.cli import context

Number = Annotated[int, typer.Argument(metavar="EVENT", help="Its number, as listed.")]
Which = Annotated[
    str, typer.Argument(metavar="EVENT|MAPPING", help="Its number, or all of a mapping.")
]
By = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Who decides; else GAPLESS_OPERATOR, or this account."),
]
Note = Annotated[str, typer.Option(help="Why; kept with the decision.")]
Mapping = Annotated[str | None, typer.Argument(metavar="[MAPPING]", help="Only of this mapping.")]
State = Annotated[
    list[str] | None,
    typer.Option(help="dead, unsent, sent or skipped; can be given again. Else dead and unsent."),
]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]
Payload = Annotated[bool, typer.Option("--payload", help="Key and content too: may be personal.")]

events = typer.Typer(
    help="List events that wait, retry or skip dead ones.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    app.add_typer(events, name="events")


@events.command("list")
def list_(
    mapping: Mapping = None, state: State = None, limit: Limit = 200, json: context.Json = False
) -> None:
    """List unsent and dead events; a dead one holds up the newer ones of its key."""
    from ops.relay.decisions import STATES, WAITING, waiting

    alien = sorted(set(state or ()) - set(STATES))
    if alien:
        raise problems.Stop(
            f"--state {alien[0]}: it is one of {', '.join(STATES)}.", problems.USAGE
        )
    dsn = context.load_settings().postgres
    rows = waiting(dsn, limit, states=tuple(state or WAITING), mapping=mapping)
    if json:
        context.print_json([_plain(row) for row in rows])
        return
    for row in rows:
        typer.echo(
            f"{row['id']:>8}  {row['state']:<7} {row['mapping']}  {row['type']} {_where(row)}"
            f"  sequence {row['sequence']}  {row['attempts']} attempts  {row['created_at']:%F %T}"
        )
        if row["error"] and row["state"] != "sent":
            typer.echo(f"{'':>8}  {row['error']}")
    if not rows:
        typer.echo("Nothing waits to be published." if not state else "There are none.")


@events.command()
def show(event: Number, payload: Payload = False, json: context.Json = False) -> None:
    """Show one event: its state, why it is not sent, what waits behind it, what was decided."""
    from json import dumps

    from ops.relay.decisions import shown

    row = shown(context.load_settings().postgres, event)
    if row is None:
        raise problems.Stop(f"There is no event {event}.", problems.USAGE)
    if not payload:
        del row["payload"], row["key"]
    plain = _plain(row)
    if json:
        context.print_json(plain)
        return
    if payload:
        plain["payload"] = dumps(plain["payload"], ensure_ascii=False)
    for name, value in plain.items():
        if name != "decisions":
            typer.echo(f"{name:<16} {'-' if value is None else value}")
    for one in plain["decisions"]:
        typer.echo(f"{'decided':<16} {one['at']} {one['action']} by {one['by']}: {one['note']}")


@events.command()
def retry(which: Which, by: By = None, note: Note = "") -> None:
    """Publish a dead event again, or now what waits for its next try."""
    _decide("retry", which, by, note)


@events.command()
def skip(which: Which, by: By = None, note: Note = "") -> None:
    """Never publish a dead event; newer ones of its key go on."""
    if not note:
        raise problems.Stop("Say why with --note: the decision is kept.", problems.USAGE)
    _decide("skip", which, by, note)


def _decide(action: str, which: str, by: str | None, note: str) -> None:
    import psycopg

    from ops.relay.decisions import decide

    chosen = int(which) if which.isdigit() else which
    with psycopg.connect(context.load_settings().postgres, connect_timeout=5) as connection:
        done = decide(connection, action, chosen, by=by or context.operator(), note=note)
    if not done:
        what = f"Event {which} is not dead" if which.isdigit() else f"No event of {which} is dead"
        raise problems.Stop(f"{what}. See `gapless events list`.", problems.FINDING)
    said = {"retry": "to be published again", "skip": "skipped"}[action]
    typer.echo(f"{len(done)} event{'s' * (len(done) != 1)} {said}.")


def _where(row: dict[str, Any]) -> str:
    return "posted" if row["topic"] is None else f"to {row['topic']}"


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Times as text, below too."""
    return {
        name: [_plain(one) for one in value]
        if isinstance(value, list)
        else value.isoformat()
        if hasattr(value, "isoformat")
        else value
        for name, value in row.items()
    }
