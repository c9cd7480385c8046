"""`gapless init`: begin a definition: from a shipped one, a commented starting point, or a tap's words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops import problems
from ops.cli import context

if TYPE_CHECKING:
    from schemas.definitions.load import Definitions
    from schemas.definitions.programs import SingerSpec
    from schemas.definitions.source import SourceSpec

Source = Annotated[
    str | None,
    typer.Argument(metavar="[SOURCE]", help="A shipped definition, or a name for a new one."),
]
Shipped = Annotated[bool, typer.Option("--list", help="Show what is shipped, and write nothing.")]
Schema = Annotated[bool, typer.Option("--schema", help="Write the schemas for editors alone.")]
FromSinger = Annotated[
    str | None,
    typer.Option(
        "--from-singer",
        metavar="SOURCE/STREAM",
        help="Print a mapping for a stream with the plan `singer`, from what its tap declares.",
    ),
]


def init(
    source: Source = None,
    shipped: Shipped = False,
    schema: Schema = False,
    from_singer: FromSinger = None,
    json: context.Json = False,
    definitions: context.Definitions = None,
) -> None:
    """Write the first files of a source; files that are there are left alone.

    The name of a shipped definition copies it. Any other name gets a source and a mapping to fill
    in. Exit code 2: not a name; 3: a tap does not say what its records are; 4: a file is in the way.
    """
    from ops.scaffold import files, starting_point
    from ops.scaffold import shipped as known

    if sum((source is not None, shipped, schema, from_singer is not None)) != 1:
        raise problems.Stop(
            "Write `gapless init SOURCE`, `gapless init --list`, `gapless init --schema` or "
            "`gapless init --from-singer SOURCE/STREAM`.",
            problems.USAGE,
        )
    if shipped:
        _list(known.shipped(), json)
        return
    folder = context.load_settings(definitions).definitions
    if from_singer is not None:
        typer.echo(_drafted(folder, from_singer), nl=False)
        return
    if source is None:
        _written(files.write_schemas(folder), [], [], json)
        return
    text = known.shipped().get(source)
    made = starting_point.starting_point(source) if text is None else known.copied(source, text)
    secrets = known.secrets_of("".join(made.values()))
    paths = files.write(folder, made)
    where = "" if definitions is None else f" -d {definitions}"
    _written(paths, secrets, _next(source, text is not None, secrets, where), json)


def _drafted(folder: Path, wanted: str) -> str:
    """A mapping drafted from what a tap says; it runs with its configuration, nothing is stored."""
    from ingest.taps.messages import TapFault
    from ops.scaffold.draft import mapping_draft
    from ops.scaffold.shape import shape_of
    from schemas.definitions.load import load_folder
    from schemas.definitions.secrets import SecretUnavailable
    from schemas.definitions.tenants import current_tenants

    context.logs_to_stderr()
    source, spec, stream = _tapped(load_folder(folder), wanted)
    tenant = next(iter(current_tenants(source)), None)
    try:
        shape = shape_of(spec, source.limits, tenant, folder)
    except TapFault as fault:
        message = f"{fault}\n  Needed: {fault.unblocked_by}."
        raise problems.Stop(message, problems.UNREACHABLE) from None
    except SecretUnavailable as error:
        raise problems.Stop(str(error), problems.UNREACHABLE) from None
    return mapping_draft(source.name, stream, shape)


def _tapped(loaded: Definitions, wanted: str) -> tuple[SourceSpec, SingerSpec, str]:
    """The stream that is meant; problems elsewhere do not matter to it, nor do its mappings."""
    from schemas.definitions.programs import SingerSpec

    name, _, stream_name = wanted.partition("/")
    source = loaded.sources.get(name)
    if source is None:
        loaded.check()
    stream = None if source is None else source.streams.get(stream_name)
    if source is None or stream is None or not isinstance(stream.program, SingerSpec):
        taps = [
            f"{one.source}/{one.name}"
            for each in loaded.sources.values()
            for one in each
            if isinstance(one.program, SingerSpec)
        ]
        known = ", ".join(sorted(taps)) or "none"
        message = f"There is no stream {wanted} that a tap reads; known: {known}."
        raise problems.Stop(message, problems.USAGE)
    return source, stream.program, stream.name


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
