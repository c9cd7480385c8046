"""`gapless quarantine`: lists, shows, retries and dismisses records that could not be applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops import problems
from ops.cli import context

if TYPE_CHECKING:
    from ops.deciding import About
    from ops.quarantine import Place

Mapping = Annotated[str | None, typer.Argument(metavar="[MAPPING]", help="Only of this mapping.")]
Which = Annotated[
    str | None,
    typer.Argument(metavar="[MAPPING|PLACE]", help="A mapping, or PARTITION/OFFSET/INDEX."),
]
At = Annotated[str, typer.Argument(metavar="PLACE", help="PARTITION/OFFSET/INDEX, as listed.")]
Named = Annotated[str | None, typer.Option("--mapping", help="Only of this mapping.")]
Owner = Annotated[str | None, typer.Option("--partition-id", help="Only of this partition id.")]
Tenant = Annotated[str | None, typer.Option(help="Only of this tenant.")]
Reason = Annotated[str | None, typer.Option(help="Only with this reason.")]
State = Annotated[
    list[str] | None, typer.Option(help="Only in this state; may be given several times.")
]
Note = Annotated[str, typer.Option(help="Why; kept with the decision.")]
By = Annotated[str, typer.Option(help="Who decides; else GAPLESS_OPERATOR, else the account.")]
Raw = Annotated[bool, typer.Option("--raw", help="Show key and bytes too: may be personal.")]
All = Annotated[bool, typer.Option("--all", help="Also resolved and dismissed ones.")]
Every = Annotated[bool, typer.Option("--all", help="Everything that is open.")]
Limit = Annotated[int, typer.Option(min=1, help="At most so many.")]
Counts = Annotated[bool, typer.Option("--counts", help="Only how many, by mapping and reason.")]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for the result.")]

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
    tenant: Tenant = None,
    reason: Reason = None,
    state: State = None,
    everything: All = False,
    counts: Counts = False,
    limit: Limit = 200,
    json: context.Json = False,
) -> None:
    """List what is in quarantine and what waits to be tried again."""
    from ops import quarantine as shown

    wrong = [one for one in state or () if one not in shown.STATES]
    if wrong:
        raise problems.Stop(
            f"There is no state {wrong[0]}; write one of {', '.join(shown.STATES)}.", problems.USAGE
        )
    states = tuple(state or (shown.STATES if everything else shown.OPEN))
    chosen = shown.Chosen(mapping, partition_id, tenant, reason, states)
    dsn = context.load_settings().postgres
    rows = shown.counted(dsn, chosen) if counts else shown.listed(dsn, chosen, limit=limit)
    if json:
        context.print_json([shown.to_json(row, raw=False) for row in rows])
    else:
        typer.echo(shown.counts_to_lines(rows) if counts else shown.to_lines(rows))


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
def retry(
    which: Which = None,
    mapping: Named = None,
    partition_id: Owner = None,
    tenant: Tenant = None,
    reason: Reason = None,
    everything: Every = False,
    note: Note = "",
    by: By = "",
    wait: Wait = 10.0,
) -> None:
    """Try them again now, with the mapping in use; the owner of their partition does it."""
    from ops.deciding import decide, watch

    about = _about(which, mapping, partition_id, tenant, reason, everything=everything)
    dsn = context.load_settings().postgres
    moved = decide(dsn, "retry", about, by=by or context.operator(), note=note)
    typer.echo(watch(dsn, moved, wait))


@quarantine.command()
def dismiss(
    which: Which = None,
    mapping: Named = None,
    partition_id: Owner = None,
    tenant: Tenant = None,
    reason: Reason = None,
    everything: Every = False,
    note: Note = "",
    by: By = "",
) -> None:
    """Decide that they stay out of the table; who and why is kept."""
    from ops.deciding import decide

    if not note.strip():
        raise problems.Stop("Say why with --note: the decision is kept.", problems.USAGE)
    about = _about(which, mapping, partition_id, tenant, reason, everything=everything)
    dsn = context.load_settings().postgres
    moved = decide(dsn, "dismiss", about, by=by or context.operator(), note=note)
    records = "1 record is" if len(moved) == 1 else f"{len(moved)} records are"
    typer.echo(f"{records} dismissed by {by or context.operator()}.")


def _about(
    which: str | None,
    mapping: str | None,
    partition_id: str | None,
    tenant: str | None,
    reason: str | None,
    *,
    everything: bool,
) -> About:
    from ops.deciding import About

    given: dict[str, Any] = {
        "mapping": mapping, "partition_id": partition_id, "tenant": tenant, "reason": reason
    }  # fmt: skip
    if which is not None and "/" in which:
        place = _place(which)
        given |= {"partition": place.partition, "offset": place.offset, "index": place.index}
    elif which is not None:
        given["mapping"] = which
    chosen = {name: value for name, value in given.items() if value is not None}
    if not chosen and not everything:
        raise problems.Stop(
            "Say which: a mapping, a PLACE as listed, --reason, --tenant, --partition-id or --all.",
            problems.USAGE,
        )
    return About(chosen, everything)


def _place(text: str) -> Place:
    from ops.quarantine import parse_place

    try:
        return parse_place(text)
    except ValueError as error:
        raise problems.Stop(str(error), problems.USAGE) from None
