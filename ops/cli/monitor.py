"""`gapless monitor`: metrics, health and a page of the whole deployment."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from ops import problems
from ops.cli import context

Host = Annotated[
    str, typer.Option(envvar="GAPLESS_MONITOR_HOST", help="Address to listen on; 0.0.0.0: all.")
]
Port = Annotated[int, typer.Option(envvar="GAPLESS_MONITOR_PORT", min=1, max=65535)]
Every = Annotated[float, typer.Option(metavar="SECONDS", min=1, help="How often it is read.")]


def monitor(
    host: Host = "127.0.0.1",
    port: Port = 9470,
    every: Every = 5.0,
    definitions: context.Definitions = None,
) -> None:
    """Serve what status says: / page, /metrics Prometheus, /status.json, /healthz.

    The page has no sign-in and holds no personal data; let only operators reach it.
    """
    from ops.monitor.server import serve

    settings = context.load_settings(definitions)
    context.configure_logging(settings)
    try:
        asyncio.run(serve(settings, host, port, every))
    except OSError as error:
        raise problems.Stop(
            f"{host}:{port} cannot be listened on: {error.strerror}. Choose another --port.",
            problems.UNREACHABLE,
        ) from None
