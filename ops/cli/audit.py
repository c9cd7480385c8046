"""`gapless audit`: proves from the log that every record has exactly one outcome."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ops import problems
from ops.cli import context

if TYPE_CHECKING:
    from schemas.settings import Settings


def register(app: typer.Typer) -> None:
    app.command("audit")(audit)


_EVERY_S = 15.0

State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="FILE",
        help="Keep what is proven in this file: a run that is ended goes on from there.",
    ),
]


def audit(
    json: context.Json = False, state: State = None, definitions: context.Definitions = None
) -> None:
    """Re-read the whole log and compare it with Postgres. Exit code 1 if anything is wrong."""
    from ops.audit import audit as run

    settings = context.load_settings(definitions)
    teller = _Teller()
    report = run(settings, starts=_starts(settings), keep=state, tell=teller.tell)
    teller.end()
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


class _Teller:
    """Progress for whoever watches: one line that changes, or in a log a line now and then."""

    def __init__(self) -> None:
        self._alive = sys.stderr.isatty()
        self._next_s = time.monotonic() + _EVERY_S

    def tell(self, what: str) -> None:
        if self._alive:
            sys.stderr.write(f"\r\x1b[K{what}")
            sys.stderr.flush()
        elif time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _EVERY_S
            print(what, file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._alive:
            self.tell("")
