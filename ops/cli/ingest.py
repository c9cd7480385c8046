"""`gapless ingest`: stage 1, from the sources into the log."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from ops import problems
from ops.cli import context

Once = Annotated[bool, typer.Option("--once", help="Do what is due, then exit: for cron.")]
Budget = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="With --once: stop before this is used up, as in 240s."),
]


def register(app: typer.Typer) -> None:
    app.command("ingest")(ingest)


def ingest(
    once: Once = False, budget: Budget = None, definitions: context.Definitions = None
) -> None:
    """Fetch what is due from the sources into the log. Needs Kafka, not Postgres.

    Exit codes of --once: 0 nothing is left; 1 something is blocked and needs an operator; 2 the
    budget is not above the reserve; 3 Kafka does not answer; 4 refused; 5 more to do; 6 busy, another
    member of the group works. Without --once: 0 stopped as asked, 3 and 4 as above.
    """
    from ingest.service import reserve_s, run
    from ops.facts.log import connect
    from ops.failpoints import build
    from schemas.definitions.durations import parse_duration_us
    from schemas.definitions.load import load_folder
    from schemas.definitions.problems import NotationError

    if budget is not None and not once:
        raise problems.Stop(
            "--budget goes with --once: without it, ingest runs on.", problems.USAGE
        )
    try:
        budget_s = None if budget is None else parse_duration_us(budget) / 1e6
    except NotationError as error:
        raise problems.Stop(f"--budget: {error}. {error.advice}", problems.USAGE) from None
    settings = context.load_settings(definitions)
    hit = build(settings.failpoints)
    loaded = load_folder(settings.definitions).check()
    context.configure_logging(settings)
    if budget_s is None or budget_s > reserve_s(loaded):  # else `run` says so, and asks nobody
        connect(settings)
    raise typer.Exit(asyncio.run(run(settings, loaded, hit=hit, once=once, budget_s=budget_s)))
