"""`gapless quarantine`: lists, shows, retries and dismisses records that could not be applied."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops import problems
from ops.cli import context

if TYPE_CHECKING:
    from ops.quarantine import Place

Mapping = Annotated[str | None, typer.Argument(metavar="[MAPPING]", help="Only of this mapping.")]
Which = Annotated[
    str, typer.Argument(metavar="MAPPING|PLACE", help="A mapping, or PARTITION/OFFSET/INDEX.")
]
At = Annotated[str, typer.Argument(metavar="PLACE", help="PARTITION/OFFSET/INDEX, as listed.")]
Owner = Annotated[str | None, typer.Option("--partition-id", help="Only of this partition id.")]
Reason = Annotated[str | None, typer.Option(help="Only with this reason.")]
Note = Annotated[str, typer.Option(help="Why; kept with the decision.")]
Raw = Annotated[bool, typer.Option("--raw", help="Show key and bytes too: may be personal.")]
All = Annotated[bool, typer.Option("--all", help="Also resolved and dismissed ones.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]

quarantine = typer.Typer(
    help="List, show, retry and dismiss records that could not be applied.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    app.add_typer(quarantine, name="quarantine")


@quarantine.command("list")
def list_(
    mapping: Mapping = None,
    partition_id: Owner = None,
    reason: Reason = None,
    everything: All = False,
    limit: Limit = 200,
    json: context.Json = False,
) -> None:
    """List what is in quarantine and what waits to be tried again."""
    from ops import quarantine as shown

    states = (*shown.OPEN, "resolved", "dismissed") if everything else shown.OPEN
    rows = shown.listed(
        context.load_settings().postgres, mapping=mapping, partition_id=partition_id,
        reason=reason, states=states, limit=limit,
    )  # fmt: skip
    if json:
        context.print_json([shown.to_json(row, raw=False) for row in rows])
    else:
        typer.echo(shown.to_lines(rows))


@quarantine.command()
def show(place: At, raw: Raw = False, json: context.Json = False) -> None:
    """Show one record's exception with its evidence."""
    from ops import quarantine as shown

    rows = shown.shown(context.load_settings().postgres, _place(place))
    if not rows:
        raise problems.Stop(
            f"There is no exception at {place}; see `gapless quarantine list --all`.",
            problems.USAGE,
        )
    if json:
        context.print_json([shown.to_json(row, raw=raw) for row in rows])
    else:
        typer.echo("\n\n".join(shown.to_text(row, raw=raw) for row in rows))


@quarantine.command()
def retry(which: Which, partition_id: Owner = None, reason: Reason = None, note: Note = "") -> None:
    """Try them again now, with the live mapping; the owner of their partition does it."""
    number = _request("retry", which, partition_id, reason, note)
    typer.echo(f"{number} records are due now; `gapless quarantine list` shows what remains.")


@quarantine.command()
def dismiss(
    which: Which, partition_id: Owner = None, reason: Reason = None, note: Note = ""
) -> None:
    """Decide that they stay out of the table; the evidence is kept."""
    if not note:
        raise problems.Stop("Say why with --note: the decision is kept.", problems.USAGE)
    number = _request("dismiss", which, partition_id, reason, note)
    typer.echo(f"{number} records are dismissed.")


def _request(
    action: str, which: str, partition_id: str | None, reason: str | None, note: str
) -> int:
    import psycopg

    from apply.retry import request

    chosen: dict[str, Any] = {"mapping": which}
    if "/" in which:
        place = _place(which)
        chosen = {"partition": place.partition, "offset": place.offset, "index": place.index}
    narrowed = {"partition_id": partition_id, "reason": reason}
    chosen |= {name: value for name, value in narrowed.items() if value is not None}
    settings = context.load_settings()
    with psycopg.connect(settings.postgres, connect_timeout=5) as connection:
        return request(
            connection, action, by=context.operator(), note=note, now=datetime.now(UTC), **chosen
        )


def _place(text: str) -> Place:
    from ops.quarantine import parse_place

    try:
        return parse_place(text)
    except ValueError as error:
        raise problems.Stop(str(error), problems.USAGE) from None
