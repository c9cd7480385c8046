"""`gapless relay`: publishes events of the outbox to Kafka."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from ops.cli import context

Once = Annotated[bool, typer.Option("--once", help="Publish what is eligible, then exit.")]


def relay(once: Once = False) -> None:
    """Publish events in order per key, at least once, until told to stop."""
    from prometheus_client import start_http_server

    from ops.relay import Relay

    settings = context.load_settings()
    context.configure_logging(settings)
    if settings.metrics_port:
        start_http_server(settings.metrics_port)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    Relay(settings).run(stop, once=once)
