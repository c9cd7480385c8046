"""The HTTP server of the monitor: page, JSON, metrics, health. Reads only, changes nothing."""

from __future__ import annotations

import asyncio
import signal
from importlib import resources

import structlog
from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    ProcessCollector,
    generate_latest,
)

from ops.monitor.metrics import StatusCollector
from ops.monitor.page import page
from ops.monitor.watch import Watch
from ops.status.as_json import to_json
from schemas.settings import Settings

_log = structlog.get_logger(__name__)
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def build(watch: Watch, refresh_s: int) -> web.Application:
    """The application; `watch` is running already."""
    registry = CollectorRegistry()
    registry.register(StatusCollector(watch))
    ProcessCollector(registry=registry)  # memory, processor time and files of the monitor itself
    style = resources.files("ops.monitor").joinpath("style.css").read_text("utf-8")

    async def html(_: web.Request) -> web.Response:
        return web.Response(text=page(watch.status, refresh_s), content_type="text/html")

    async def css(_: web.Request) -> web.Response:
        return web.Response(text=style, content_type="text/css")

    async def status(_: web.Request) -> web.Response:
        found = watch.status
        if found is None:
            return web.json_response({"error": "nothing was read yet"}, status=503)
        return web.json_response(to_json(found))

    async def metrics(_: web.Request) -> web.Response:
        body = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def health(_: web.Request) -> web.Response:
        found = watch.status
        told = {
            "healthy": watch.healthy,
            "kafka": found is not None and found.kafka is None,
            "postgres": found is not None and found.postgres is None,
        }
        return web.json_response(told, status=200 if watch.healthy else 503)

    async def guard(_: web.Request, response: web.StreamResponse) -> None:
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)

    app = web.Application()
    app.on_response_prepare.append(guard)
    app.add_routes(
        [
            web.get("/", html),
            web.get("/style.css", css),
            web.get("/status.json", status),
            web.get("/metrics", metrics),
            web.get("/healthz", health),
        ]
    )
    return app


async def serve(settings: Settings, host: str, port: int, every_s: float) -> None:
    """Serve until SIGTERM or SIGINT. Raises OSError if the address cannot be taken."""
    watch = Watch(settings, every_s)
    watch.start()
    runner = web.AppRunner(build(watch, max(5, round(every_s))), access_log=None)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        _log.info("monitor", page=f"http://{host}:{port}/", metrics=f"http://{host}:{port}/metrics")
        await stop.wait()
    finally:
        await runner.cleanup()
        await asyncio.to_thread(watch.stop)
