"""`gapless relay`: publishes events of the outbox to Kafka, and to the receivers that mappings name."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from ops.cli import context

if TYPE_CHECKING:
    from schemas.definitions.mapping import PostSpec
    from schemas.settings import Settings

Once = Annotated[bool, typer.Option("--once", help="Publish what is eligible, then exit.")]


def relay(once: Once = False, definitions: context.Definitions = None) -> None:
    """Publish events in order per key, at least once, until told to stop."""
    from prometheus_client import start_http_server

    from ops.failpoints import build
    from ops.relay.service import Relay

    settings = context.load_settings(definitions)
    hit = build(settings.failpoints)
    context.configure_logging(settings)
    context.tell_of_stopped_stack(settings, "postgres")
    posts = _posts(settings)
    if settings.metrics_port:
        start_http_server(settings.metrics_port)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    Relay(settings, posts, hit=hit).run(stop, once=once)


def _posts(settings: Settings) -> dict[str, PostSpec]:
    """None without definitions: events for topics need none."""
    from ops.relay.service import posts_of
    from schemas.definitions.load import load_folder

    if not any((settings.definitions / name).is_dir() for name in ("sources", "mappings")):
        return {}
    return posts_of(load_folder(settings.definitions).check().mappings)
