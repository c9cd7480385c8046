"""`gapless apply`: stage 2, from the log into Postgres."""

from __future__ import annotations

import typer

from ops.cli import context


def register(app: typer.Typer) -> None:
    app.command("apply")(apply)


def apply(definitions: context.Definitions = None) -> None:
    """Apply the log to Postgres, until it is told to stop."""
    from apply.service import run
    from ops.failpoints import build
    from schemas.definitions.load import load_folder

    settings = context.load_settings(definitions)
    hit = build(settings.failpoints)
    loaded = load_folder(settings.definitions).check()
    context.configure_logging(settings)
    context.tell_of_stopped_stack(settings, "postgres", "kafka")
    raise typer.Exit(run(settings, loaded, hit=hit))
