"""Puts the parts together as one aiohttp application that writes its own traffic while it runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiohttp import web

from .admin import Admin
from .clock import Clock
from .faults import Faults
from .holds import Holds
from .public import Parts, Public
from .requestlog import RequestLog
from .settings import Settings
from .store import Store
from .times import SECOND_US, http_date
from .traffic import Traffic

_BODY_MAX_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Provider:
    """The application and what it is made of."""

    app: web.Application
    store: Store
    traffic: Traffic


def build(
    *,
    seed: int = 1,
    tenants: int = 1,
    record_bytes: int = 600,
    clock: Clock | None = None,
    settings: Settings | None = None,
) -> Provider:
    """A provider without records and without traffic."""
    clock = clock or Clock()
    store = Store(
        seed=seed,
        tenants=tenants,
        record_bytes=record_bytes,
        clock=clock,
        settings=settings or Settings(),
    )
    traffic = Traffic(store)
    parts = Parts(store, Faults(seed), Holds(), RequestLog())
    app = web.Application(client_max_size=_BODY_MAX_BYTES)
    app.add_routes([*Public(parts).routes(), *Admin(parts, traffic).routes()])

    async def stamp(_: web.Request, answer: web.StreamResponse) -> None:
        answer.headers["Date"] = http_date(clock.now_us() // SECOND_US)

    async def write(_: web.Application) -> AsyncIterator[None]:
        writer = asyncio.create_task(traffic.run())
        yield
        writer.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await writer

    app.on_response_prepare.append(stamp)
    app.cleanup_ctx.append(write)
    return Provider(app, store, traffic)


async def serve(
    provider: Provider, port: int, host: str = "127.0.0.1"
) -> tuple[web.AppRunner, str]:
    """Listens on `host`; the runner to clean up, and the URL. A caller that goes away ends its handler."""
    runner = web.AppRunner(
        provider.app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0
    )
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner, f"http://{host}:{runner.addresses[0][1]}"
