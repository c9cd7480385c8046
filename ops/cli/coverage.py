"""`gapless coverage`: which stretches of the source's time were fully searched."""

from __future__ import annotations

from typing import Annotated

import typer

from ops.cli import context

Pattern = Annotated[
    str | None,
    typer.Argument(metavar="[PARTITION_ID]", help="Only these: `*` stands for anything."),
]
Holes = Annotated[bool, typer.Option("--holes", help="Only what is not complete.")]


def coverage(pattern: Pattern = None, holes: Holes = False, json: context.Json = False) -> None:
    """Show which stretches were fully searched, with how many pages and records, and what is not."""
    from ops import coverage as shown

    found = shown.read(context.load_settings().postgres, pattern)
    if json:
        context.print_json(shown.to_json(found))
    else:
        typer.echo(shown.to_text(found, holes_only=holes))
