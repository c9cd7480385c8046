"""`gapless control`: decisions that ingest obeys: pause, resume, reset, accept-failed, snapshot-now."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops import problems
from ops.cli import context

if TYPE_CHECKING:
    from schemas.records import ControlAction

About = Annotated[
    str, typer.Argument(metavar="PARTITION_ID", help="Or a source, or source/stream.")
]
Owner = Annotated[str, typer.Argument(metavar="PARTITION_ID")]
Note = Annotated[str, typer.Option(help="Why; kept with the decision.")]
Plan = Annotated[
    str | None, typer.Option(help="The plan by its name, such as cursor; else every plan.")
]

control = typer.Typer(
    help="Pause, resume or reset reading, accept failed intervals, ask for a snapshot.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    app.add_typer(control, name="control")


@control.command()
def pause(about: About, note: Note = "", definitions: context.Definitions = None) -> None:
    """Stop asking the provider; what is fetched already is kept."""
    _decide("pause", about, note=note, definitions=definitions)


@control.command()
def resume(about: About, note: Note = "", definitions: context.Definitions = None) -> None:
    """Go on after a pause, or try a blocked one again."""
    _decide("resume", about, note=note, definitions=definitions)


@control.command()
def reset(
    about: Owner, plan: Plan = None, note: Note = "", definitions: context.Definitions = None
) -> None:
    """Begin again from the start: everything is asked for once more, nothing is deleted."""
    _need(note)
    _decide("reset", about, plan=plan, note=note, definitions=definitions)


@control.command("accept-failed")
def accept_failed(
    about: Owner,
    plan: Plan = None,
    start: Annotated[str | None, typer.Option(help="Start of the interval, as shown.")] = None,
    end: Annotated[str | None, typer.Option(help="End of the interval, as shown.")] = None,
    note: Note = "",
    definitions: context.Definitions = None,
) -> None:
    """Accept by name that an interval could not be fetched; the rest goes on past it."""
    from ops.control import RefusedDecision, check_failed
    from ops.facts.deployment import read_log

    try:
        log = read_log(context.load_settings(definitions))
        plan = check_failed(log, about, plan, start, end)
    except RefusedDecision as refused:
        raise problems.Stop(str(refused), problems.USAGE) from None
    _need(note)
    _decide(
        "accept_failed", about, plan=plan, start=start, end=end, note=note, definitions=definitions
    )


@control.command("snapshot-now")
def snapshot_now(about: About, note: Note = "", definitions: context.Definitions = None) -> None:
    """Take a full listing at the next poll, whenever the last one was."""
    _decide("snapshot_now", about, note=note, definitions=definitions)


def _decide(
    action: ControlAction,
    about: str,
    *,
    note: str,
    definitions: Path | None,
    plan: str | None = None,
    start: str | None = None,
    end: str | None = None,
) -> None:
    from ops.control import RefusedDecision, check_about, check_listed, send
    from ops.facts.deployment import read_log
    from ops.status.expected import expected
    from schemas.definitions.load import load_folder
    from schemas.records import Control

    settings = context.load_settings(definitions)
    declared = expected(load_folder(settings.definitions))
    try:
        known = {*declared.partition_ids, *read_log(settings).checkpoints}
        meant = check_about(about, sorted(known))
        if action == "snapshot_now":
            meant = check_listed(about, meant, declared.listings)
    except RefusedDecision as refused:
        raise problems.Stop(str(refused), problems.USAGE) from None
    decision = Control(
        action=action, about=about, plan=plan, start=start, end=end, by=context.operator(),
        note=note, at=time.time_ns() // 1000,
    )  # fmt: skip
    offset = send(settings, decision)
    number = f"{len(meant)} partition id{'' if len(meant) == 1 else 's'}"
    typer.echo(f"{action.replace('_', '-')} {about} ({number}) is written, decision {offset}.")
    typer.echo("ingest obeys within seconds; `gapless status` shows it.")


def _need(note: str) -> None:
    if not note:
        raise problems.Stop("Say why with --note: the decision is kept.", problems.USAGE)
