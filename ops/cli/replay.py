"""`gapless replay`: reads the log again for a mapping whose version was raised."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ops import problems
from ops.cli import context

if TYPE_CHECKING:
    from apply.replay import Progress, ReplayReport

Mapping = Annotated[str, typer.Argument(help="A mapping of the definitions.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would change.")]
Pause = Annotated[
    float,
    typer.Option("--pause", metavar="SECONDS", min=0, help="Rest after every read: throttle."),
]
_EVERY_S = 10.0
_OUTCOMES = ("applied", "superseded", "ignored", "quarantined", "retryable", "erased")


def replay(
    mapping: Mapping,
    dry_run: DryRun = False,
    pause: Pause = 0.0,
    json: context.Json = False,
    definitions: context.Definitions = None,
) -> None:
    """Read the log again with the mapping as it is now, beside live apply; asks no provider.

    Start it again after a crash, and it goes on. No event is published again.
    """
    from apply.replay import run_replay
    from ops.facts.log import connect
    from ops.failpoints import build
    from schemas.definitions.load import load_folder

    settings = context.load_settings(definitions)
    loaded = load_folder(settings.definitions).check()
    if mapping not in loaded.mappings:
        known = ", ".join(sorted(loaded.mappings)) or "none"
        raise problems.Stop(f"There is no mapping {mapping}; known: {known}.", problems.USAGE)
    context.configure_logging(settings)
    connect(settings)
    tell = Teller(sys.stderr)
    report = run_replay(
        settings, loaded, mapping, dry_run=dry_run, progress=tell,
        hit=build(settings.failpoints), pause_s=pause,
    )  # fmt: skip
    tell.end()
    if json:
        context.print_json(_json(report))
    else:
        typer.echo(_text(report))


class Teller:
    """One line that changes on a terminal, a line now and then elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._terminal = out, out.isatty()
        self._next_s = time.monotonic() + _EVERY_S

    def __call__(self, progress: Progress) -> None:
        share = progress.done / progress.total if progress.total else 1.0
        said = (
            f"{share:4.0%}  {progress.done:,} of {progress.total:,} offsets, "
            f"{progress.pages:,} pages"
        )
        if self._terminal:
            self._out.write(f"\r\x1b[K{said}")
        elif time.monotonic() >= self._next_s:
            self._out.write(f"{said}\n")
            self._next_s = time.monotonic() + _EVERY_S
        self._out.flush()

    def end(self) -> None:
        """Clears the line that changes."""
        if self._terminal:
            self._out.write("\r\x1b[K")


def _json(report: ReplayReport) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(report), "outcomes": dict(zip(_OUTCOMES, report.outcomes, strict=True))}


def _text(report: ReplayReport) -> str:
    counts = "  ".join(
        f"{name} {number:,}"
        for name, number in zip(_OUTCOMES, report.outcomes, strict=True)
        if number
    )
    name = f"{report.mapping} v{report.version}"
    lines = [
        f"{name}: {report.pages:,} pages of {report.offsets:,} offsets"
        + (", resumed" if report.resumed else ""),
        f"  outcomes      {counts or 'none'}",
    ]
    if report.dry_run:
        columns = "  ".join(f"{c} {n:,}" for c, n in sorted(report.changed_columns.items()))
        lines += [
            f"  would add     {report.added:,} rows",
            f"  would change  {report.changed:,} rows" + (f"   {columns}" if columns else ""),
            f"  would stay    {report.unchanged:,} rows",
            f"  would fail    {report.newly_failing:,} records that do not fail now",
            f"  would heal    {report.healed:,} records",
            "Nothing was written.",
        ]
    elif report.replaced:
        lines.append(f"  replaced      {report.replaced:,} open exceptions of older versions")
    return "\n".join(lines)
