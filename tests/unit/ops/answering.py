"""A provider of a test's own, in a thread: a verb of the command line has a loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread

from aiohttp import web

Handler = Callable[[web.Request], web.Response]


@dataclass
class Server:
    """Answers what `answer` says, and keeps the paths that it was asked for."""

    answer: Handler
    url: str = ""
    seen: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.Response:
        if request.method == "HEAD":
            return web.Response()
        self.seen.append(request.path)
        return self.answer(request)


@contextmanager
def serving() -> Iterator[Server]:
    """It answers with no items until the test says otherwise."""
    found = Server(lambda request: web.json_response({"items": []}))
    loop = asyncio.new_event_loop()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.handle)
    runner = web.AppRunner(app)

    async def start() -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

    loop.run_until_complete(start())
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(runner.cleanup())
        loop.close()
