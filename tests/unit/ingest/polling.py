"""Real pollers of definitions against a real HTTP server in this process, and what they emitted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import Any

from aiohttp import web

from ingest.budget import Deadline, Tails
from ingest.emission import Emission, Poller, StreamState
from ingest.pollers import Pollers
from schemas.definitions.load import load_folder
from schemas.failpoints import none
from schemas.records import Mark, Observation
from schemas.settings import Settings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
DEADLINE_S = 20.0

EVENTS = """\
    gapless: 1
    source: shop
    base_url: URL/v1
    limits: {attempts: 3, timeout: 10s, wait_max: 2s, body_max: 1MiB}
    streams:
      events:
        get: /events
        params: {from: "{start}", to: "{end}", after: "{token}", limit: "{size}"}
        records: body.items
        pages: {next: body.next, size: 2, stable: true}
        deletes: not_shown
        plan:
          interval: {time: t, format: rfc3339_ms, start: 2024-01-01, bounds: "[)", settle: 1s,
                     lookback: 1s, width: 100000d}
        schedule: {every: 1m}
    """


def stamp(seconds: float) -> str:
    """A time so many seconds ago, as providers write it."""
    moment = datetime.fromtimestamp(time.time() - seconds, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class Provider:
    """Answers with `handler` and remembers every request; `date`: the clock it shows.

    `dates`: what it shows first, one answer each.
    """

    handler: Handler
    requests: list[web.Request] = field(default_factory=list)
    url: str = ""
    date: str | None = None
    dates: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "HEAD":
            answer: web.StreamResponse = web.Response()
        else:
            await request.read()
            self.requests.append(request)
            answer = await self.handler(request)
        date = self.dates.pop(0) if self.dates else self.date
        if date is not None:
            answer.headers["Date"] = date
        return answer

    @property
    def asked(self) -> list[dict[str, str]]:
        """The query of every request."""
        return [dict(request.query) for request in self.requests]


@dataclass
class Polled:
    """One poller, and all that it emitted."""

    poller: Poller
    provider: Provider
    emissions: list[Emission] = field(default_factory=list)

    async def poll(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self.poller.poll(self._emit)

    async def _emit(self, emission: Emission) -> None:
        self.emissions.append(emission)

    @property
    def state(self) -> StreamState:
        return self.emissions[-1].state

    @property
    def pages(self) -> list[Observation]:
        return [page for emission in self.emissions for page in emission.observations]

    @property
    def records(self) -> list[bytes]:
        return [record for page in self.pages for record in page.records]

    @property
    def marks(self) -> list[Mark]:
        return [mark for emission in self.emissions for mark in emission.marks]

    @property
    def blocked(self) -> str:
        """Why it is blocked, as the last emission says; empty if it is not."""
        return self.state.blocked.reason if self.state.blocked else ""


def write(folder: Path, text: str) -> None:
    """One source in a folder of definitions."""
    (folder / "sources").mkdir(exist_ok=True)
    (folder / "sources" / "s.yaml").write_text(dedent(text), encoding="utf-8")


@asynccontextmanager
async def polling(
    folder: Path,
    text: str,
    handler: Handler,
    *,
    budget_s: float | None = None,
    **settings: Any,
) -> AsyncIterator[Polled]:
    """The first stream of a source; `URL` in its text stands for the server, `PORT` for its port."""
    provider = Provider(handler)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", provider.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    port = str(runner.addresses[0][1])
    write(folder, dedent(text).replace("URL", provider.url).replace("PORT", port))
    deadline = None
    if budget_s is not None:
        deadline = Deadline(time.monotonic() + budget_s, (0.0,), 0.0, Tails())
    definitions = load_folder(folder).check()
    pollers = Pollers(definitions, Settings(partitions=1, **settings), none, deadline)
    try:
        yield Polled(next(iter(pollers.of(0).values())), provider)
    finally:
        await pollers.close()
        await runner.cleanup()


def run(
    folder: Path,
    text: str,
    handler: Handler,
    polls: int = 1,
    **settings: Any,
) -> Polled:
    """So many polls, one after the other, whatever the schedule says."""

    async def main() -> Polled:
        async with polling(folder, text, handler, **settings) as polled:
            for _ in range(polls):
                await polled.poll()
            return polled

    return asyncio.run(main())


def page(items: list[Any], following: str | None = None, **more: Any) -> web.Response:
    return web.json_response({"items": items, "next": following, **more})


def one_page(request: web.Request) -> web.Response:
    return page([{"id": 1, "t": stamp(60)}])


def after(count: int, first: Callable[[web.Request], web.StreamResponse], then: Handler) -> Handler:
    """`first` answers so many requests, `then` the rest."""
    left = [count]

    async def handler(request: web.Request) -> web.StreamResponse:
        if left[0] > 0:
            left[0] -= 1
            return first(request)
        return await then(request)

    return handler


async def good(request: web.Request) -> web.StreamResponse:
    return one_page(request)
