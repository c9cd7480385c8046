"""`gapless probe`: what a definition claims of its provider beside what the provider does."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops import problems
from ops.cli import context

if TYPE_CHECKING:
    from ops.probe.fix import Fixed
    from ops.probe.run import Report
    from schemas.definitions.load import Definitions
    from schemas.definitions.source import SourceSpec
    from schemas.settings import Settings

Source = Annotated[str, typer.Argument(metavar="SOURCE", help="The source to probe.")]
Requests = Annotated[
    int, typer.Option("--requests", min=1, help="Most requests, retries and sign-ins included.")
]
Fix = Annotated[bool, typer.Option("--fix", help="Write what was proven into the definition.")]


def probe(
    source: Source,
    requests: Requests = 60,
    fix: Fix = False,
    json: context.Json = False,
    definitions: context.Definitions = None,
) -> None:
    """Ask the provider itself: declared beside observed, and what each difference would lose.

    Reads only; needs neither Kafka nor Postgres. Exit code 1: a difference loses something;
    2: a definition is wrong; 3: the provider gives no page, or refuses the credentials.
    """
    from ops.probe.report import as_json, as_text, loses, would_write
    from ops.probe.run import probe as run
    from schemas.definitions.load import load_folder

    settings = context.load_settings(definitions)
    context.logs_to_stderr()
    loaded = load_folder(settings.definitions)
    chosen = _chosen(loaded, source)
    report = run(settings, loaded, chosen, requests, _tell)
    _tell("")
    fixed = _fixed(report, settings, chosen) if fix else None
    if json:
        context.print_json({**as_json(report), **_told(fixed)})
    else:
        last = would_write(report) if fixed is None else _lines(fixed)
        typer.echo("\n".join([*as_text(report), *last]))
    if report.denied is not None or all(
        one.trouble is not None for one in report.streams if one.stream.plans
    ):
        raise typer.Exit(problems.UNREACHABLE)
    if loses(report):
        raise typer.Exit(problems.FINDING)


def _chosen(loaded: Definitions, source: str) -> SourceSpec:
    found = loaded.sources.get(source)
    if found is None:
        loaded.check()
        known = ", ".join(sorted(loaded.sources)) or "none"
        raise problems.Stop(f"There is no source {source}; known: {known}.", problems.USAGE)
    if not any(stream.plans for stream in found):
        said = f"Programs alone ask {source}: there is no request that could be probed."
        raise problems.Stop(said, problems.USAGE)
    return found


def _fixed(report: Report, settings: Settings, source: SourceSpec) -> Fixed:
    from ops.probe.fix import fix

    return fix(report, settings.definitions / source.file, source.file)


def _told(fixed: Fixed | None) -> dict[str, Any]:
    return {} if fixed is None else {"diff": fixed.diff, "by_hand": fixed.by_hand}


def _lines(fixed: Fixed) -> list[str]:
    diff = fixed.diff.rstrip("\n").splitlines()
    written = [*diff, "Written."] if diff else ["Nothing was written."]
    return [*written, *fixed.by_hand]


def _tell(what: str) -> None:
    """Progress for whoever watches; the last line clears itself."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{what}")
        sys.stderr.flush()
