"""`gapless`: collects the verbs and turns expected errors into one message and an exit code."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from typing import TYPE_CHECKING, Annotated

import typer

import ops.cli
from ops import problems
from ops.cli import context

if TYPE_CHECKING:
    from schemas.settings import Settings

_HELP = (
    "Copies what HTTP APIs say into Postgres, through Kafka, and proves that nothing was skipped."
)


def build_app() -> typer.Typer:
    """The application with every verb that stands in this folder."""
    app = typer.Typer(
        help=_HELP,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_whole)
    for found in sorted(module.name for module in pkgutil.iter_modules(ops.cli.__path__)):
        if found == "main":
            continue
        module = importlib.import_module(f"ops.cli.{found}")
        if hasattr(module, "register"):
            module.register(app)
        elif callable(verb := getattr(module, found, None)):
            app.command(found)(verb)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"gapless {version('gapless')}")
        raise typer.Exit


def _whole(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Options of the application itself; the verbs have their own."""


def main() -> None:
    """Run one verb; the process ends with its exit code."""
    try:
        build_app()(prog_name="gapless")
    except SystemExit:
        raise
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        problem = problems.explain(error, _settings())
        if problem is None:
            traceback.print_exc()
            sys.exit(problems.INTERNAL)
        typer.echo(problem.message, err=True)
        sys.exit(problem.exit_code)


def _settings() -> Settings | None:
    try:
        return context.load_settings()
    except problems.BadSettings:
        return None


if __name__ == "__main__":
    main()
