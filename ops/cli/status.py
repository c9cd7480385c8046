"""`gapless status`: what is claimed, what is applied, what is blocked and what unblocks it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from ops.cli import context

if TYPE_CHECKING:
    from ops.facts.ask import Asking
    from ops.status import Status
    from ops.status.expected import Expected
    from schemas.settings import Settings

Pattern = Annotated[
    str | None,
    typer.Argument(metavar="[PARTITION_ID]", help="Only these: `*` stands for anything."),
]
Watch = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=0.5, help="Show it again and again.")
]


def status(
    pattern: Pattern = None,
    json: context.Json = False,
    watch: Watch = None,
    definitions: context.Definitions = None,
) -> None:
    """Show each partition id: both checkpoints, lag, coverage, horizons, and what is blocked.

    Works while Kafka or Postgres is down, with what the other one knows; what neither knows is
    unknown, in JSON null. Exit code 3 if neither could be asked, 4 if topics or tables are missing.
    """
    from ops import problems
    from ops.facts.ask import Asking
    from ops.status.expected import expected
    from schemas.definitions.load import load_folder

    settings = context.load_settings(definitions)
    loaded = load_folder(settings.definitions)
    if loaded.errors:
        number = len(loaded.errors)
        told = f"{number} problem{'s' if number > 1 else ''} with the definitions in {settings.definitions}"
        typer.echo(f"{told}: schedules and horizons may be unknown; see `gapless check`.", err=True)
    known = expected(loaded)
    asking = Asking(settings)
    while True:
        found = _read(settings, asking, known, pattern)
        _print(found, json, clear=watch is not None)
        if watch is None:
            break
        time.sleep(watch)
    if found.topics_missing or found.tables_missing:
        raise typer.Exit(problems.REFUSED)
    if found.kafka is not None and found.postgres is not None:
        raise typer.Exit(problems.UNREACHABLE)


def _read(settings: Settings, asking: Asking, known: Expected, pattern: str | None) -> Status:
    from dataclasses import replace
    from fnmatch import fnmatchcase

    from ops.status import assemble
    from ops.status.sink import KIND

    log, sink = asking.ask(outcomes=True)
    found = assemble(settings, time.time_ns() // 1000, log, sink, known)
    if pattern is None:
        return found
    kept = tuple(p for p in found.partition_ids if fnmatchcase(p.partition_id, pattern))
    names = {p.partition_id for p in kept}
    # the sink is everybody's
    troubles = tuple(t for t in found.troubles if t.partition_id in names or t.kind == KIND)
    return replace(found, partition_ids=kept, troubles=troubles)


def _print(found: Status, json: bool, *, clear: bool) -> None:
    from ops.status.as_json import to_json
    from ops.status.text import to_text

    if json:
        context.print_json(to_json(found))
        return
    if clear:
        typer.echo("\x1b[2J\x1b[H", nl=False)
    typer.echo(to_text(found))
