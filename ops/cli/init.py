"""`gapless init`: begin a definition, from one that is shipped or from a commented starting point."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ops import problems
from ops.cli import context

Source = Annotated[
    str | None,
    typer.Argument(metavar="[SOURCE]", help="A shipped definition, or a name for a new one."),
]
Shipped = Annotated[bool, typer.Option("--list", help="Show what is shipped, and write nothing.")]
Schema = Annotated[bool, typer.Option("--schema", help="Write the schemas for editors alone.")]


def init(
    source: Source = None,
    shipped: Shipped = False,
    schema: Schema = False,
    json: context.Json = False,
    definitions: context.Definitions = None,
) -> None:
    """Write the first files of a source; files that are there are left alone.

    The name of a shipped definition copies it. Any other name gets a source and a mapping to fill
    in. Exit code 2: not a name; 4: a file is in the way.
    """
    from ops.scaffold import files, starting_point
    from ops.scaffold import shipped as known

    if sum((source is not None, shipped, schema)) != 1:
        raise problems.Stop(
            "Write `gapless init SOURCE`, `gapless init --list` or `gapless init --schema`.",
            problems.USAGE,
        )
    if shipped:
        _list(known.shipped(), json)
        return
    folder = context.load_settings(definitions).definitions
    if source is None:
        _written(files.write_schemas(folder), [], [], json)
        return
    text = known.shipped().get(source)
    made = starting_point.starting_point(source) if text is None else known.copied(source, text)
    secrets = known.secrets_of("".join(made.values()))
    paths = files.write(folder, made)
    where = "" if definitions is None else f" -d {definitions}"
    _written(paths, secrets, _next(source, text is not None, secrets, where), json)


def _list(shipped: dict[str, str], json: bool) -> None:
    from ops.scaffold.shipped import title

    titles = {name: title(text) for name, text in shipped.items()}
    if json:
        context.print_json([{"source": name, "title": said} for name, said in titles.items()])
        return
    for name, said in titles.items():
        typer.echo(f"{name:<10} {said}")
    typer.echo(
        "Copy one with `gapless init SOURCE`. Its first lines say what it takes for granted."
    )


def _next(source: str, copied: bool, secrets: list[str], where: str) -> list[str]:
    """What to do with the files; `where`: the option that names their folder."""
    adapt = "adapt it (tenants, fields, what it assumes)" if copied else "fill it in"
    names = " and ".join(secrets)
    return [
        f"Now {adapt}, set {names}, then look at what it asks and what comes of it:",
        f"  gapless check {source} --explain{where}",
        f"  gapless check {source}{where}",
    ]


def _written(paths: list[Path], secrets: list[str], following: list[str], json: bool) -> None:
    if json:
        told: dict[str, Any] = {"written": [str(path) for path in paths], "secrets": secrets}
        context.print_json(told)
        return
    for path in paths:
        typer.echo(f"written  {path}")
    for line in following:
        typer.echo(line)
