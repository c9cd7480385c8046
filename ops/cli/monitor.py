"""`gapless monitor`: metrics, health and a page of the whole deployment."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from ops import problems
from ops.cli import context

_PORT = 9464
Host = Annotated[
    str | None,
    typer.Option(
        envvar="GAPLESS_MONITOR_HOST",
        help="Else 127.0.0.1; all addresses where GAPLESS_METRICS_PORT asks for metrics.",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        envvar="GAPLESS_MONITOR_PORT",
        min=1,
        max=65535,
        help="Else GAPLESS_METRICS_PORT, else 9464.",
    ),
]
Every = Annotated[float, typer.Option(metavar="SECONDS", min=1, help="How often it is read.")]


def monitor(
    host: Host = None,
    port: Port = None,
    every: Every = 5.0,
    definitions: context.Definitions = None,
) -> None:
    """Serve what status says: / page, /metrics Prometheus, /status.json, /healthz.

    The page has no sign-in and holds no personal data; let only operators reach it.
    """
    from ops.monitor.server import serve

    settings = context.load_settings(definitions)
    context.configure_logging(settings)
    context.tell_of_stopped_stack(settings, "kafka", "postgres")
    # the other processes serve their metrics on all addresses once a port is set
    host = host or ("0.0.0.0" if settings.metrics_port else "127.0.0.1")
    port = port or settings.metrics_port or _PORT
    try:
        asyncio.run(serve(settings, host, port, every))
    except OSError as error:
        raise problems.Stop(
            f"{host}:{port} cannot be listened on: {error.strerror}. Choose another --port.",
            problems.UNREACHABLE,
        ) from None
