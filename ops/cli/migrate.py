"""`gapless migrate`: tables of Gapless, then registered mapping versions and their tables."""

from __future__ import annotations

import typer

from ops.cli import context


def register(app: typer.Typer) -> None:
    app.command("migrate")(migrate)


def migrate(definitions: context.Definitions = None) -> None:
    """Create or upgrade the tables, and register the mappings of the definitions."""
    import psycopg

    from apply.tables import migrate_mappings
    from ops.migrate import migrate as apply_migrations
    from schemas.definitions.load import load_folder

    settings = context.load_settings(definitions)
    loaded = load_folder(settings.definitions).check()
    for name in apply_migrations(settings.postgres):
        typer.echo(f"migration  {name}")
    with psycopg.connect(settings.postgres) as connection:
        for line in migrate_mappings(connection, loaded):
            typer.echo(f"mapping    {line}")
    typer.echo("The database is ready.")
