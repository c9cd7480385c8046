"""`gapless audit`: proves from the log that every record has exactly one outcome."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from ops import problems
from ops.cli import context

if TYPE_CHECKING:
    from schemas.settings import Settings


def register(app: typer.Typer) -> None:
    app.command("audit")(audit)


def audit(json: context.Json = False, definitions: context.Definitions = None) -> None:
    """Re-read the whole log and compare it with Postgres. Exit code 1 if anything is wrong."""
    from ops.audit import audit as run

    settings = context.load_settings(definitions)
    report = run(settings, starts=_starts(settings), tell=_tell)
    _tell("")
    if json:
        context.print_json(report.to_json())
    else:
        typer.echo(report.to_text())
    if not report.clean:
        raise typer.Exit(problems.FINDING)


def _starts(settings: Settings) -> dict[tuple[str, str], str]:
    """Declared starts make the audit stricter; it works without the definitions."""
    from ops.audit.starts import declared_starts
    from schemas.definitions.load import load_folder

    return declared_starts(load_folder(settings.definitions).sources.values())


def _tell(what: str) -> None:
    """Progress for whoever watches; the last line clears itself."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what}")
        sys.stderr.flush()
