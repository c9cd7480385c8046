"""`gapless explain`: every observation that touched a row, and what became of it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ops import problems
from ops.cli import context

if TYPE_CHECKING:
    from schemas.definitions.mapping import MappingSpec

Table = Annotated[str, typer.Argument(help="A target table.")]
Key = Annotated[
    list[str], typer.Argument(metavar="KEY…", help="Values in the order of the key, or NAME=VALUE.")
]
Raw = Annotated[bool, typer.Option("--raw", help="Show bytes and personal columns too.")]


def explain(
    table: Table,
    key: Key,
    raw: Raw = False,
    json: context.Json = False,
    definitions: context.Definitions = None,
) -> None:
    """Show every observation that touched a row, superseded and refused ones too.

    Exit code 1 if neither a row nor a record in the log has the key.
    """
    from ops.explain import explain as run
    from schemas.definitions.load import load_folder

    settings = context.load_settings(definitions)
    loaded = load_folder(settings.definitions)
    spec = next((spec for spec in loaded.mappings.values() if spec.table == table), None)
    if spec is None:
        known = ", ".join(sorted(spec.table for spec in loaded.mappings.values())) or "none"
        raise problems.Stop(
            f"No mapping in {settings.definitions} fills the table {table}; known: {known}.",
            problems.USAGE,
        )
    found = run(settings, spec, _named(spec, key), raw=raw, tell=_tell)
    if json:
        context.print_json(found.to_json(raw=raw))
    else:
        typer.echo(found.to_text(raw=raw))
    if found.unknown:
        raise typer.Exit(problems.FINDING)


def _named(spec: MappingSpec, given: list[str]) -> dict[str, str]:
    """Values by key column, from `name=value` or by their order."""
    named = [text.partition("=") for text in given]
    if all(separator and name in spec.key for name, separator, _ in named):
        found = {name: value for name, _, value in named}
    else:
        found = dict(zip(spec.key, given, strict=False))
    if len(given) != len(spec.key) or set(found) != set(spec.key):
        raise problems.Stop(
            f"The key of {spec.table} is {', '.join(spec.key)}: give {len(spec.key)} values.",
            problems.USAGE,
        )
    return found


def _tell(done: int, end: int) -> None:
    """Progress for whoever watches."""
    if sys.stderr.isatty() and done % 1000 == 0:
        sys.stderr.write(f"\r\x1b[Koffset {done:,} of {end:,}")
        sys.stderr.flush()
