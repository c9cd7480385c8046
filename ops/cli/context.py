"""What every verb starts from: settings, logging, definitions, and how results are printed.

Addresses come from the environment, else from the running local stack, else from the defaults.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ops.problems import STACK, BadSettings, stopped_stack

if TYPE_CHECKING:
    from schemas.settings import Settings

STACK_NOTE = STACK / "stack.json"

Definitions = Annotated[
    Path | None,
    typer.Option(
        "--definitions",
        "-d",
        metavar="FOLDER",
        help="Folder that holds sources/ and mappings/. Else GAPLESS_DEFINITIONS, else here.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def load_settings(definitions: Path | None = None, **overrides: Any) -> Settings:
    """Settings of this call; `overrides` win over the environment, None leaves a value alone."""
    from pydantic import ValidationError

    from schemas.settings import Settings

    given = {name: value for name, value in overrides.items() if value is not None}
    if definitions is not None:
        given["definitions"] = definitions
    for name, address in _stack_addresses().items():
        if f"GAPLESS_{name.upper()}" not in os.environ:
            given.setdefault(name, address)
    try:
        return Settings(**given)
    except ValidationError as error:
        lines = [
            f"GAPLESS_{'.'.join(str(part) for part in fault['loc']).upper()}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
        raise BadSettings("\n".join(lines)) from None


def _stack_addresses() -> dict[str, str]:
    """Kafka and Postgres of the local stack of this folder; empty if none runs.

    A killed `gapless up` leaves its note behind, so a note alone proves nothing.
    """
    if not STACK_NOTE.exists():
        return {}
    from ops.stack.folder import running

    try:
        found = running(STACK_NOTE.parent)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {} if found is None else {"kafka": found.kafka, "postgres": found.postgres}


def tell_of_stopped_stack(settings: Settings, *servers: str) -> None:
    """For a verb that waits for its servers: what it would wait for in vain."""
    for server in servers:
        if told := stopped_stack(settings, server):
            typer.echo(told, err=True)
            return


def configure_logging(settings: Settings) -> None:
    """Logs of a long-running process go to standard error: text, or JSON lines if set; none of what
    only helps to find faults of the program.
    """
    import structlog

    renderer: Any = structlog.processors.JSONRenderer()
    if not settings.log_json:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    structlog.configure(
        processors=[
            _without_debug,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # without local variables, which may hold records
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            )
            if settings.log_json
            else structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def logs_to_stderr() -> None:
    """Logs of a short verb that runs parts of ingest: standard output belongs to its result.

    Only warnings, and not that something is blocked: the result says so, with what would help.
    """
    import structlog

    processors = [one for one in structlog.get_config()["processors"] if one is not _untold]
    structlog.configure(
        processors=[_untold, *processors],
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )


def _untold(_logger: Any, method: str, event: Any) -> Any:
    import structlog

    if method in ("debug", "info") or event.get("event") == "blocked":
        raise structlog.DropEvent
    return event


def _without_debug(_logger: Any, method: str, event: Any) -> Any:
    import structlog

    if method == "debug":
        raise structlog.DropEvent
    return event


def operator() -> str:
    """Who decides: the account that runs this command, for the record of the decision."""
    return os.environ.get("GAPLESS_OPERATOR") or os.environ.get("USER") or f"uid {os.getuid()}"


def print_json(value: Any) -> None:
    """One JSON document on standard output; times and bytes must be text already."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
