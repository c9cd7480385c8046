"""`gapless replay`: reads the log again for a mapping whose version was raised."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from ops import problems
from ops.cli import context

if TYPE_CHECKING:
    from apply.replay_report import Progress
    from apply.scope import Scope
    from schemas.definitions.mapping import MappingSpec
    from schemas.settings import Settings

Mapping = Annotated[str, typer.Argument(help="A mapping of the definitions.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would change.")]
Shadow = Annotated[
    bool, typer.Option("--shadow", help="Fill a table beside the live one, then swap them.")
]
NoSwap = Annotated[
    bool, typer.Option("--no-swap", help="With --shadow: build and compare, and stop there.")
]
SwapBack = Annotated[
    bool,
    typer.Option("--swap-back", help="Catch the replaced table up and make it the live one again."),
]
Drop = Annotated[
    bool, typer.Option("--drop", help="Drop the table that stands beside: built, or replaced.")
]
Missing = Annotated[
    bool,
    typer.Option("--accept-missing", help="Swap though rows without an observation would be gone."),
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only what was logged since then.")
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="PARTITION:OFFSET", help="Only one partition, from there on."),
]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's pages.")]
Pause = Annotated[
    float,
    typer.Option("--pause", metavar="SECONDS", min=0, help="Rest after every batch: throttle."),
]
LagMax = Annotated[
    float,
    typer.Option(
        "--lag-max", metavar="SECONDS", min=0.1, help="Rest longer while live lags more than this."
    ),
]
_EVERY_S = 10.0


def replay(
    mapping: Mapping,
    dry_run: DryRun = False,
    shadow: Shadow = False,
    no_swap: NoSwap = False,
    swap_back: SwapBack = False,
    drop: Drop = False,
    accept_missing: Missing = False,
    since: Since = None,
    start: From = None,
    tenant: Tenant = None,
    pause: Pause = 0.0,
    lag_max: LagMax = 10.0,
    json: context.Json = False,
    definitions: context.Definitions = None,
) -> None:
    """Read the log again with the mapping as it is now, beside live apply; asks no provider.

    In place for what the table can hold, with --shadow for any change. Start it again after a
    crash, and it goes on. No event is published again.
    """
    from apply.interpreter import tune
    from apply.replay import run_dry, run_replay
    from apply.shadow import run_shadow
    from ops.facts.log import connect
    from ops.failpoints import build
    from ops.replay_text import as_json, as_text
    from schemas.definitions.load import load_folder

    refuse(
        {
            "--dry-run": dry_run, "--shadow": shadow, "--swap-back": swap_back, "--drop": drop,
            "--no-swap": no_swap, "--accept-missing": accept_missing, "--since": since is not None,
            "--from": start is not None, "--tenant": tenant is not None,
        }
    )  # fmt: skip
    scope = _scope(since, start, tenant)
    settings = context.load_settings(definitions)
    context.configure_logging(settings)
    if drop:
        _drop(settings, mapping, json)
        return
    loaded = load_folder(settings.definitions).check()
    if mapping not in loaded.mappings:
        raise problems.Stop(unknown(mapping, loaded.mappings.values()), problems.USAGE)
    connect(settings)
    tune()
    tell = Teller(sys.stderr, json=json)
    hit = build(settings.failpoints)
    if shadow or swap_back:
        report = run_shadow(
            settings, loaded, mapping, back=swap_back, swap=not no_swap, progress=tell, hit=hit,
            accept_missing=accept_missing, pause_s=pause, lag_max_s=lag_max,
        )  # fmt: skip
    else:
        run = run_dry if dry_run else run_replay
        report = run(
            settings, loaded, mapping, scope=scope, progress=tell, hit=hit, pause_s=pause,
            lag_max_s=lag_max,
        )  # fmt: skip
    tell.end()
    if json:
        context.print_json(as_json(report))
    else:
        typer.echo(as_text(report))


def unknown(name: str, mappings: Iterable[MappingSpec]) -> str:
    """That there is no such mapping; a name that is a table's names the mapping that fills it."""
    known = {one.name: {one.table, *(c.table for c in one.children.values())} for one in mappings}
    meant = [f"`gapless replay {mapping}`" for mapping, tables in known.items() if name in tables]
    if meant:
        return f"There is no mapping {name}; the table {name} is filled by {' and '.join(meant)}."
    return f"There is no mapping {name}; known: {', '.join(sorted(known)) or 'none'}."


def _drop(settings: Settings, mapping: str, as_json: bool) -> None:
    from apply.shadow_drop import drop_beside

    dropped = drop_beside(settings, mapping)
    if as_json:
        context.print_json({"mapping": mapping, "dropped": dropped})
    else:
        typer.echo(f"Dropped {dropped}.")


_ALONE = ("--dry-run", "--shadow", "--swap-back", "--drop")
_SCOPES = ("--since", "--from", "--tenant")


def refuse(given: dict[str, bool]) -> None:
    """Combinations without a meaning. Raises problems.Stop, saying why."""
    ways = [name for name in _ALONE if given[name]]
    if len(ways) > 1:
        raise problems.Stop(f"{' and '.join(ways)} are two things: say one.", problems.USAGE)
    parts = [name for name in _SCOPES if given[name]]
    way = ways[0] if ways else None
    if parts and way not in (None, "--dry-run"):
        raise problems.Stop(
            f"{way} is about the whole table, {parts[0]} about a part of it: a table built from a "
            "part would lack the rest. Leave one of them out.",
            problems.USAGE,
        )
    if given["--since"] and given["--from"]:
        raise problems.Stop("--since and --from both say where to begin: say one.", problems.USAGE)
    if given["--no-swap"] and way not in ("--shadow", "--swap-back"):
        raise problems.Stop("--no-swap belongs to --shadow or --swap-back.", problems.USAGE)
    if given["--accept-missing"] and way not in ("--shadow", "--swap-back"):
        raise problems.Stop("--accept-missing belongs to --shadow or --swap-back.", problems.USAGE)


def _scope(since: str | None, start: str | None, tenant: str | None) -> Scope:
    from apply.scope import Scope, parse_since, parse_start

    try:
        return Scope(
            since=None if since is None else parse_since(since),
            start=None if start is None else parse_start(start),
            tenant=tenant,
        )
    except ValueError as error:
        raise problems.Stop(str(error), problems.USAGE) from error


class Teller:
    """One line that changes on a terminal, a line now and then elsewhere; with `json` objects."""

    def __init__(self, out: TextIO, *, json: bool = False) -> None:
        self._out, self._json = out, json
        self._terminal = out.isatty() and not json
        self._next_s = time.monotonic() + _EVERY_S

    def __call__(self, progress: Progress) -> None:
        from ops.replay_text import progress_json, progress_text

        if self._terminal:
            self._out.write(f"\r\x1b[K{progress_text(progress)}")
        elif time.monotonic() >= self._next_s:
            said = progress_json(progress) if self._json else progress_text(progress)
            self._out.write(f"{said}\n")
            self._next_s = time.monotonic() + _EVERY_S
        self._out.flush()

    def end(self) -> None:
        """Clears the line that changes."""
        if self._terminal:
            self._out.write("\r\x1b[K")
